"""Are the mechanisms that can be switched off still where their rows say, and are they on again afterwards?"""

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import switch_off  # stands beside the other benchmarks
from langchain_ctxwin.agent import model_call
from langchain_ctxwin.core import overflow


@pytest.mark.parametrize(
    "row", [*switch_off.ROWS, switch_off.PROMPT], ids=lambda row: row.name
)
def test_every_seam_of_a_row_is_there(row):
    with switch_off.applied(row):
        pass


def test_a_seam_that_is_gone_names_the_row():
    row = switch_off.Row(
        name="wheels", seam="engine:Wheels.turn", off=switch_off.value(None)
    )
    with (
        pytest.raises(
            switch_off.SeamGoneError, match=r"^wheels: .* engine:Wheels\.turn "
        ),
        switch_off.applied(row),
    ):
        pass


def test_a_mechanism_is_off_wherever_it_was_imported_and_on_again_afterwards():
    before = overflow.classify_overflow
    row = next(row for row in switch_off.ROWS if "core.overflow" in row.seam)
    with switch_off.applied(row):
        found = model_call.classify_overflow
        assert found is overflow.classify_overflow is not before
        assert found("anything") is None
    assert model_call.classify_overflow is overflow.classify_overflow is before


def test_a_method_is_replaced_in_its_class():
    cls = importlib.import_module("langchain_ctxwin.core.request").Request
    before = vars(cls)["is_low"]
    seam, off = "core.request:Request.is_low", switch_off.value(1)
    with switch_off.applied(switch_off.Row(name="low water", seam=seam, off=off)):
        assert cls.is_low == 1
    assert vars(cls)["is_low"] is before
