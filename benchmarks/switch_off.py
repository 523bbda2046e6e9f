"""What is each large mechanism worth? It is replaced by nothing or by something plain, and benchmarks run again.

A seam is `module:name` or `module:Class.name` below the package, replaced in every module that has imported it; what
stands in is a function of what was there. A figure that stays what it is with everything on is shown as a dot: a row of
dots is a mechanism that nothing here pays for. A mechanism that is removed takes its row along.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import arena
import calibration
import langchain_ctxwin
import sufficiency
from arena_scenarios import SCENARIOS
from common import head, parser_of, pooled, quiet, row
from langchain_ctxwin.core.tool_schemas import tool_definition

PACKAGE = "langchain_ctxwin"
WINDOW = 8_192
QUICK_SCENARIOS = ("parallel", "json_rows", "long_message")
SUMMARY_SECONDS = 60.0

StandIn = Callable[[Any], Any]
Figures = dict[str, str]


class SeamGoneError(Exception):
    """A row names something that the package no longer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    seam: str
    off: StandIn
    instead: str = "nothing"


@contextmanager
def applied(row: Row) -> Iterator[None]:
    """Hold the mechanism of a row off; raises `SeamGoneError` where its seam is gone."""
    module_name, _, path = row.seam.partition(":")
    *owners, name = path.split(".")
    try:
        owner: Any = importlib.import_module(f"{PACKAGE}.{module_name}")
        for step in owners:
            owner = getattr(owner, step)
        old = vars(owner)[name]
    except (ImportError, AttributeError, KeyError) as error:
        raise SeamGoneError(
            f"{row.name}: the package has no {row.seam} any more; mend the row or take it out"
        ) from error
    new, places = row.off(old), [owner]
    if not owners:
        modules = [m for key, m in sys.modules.items() if key.startswith(PACKAGE)]
        places = [module for module in modules if vars(module).get(name) is old]
    for place in places:
        setattr(place, name, new)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, old)


# ---- what stands in --------------------------------------------------------------------------------------------------


def value(new: Any) -> StandIn:
    return lambda _: new


def returning(result: Any) -> StandIn:
    return value(lambda *_, **__: result)


def _unprepared(old: Any) -> Any:
    """The settings of an engine, under which nothing is begun ahead of need."""
    return property(lambda engine: old.fget(engine).model_copy(update={"prepare": 1.0}))


def _plain_estimate(old: Any) -> Any:
    def made(counter: Any, *, family: str) -> Any:
        from langchain_core.messages.utils import count_tokens_approximately

        is_own = counter is None or isinstance(counter, langchain_ctxwin.TokenEstimator)
        return old(count_tokens_approximately if is_own else counter, family=family)

    return made


def _json_tokens(tools: Any, _: Any, price: Any) -> float:
    return sum(price(json.dumps(tool_definition(tool), default=str)) for tool in tools)


def _waiting(start: Any) -> Any:
    def started(self: Any, *given: Any, **named: Any) -> bool:
        is_begun = start(self, *given, **named)
        self.drain(SUMMARY_SECONDS)
        return bool(is_begun)

    return started


PROMPT = Row(
    name="summaries take no time", seam="summarize.jobs:SummaryJobs.start", off=_waiting
)
"""Otherwise figures would depend on how busy the machine is."""

ROWS = (
    Row(
        name="anchor (last reported size)",
        seam="core.measuring:last_report_of",
        off=returning(None),
    ),
    Row(
        name="spans of counted text",
        instead="the newest alone",
        seam="core.sizing:MAX_SPANS",
        off=lambda _: 1,
    ),
    Row(
        name="estimator by family",
        instead="count_tokens_approximately",
        seam="pricing:Pricing",
        off=_plain_estimate,
    ),
    Row(
        name="tokens of tool schemas by their parts",
        instead="their JSON as text",
        seam="core.tool_schemas:schema_tokens",
        off=value(_json_tokens),
    ),
    Row(
        name="steps of the current turn leave",
        instead="whole turns alone, then clamps",
        seam="core.compaction:step_cuts",
        off=returning([]),
    ),
    Row(
        name="record: standing instructions",
        instead="statements like others",
        seam="core.standing:is_standing",
        off=returning(False),
    ),
    Row(
        name="record: names and numbers of results",
        seam="core.notes:_seen",
        off=returning(()),
    ),
    Row(
        name="record: calls and outcomes",
        seam="core.notes:_of_answer",
        off=returning(()),
    ),
    Row(
        name="record: titles of objects before their keys",
        seam="core.notes:_title",
        off=returning(""),
    ),
    Row(
        name="record: room is left when it is written anew",
        instead="all of its room is filled",
        seam="core.record:REWRITTEN_SHARE",
        off=lambda _: 1.0,
    ),
    Row(
        name="recovery from a refusal",
        instead="the error is raised",
        seam="core.overflow:classify_overflow",
        off=returning(None),
    ),
    Row(
        name="record",
        seam="core.record:extended",
        off=value(lambda record, *_, **__: replace(record, lines=())),
    ),
    Row(
        name="summaries by a model",
        instead="the record alone",
        seam="summarize.model:as_summarizer",
        off=lambda old: lambda _, **named: old(None, **named),
    ),
    Row(
        name="summary begun ahead of need",
        instead="at the limit",
        seam="engine:ContextEngine.config",
        off=_unprepared,
    ),
    Row(
        name="pairing repair",
        instead="sent as it is",
        seam="core.pairing:repair_step",
        off=value(lambda messages, *_: tuple(messages)),
    ),
)


# ---- the measures ----------------------------------------------------------------------------------------------------


def shown_values(options: Namespace) -> Figures:
    """Of the values that the next call needs: all, those last seen long ago, and the steps that have all of theirs."""
    per_file = 1 if options.quick else 7
    chosen = sufficiency.conversations(options.data, per_file, None)
    jobs = [
        sufficiency.Job(transcript=t, window=WINDOW, arms=(sufficiency.OURS,))
        for t in chosen
    ]
    tally = sum(pooled(sufficiency.play, jobs), sufficiency.Tally())
    shares = [
        sufficiency.share(tally, sufficiency.OURS, group)
        for group in sufficiency.GROUPS
    ]
    return {
        "all/far/steps": "/".join(f"{share:.3f}" for share in shares),
        "billed": f"{sufficiency.billed(tally, sufficiency.OURS):,.0f}",
        "over+refused": f"{tally[sufficiency.OURS, 'over']}+{tally['', 'refused']}",
    }


def agents(options: Namespace) -> Figures:
    """Scripted agents with a strict provider; a summary is there as soon as it is begun."""
    names = QUICK_SCENARIOS if options.quick else SCENARIOS
    jobs = [
        arena.Job(manager="ours-nodes", scenario=name, window=WINDOW) for name in names
    ]
    with applied(PROMPT):
        total = arena.figures_of(list(arena.played(jobs)))
    return {column: arena.in_words(figure) for column, figure in total.items()}


def counts(options: Namespace) -> Figures:
    """Errors of counts in % before the request is sent, mean / 95 % quantile."""
    talks = [*calibration.load(options.data)][:: 40 if options.quick else 3]
    found = [
        one
        for talk in pooled(calibration.replayed, talks)
        for one in talk
        if one.responses
    ]
    return {
        kind: calibration.in_words(
            [one.error(calibration.OURS) for one in found if one.kind == kind]
        )
        for kind in calibration.GOALS
    }


MEASURES: dict[str, Callable[[Namespace], Figures]] = {
    "shown": shown_values,
    "calibration": counts,
    "arena": agents,
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument(
        "--measures", nargs="+", choices=MEASURES, default=list(MEASURES)
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer conversations and scenarios",
    )
    options = parser.parse_args()
    for info in pkgutil.walk_packages(langchain_ctxwin.__path__, f"{PACKAGE}."):
        with suppress(ImportError):  # an extra that is not installed
            importlib.import_module(info.name)
    quiet()
    rows = [off for off in ROWS if options.only in off.name]
    for name in options.measures:
        base = MEASURES[name](options)
        print()
        head(f"{name}: off → instead", *base, left=range(len(base) + 1))
        row("**all on**", *base.values())
        for off in rows:
            found = Figures()
            # without a mechanism anything may fail, and that is a figure
            with applied(off), suppress(Exception):
                found = MEASURES[name](options)
            cells = (
                "·" if found.get(at) == base[at] else found.get(at, "failed")
                for at in base
            )
            row(f"{off.name} → {off.instead}", *cells)


if __name__ == "__main__":
    main()
