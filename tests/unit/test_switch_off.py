"""Are the mechanisms that can be switched off still where their rows say, and are they on again afterwards?"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import switches  # stands beside the benchmarks
from langchain_ctxwin.core import measuring, request


@pytest.mark.parametrize("row", switches.ROWS, ids=lambda row: row.name)
def test_every_seam_of_a_row_is_there(row):
    with switches.applied(row):
        pass


def test_a_seam_that_is_gone_names_the_row():
    row = switches.Row(name="wheels", seams={"engine:Wheels.turn": switches.value(None)})
    with pytest.raises(switches.SeamGoneError, match=r"^wheels: .* engine:Wheels\.turn "), switches.applied(row):
        pass


def test_a_mechanism_is_off_wherever_it_was_imported_and_on_again_afterwards():
    before = request.last_report_of
    with switches.applied(switches.Row(name="anchor", seams={"core.request:last_report_of": switches.returning(None)})):
        assert measuring.last_report_of is request.last_report_of is not before
        assert measuring.last_report_of("anything") is None
    assert measuring.last_report_of is request.last_report_of is before


def test_a_method_is_replaced_in_its_class():
    cls = importlib.import_module("langchain_ctxwin.core.request").Request
    before = vars(cls)["leaves_turn_whole"]
    with switches.applied(
        switches.Row(name="whole turns", seams={"core.request:Request.leaves_turn_whole": switches.value(1)})
    ):
        assert cls.leaves_turn_whole == 1
    assert vars(cls)["leaves_turn_whole"] is before


def test_rows_have_names_of_their_own():
    names = [row.name for row in switches.ROWS]
    assert len({*names}) == len(names)
