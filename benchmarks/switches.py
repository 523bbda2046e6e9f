# ruff: noqa: SLF001  # what stands in for a mechanism stands inside of the package
"""The mechanisms that can be switched off: each a name, its seams, and what stands in for it.

A seam is `module:name` or `module:Class.name` below the package, replaced in every module that has imported it. What
stands in is a function of what was there. A mechanism that is removed takes its row along.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

PACKAGE = "langchain_ctxwin"
ALL = ("shown", "arena", "calibration", "servers")
SIZES = ("shown", "calibration", "servers")
VIEW = ("shown", "arena", "servers")
RECORD = ("shown", "arena")
FAST = ("speed",)

StandIn = Callable[[Any], Any]
"""Makes what stands in from what was there."""


class SeamGoneError(Exception):
    """A row names something that the package no longer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    seams: Mapping[str, StandIn]
    instead: str = "nothing"
    measures: tuple[str, ...] = SIZES

    @property
    def title(self) -> str:
        return self.name if self.instead == "nothing" else f"{self.name} → {self.instead}"


@contextmanager
def applied(row: Row) -> Iterator[None]:
    """Hold the mechanism of a row off; raises `SeamGoneError` where a seam of it is gone."""
    with ExitStack() as stack:
        for seam, stand_in in row.seams.items():
            _replace(stack, row, seam, stand_in)
        yield


def _replace(stack: ExitStack, row: Row, seam: str, stand_in: StandIn) -> None:
    module_name, _, path = seam.partition(":")
    *owners, name = path.split(".")
    try:
        owner: Any = import_module(f"{PACKAGE}.{module_name}")
        for step in owners:
            owner = getattr(owner, step)
        old = vars(owner)[name]
    except (ImportError, AttributeError, KeyError) as error:
        raise SeamGoneError(f"{row.name}: the package has no {seam} any more; mend the row or take it out") from error
    new = stand_in(old)
    places = [owner] if owners else [m for m in _modules() if vars(m).get(name, stack) is old]
    for place in places:
        setattr(place, name, new)
        stack.callback(setattr, place, name, old)


def _modules() -> list[Any]:
    return [module for key, module in [*sys.modules.items()] if key.partition(".")[0] == PACKAGE]


# ---- what may stand in ----------------------------------------------------------------------------------------------


def value(new: Any) -> StandIn:
    return lambda _: new


def returning(result: Any) -> StandIn:
    return value(lambda *_, **__: result)


def argument(place: int) -> StandIn:
    """What was given at a place is returned as it is."""
    return value(lambda *given, **_: given[place])


def with_goal(**changes: Any) -> StandIn:
    """What a compaction aims for, with some settings changed."""
    return lambda old: lambda *given: replace(old(*given), **changes)


class Everything(frozenset):  # type: ignore[type-arg]
    """A set that has whatever is asked for."""

    def __contains__(self, _: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def difference(self, *_: Any) -> Everything:
        return self

    union = difference


def _module(name: str) -> Any:
    return import_module(f"{PACKAGE}.{name}")


# ---- sizes ----------------------------------------------------------------------------------------------------------


def _fixed_bound(share: float) -> StandIn:
    def bounded(_: Any, regions: Any, *__: Any) -> Any:
        estimate = _module("core.calibration").SizeEstimate
        total = regions.total_tokens
        above, below = int(total * (1 + share)) + 1, int(total * (1 - share))
        return estimate(regions=regions, upper_tokens=above, lower_tokens=below)

    return value(bounded)


def _plain_estimate(old: Any) -> Any:
    def made(counter: Any, *, family: str) -> Any:
        from langchain_core.messages.utils import count_tokens_approximately

        own = _module("core.tokens").TokenEstimator
        is_own = counter is None or isinstance(counter, own)
        return old(count_tokens_approximately if is_own else counter, family=family)

    return made


def _believing(_: Any) -> Any:
    """A report is believed unless it is no number."""
    outcome = _module("core.outcome")

    def judged(window: Any, reply: Any, answering_model: str) -> Any:
        known = outcome._known(window, answering_model)
        tokens = outcome.sent_tokens(reply)
        if not reply.usage_metadata or not isinstance(tokens, int) or tokens <= 0:
            return outcome._Judged(known=known)
        return outcome._Judged(known=known, tokens=tokens)

    return judged


SIZE_ROWS = (
    Row(name="spans", seams={"core.calibration:Measured.with_span": argument(0)}),
    Row(
        name="ratio",
        instead="always 1",
        seams={
            "core.calibration:Sizing.after_text": value(
                lambda self, *_, **__: replace(self.correction, reports=self.correction.reports + 1)
            )
        },
    ),
    Row(
        name="offset",
        seams={
            "core.calibration:Sizing.after_request": value(
                lambda self, *_, **__: replace(self.correction, reports=self.correction.reports + 1)
            ),
            "core.measuring:_reconciled": value(lambda session, request, *_: (session, request)),
        },
    ),
    Row(
        name="offset reconciled at each measure",
        seams={"core.measuring:_reconciled": value(lambda session, request, *_: (session, request))},
    ),
    Row(name="anchor (last reported size)", seams={"core.window:latest_report": returning(None)}, measures=ALL),
    Row(
        name="edit of the anchored part noticed by checksum",
        seams={"core.turns:checksum": returning(0)},
        measures=("shown", "servers", "speed"),
    ),
    Row(
        name="margin",
        instead="count taken as it is",
        seams={"core.calibration:Sizing._bounded": _fixed_bound(0.0)},
        measures=ALL,
    ),
    Row(
        name="margin that narrows", instead="always 5 %", seams={"core.calibration:Sizing._bounded": _fixed_bound(0.05)}
    ),
    Row(
        name="margin that narrows, 2 %",
        instead="always 2 %",
        seams={"core.calibration:Sizing._bounded": _fixed_bound(0.02)},
    ),
    Row(
        name="bounds of the first request by region and skew",
        instead="10 % each way",
        seams={
            "core.calibration:Sizing._estimated": value(
                lambda self, regions, *_: self._bounded(regions, 0.1 * regions.total_tokens)
            )
        },
        measures=SIZES,
    ),
    Row(
        name="refusal by the lower of two counts",
        instead="by the lower bound",
        seams={"core.calibration:Sizing.least": value(lambda _, size, *__: size.lower_tokens)},
        measures=SIZES,
    ),
    Row(name="surprise of a text is capped", seams={"core.calibration:MAX_SURPRISE_SD": value(1e6)}, measures=SIZES),
    Row(
        name="doubted reports, votes",
        instead="every number is believed",
        seams={"core.outcome:_judged": _believing},
        measures=SIZES,
    ),
    Row(
        name="doubted reports: too large",
        seams={"core.calibration:contradicts": returning(False)},
        measures=SIZES,
    ),
    Row(
        name="doubted reports: fallen although the request grew",
        seams={"core.calibration:LEAST_SHARE_AFTER_FALL": value(0.0)},
        measures=SIZES,
    ),
    Row(
        name="doubted first report used until disproved",
        seams={"core.calibration:is_roomy": returning(False), "core.outcome:_without_disproved": argument(0)},
        measures=SIZES,
    ),
    Row(
        name="rows of votes agree",
        instead="a doubted report is never believed",
        seams={"core.calibration:votes": returning(None)},
        measures=SIZES,
    ),
    Row(
        name="reports that stand in the history",
        seams={"core.outcome:from_history": value(lambda session, *_: (session, None))},
        measures=SIZES,
    ),
    Row(
        name="estimator by family",
        instead="count_tokens_approximately",
        seams={"pricing:Pricings": _plain_estimate},
        measures=ALL,
    ),
    Row(
        name="estimator by family (own class)",
        instead="its generic family",
        seams={"core.model_info:family_of": returning("generic")},
        measures=("shown", "arena"),
    ),
    Row(
        name="long texts are sampled",
        instead="all of it is read",
        seams={"core.tokens:_thinned": argument(0)},
        measures=("calibration", "speed", "arena"),
    ),
)


# ---- limits and refusals --------------------------------------------------------------------------------------------

LIMIT_ROWS = (
    Row(name="silent overflow", seams={"agent.model_call:ModelCall._silent": returning(None)}, measures=VIEW),
    Row(
        name="limits learned within the conversation",
        seams={"core.recovery:remembered_limit": value(lambda *_: {})},
        measures=("servers", "arena"),
    ),
    Row(
        name="limits heard by two conversations (HeardLimits)",
        seams={"limit_memory:HeardLimits.recall": value(lambda *_: {})},
        measures=("servers", "arena"),
    ),
    Row(
        name="accepted sizes refute stated limits (AcceptedSizes)",
        seams={"limit_memory:AcceptedSizes.of": returning(0)},
        measures=("servers", "arena"),
    ),
    Row(
        name="a learned limit below the fixed regions is dropped",
        seams={
            "core.measuring:_lowered": lambda old: lambda stated, learned, reserve, _: old(stated, learned, reserve, 0)
        },
        measures=("servers", "arena"),
    ),
    Row(
        name="a limit inferred from a refusal without a figure",
        seams={"core.recovery:BLIND_STEP": value(1.0)},
        measures=("servers",),
    ),
    Row(
        name="size stated in a refusal corrects the count",
        seams={
            "core.outcome:from_refusal": value(
                lambda window, _: (
                    {k: v for k, v in window.session.counts.items() if k not in {"anchor", "checked"}}
                    | {"anchor": None}
                )
            )
        },
        measures=("servers", "arena"),
    ),
    Row(
        name="less output is asked for after a refusal",
        seams={"core.recovery:smaller_output": value(lambda *_: {})},
        measures=("arena",),
    ),
    Row(
        name="output is lowered to what the window leaves",
        seams={"core.recovery:fitting_output": value(lambda *_, **__: {})},
        measures=("arena",),
    ),
    Row(
        name="recovery from a refusal",
        instead="the error is raised",
        seams={"core.overflow:classify_overflow": returning(None)},
        measures=("servers", "arena"),
    ),
)


# ---- what leaves ----------------------------------------------------------------------------------------------------


def _any_step(_: Any) -> Any:
    """Every step may leave first, whole turns or not; never the newest."""

    def cuts(priced_view: Any) -> list[int]:
        last = priced_view.newest.index if priced_view.newest else priced_view.start
        return [step.index for step in priced_view.steps if priced_view.start < step.index <= last and step.messages]

    return cuts


def _one_clamp(_: Any) -> Any:
    """Everything but the question and pins is cut to one length, at once; then the question."""
    compaction = _module("core.compaction")

    def clamped(request: Any, priced_view: Any, goal: Any) -> Any:
        if goal.fits(priced_view):
            return priced_view
        current = compaction.last_user(request.messages)
        bare = compaction._without_account(request, priced_view)
        after = compaction._clamp(
            request, bare, lambda index: index != current and index not in request.pins, goal.for_cuts.fits
        )
        if not goal.likely_fits(after) and current not in request.pins:
            after = compaction._clamp(request, after, lambda index: index == current, goal.for_cuts.likely_fits)
        return compaction._with_account_of(request, after, priced_view)

    return clamped


VIEW_ROWS = (
    Row(
        name="turn cuts before step cuts",
        instead="the oldest steps leave, whatever their turn",
        seams={"core.compaction:turn_cuts": _any_step},
        measures=VIEW,
    ),
    Row(name="step cuts inside of the current turn", seams={"core.planning:_drop_steps": argument(1)}, measures=VIEW),
    Row(
        name="whole_turn_share",
        instead="0",
        seams={"core.compaction:Goal.leaves_whole": returning(False)},
        measures=VIEW,
    ),
    Row(
        name="clamping kind by kind",
        instead="one clamp of all",
        seams={"core.compaction:clamp_until_fits": _one_clamp},
        measures=VIEW,
    ),
    Row(
        name="a clamped question shrinks once something follows",
        seams={"core.compaction:clamp_lasting": argument(1)},
        measures=VIEW,
    ),
    Row(name="pins are clamped", seams={"core.compaction:clamp_pins": argument(1)}, measures=VIEW),
    Row(
        name="record and summary shrink where nothing else can",
        seams={"core.compaction:with_shorter_account": argument(1)},
        measures=VIEW,
    ),
    Row(
        name="cuts end below the limit (CUT_SHARE, RECORDED_SHARE)",
        seams={"core.compaction:CUT_SHARE": value(1.0), "core.compaction:RECORDED_SHARE": value(1.0)},
        measures=VIEW,
    ),
    Row(
        name="the question is cut only when it surely does not fit",
        seams={"core.compaction:Goal.likely_fits": value(lambda self, priced_view: self.fits(priced_view))},
        measures=VIEW,
    ),
    Row(
        name="the limit as a most likely size",
        instead="the limit",
        seams={"core.compaction:Goal.likely_limit": value(lambda self, _: self.limit)},
        measures=VIEW,
    ),
    Row(
        name="candidate cuts that leave too much are not priced (FAR)",
        seams={"core.compaction:FAR": value(10**9)},
        measures=FAST,
    ),
    Row(
        name="candidate lengths of a clamp 1 % apart",
        instead="20 % apart",
        seams={"core.compaction:CAP_STEP": value(0.8)},
        measures=("shown", "arena", "speed"),
    ),
    Row(name="a pinned question carries its answer", seams={"core.compaction:ANSWER_SHARE": value(0.0)}, measures=VIEW),
    Row(
        name="a pinned question without its answer has a marker",
        seams={"core.priced_view:needs_answer": returning(False)},
        measures=VIEW,
    ),
    Row(
        name="the first user message is pinned", seams={"engine:_goal": with_goal(pin_first_user=False)}, measures=VIEW
    ),
    Row(
        name="the current user message is pinned in a long turn",
        seams={"core.priced_view:last_user": returning(None)},
        measures=VIEW,
    ),
    Row(name="new pins on what left", seams={"core.session:with_new_pins": argument(0)}, measures=("arena",)),
    Row(
        name="pictures are left out by number and bytes",
        seams={"core.priced_view:RequestParts._without_media": returning(frozenset())},
        measures=("arena", "conformance"),
    ),
    Row(
        name="documented limits of pictures",
        seams={"core.media:provider_limits": lambda _: lambda *_: _module("core.media").NO_LIMITS},
        measures=("arena",),
    ),
    Row(
        name="edits of what left are noticed",
        seams={"core.view:with_checksum": argument(0), "pricing:Checksums.__call__": returning(0)},
        measures=("arena", "speed"),
    ),
    Row(
        name="record begun anew after edits",
        seams={"core.measuring:with_record_anew": returning(None)},
        measures=("arena",),
    ),
    Row(
        name="clear_tools (an option, here ON for all tools)",
        seams={"engine:_goal": with_goal(clear_tools=Everything())},
        measures=("shown",),
    ),
    Row(
        name="spare_tools (an option, here ON for all tools)",
        seams={"engine:_goal": with_goal(spare_tools=Everything())},
        measures=VIEW,
    ),
    Row(
        name="show_fill (an option, here ON)",
        seams={"core.measuring:measure_request": lambda old: lambda *a, **k: old(*a, **{**k, "show_fill": True})},
        measures=("shown", "arena", "speed"),
    ),
)


# ---- the record -----------------------------------------------------------------------------------------------------


def _newest_lines(_: Any) -> Any:
    """The newest lines first, whatever their worth."""
    return lambda items, *_: [*reversed(items)]


def _of_one_use(old: Any) -> Any:
    def lines(*given: Any, **named: Any) -> Iterator[Any]:
        for line in old(*given, **named):
            yield replace(line, uses=0) if line.kind == "seen" else line

    return lines


def _plain_values(old: Any) -> Any:
    return lambda _, text: old("", text)


def _only_kinds(*kinds: str) -> StandIn:
    def wrapped(old: Any) -> Any:
        return lambda *given, **named: (line for line in old(*given, **named) if line.kind in kinds)

    return wrapped


RECORD_ROWS = (
    Row(
        name="record",
        seams={"core.record:extended": value(lambda record, *_, **__: replace(record, lines=()))},
        measures=ALL,
    ),
    Row(
        name="record: order by worth",
        instead="newest first",
        seams={"core.record:_by_worth": _newest_lines},
        measures=RECORD,
    ),
    Row(
        name="record: order by use",
        instead="all that was seen alike",
        seams={"core.notes:record_lines": _of_one_use},
        measures=RECORD,
    ),
    Row(
        name="record: values that messages show are left out",
        seams={"core.record:_by_worth": lambda old: lambda items, *_: old(items)},
        measures=RECORD,
    ),
    Row(name="record: rare shapes of values first", seams={"core.notes:_SHAPE": value({})}, measures=RECORD),
    Row(name="record: the latest value wins", seams={"core.record:_STATING": value(frozenset())}, measures=RECORD),
    Row(name="record: labels of values", seams={"core.notes:_part": _plain_values}, measures=RECORD),
    Row(
        name="record: objects on lines of their own",
        instead="their values",
        seams={"core.notes:_data": returning(None)},
        measures=RECORD,
    ),
    Row(
        name="record: listings leave their size",
        seams={"core.notes:_is_size_only": returning(False)},
        measures=RECORD,
    ),
    Row(
        name="record: standing instructions",
        instead="all statements alike",
        seams={"core.notes:is_standing": returning(False)},
        measures=RECORD,
    ),
    Row(
        name="record: standing instructions, all",
        instead="each statement holds",
        seams={"core.notes:is_standing": returning(True)},
        measures=RECORD,
    ),
    Row(
        name="record: lines that wait for a roomier view",
        seams={"core.record:fitted": lambda old: lambda record, free, price: _trimmed(old, record, free, price)},
        measures=RECORD,
    ),
    Row(
        name="record: takes room of the newest results (is_first)",
        seams={"core.compaction:with_record": lambda old: lambda *a, **k: old(*a, **{**k, "is_first": False})},
        measures=VIEW,
    ),
    Row(
        name="record: free room, least size",
        instead="its share alone",
        seams={"core.compaction:LEAST_RECORD_TOKENS": value(0)},
        measures=VIEW,
    ),
    Row(
        name="record: old history read as far as it can be shown",
        instead="all of it",
        seams={"core.compaction:OLDER_CHARS": value(10**9)},
        measures=("shown", "speed"),
    ),
    Row(name="record: said", seams={"core.notes:record_lines": _only_kinds("done", "seen", "open")}, measures=RECORD),
    Row(name="record: done", seams={"core.notes:record_lines": _only_kinds("said", "seen", "open")}, measures=RECORD),
    Row(name="record: seen", seams={"core.notes:record_lines": _only_kinds("said", "done", "open")}, measures=RECORD),
    Row(name="record: open", seams={"core.notes:record_lines": _only_kinds("said", "done", "seen")}, measures=RECORD),
    Row(name="record: outcomes of calls", seams={"core.notes:_outcome": returning("ok")}, measures=RECORD),
    Row(
        name="record: commands in text are calls",
        seams={"core.notes:_CODE": value(re.compile("(?!)()"))},
        measures=RECORD,
    ),
    Row(
        name="record: pages of large results without frame",
        seams={"core.notes:_found": lambda _: lambda m: _module("core.notes")._text(m.content)},
        measures=RECORD,
    ),
    Row(
        name="record: text of the view is memoized (records read once)",
        seams={"engine:ContextEngine._record": value(lambda _, stored: _module("core.session").valid_record(stored))},
        measures=FAST,
    ),
)


def _trimmed(old: Any, record: Any, free_tokens: int, price: Any) -> Any:
    """Lines that have no room now are gone."""
    module = _module("core.record")
    shown = old(record, free_tokens, price)
    if shown.shown is None:
        return shown
    items = module._merged(record.lines)
    kept = module._chosen(items, module._by_worth(items)[: shown.shown])
    return replace(record, lines=module._joined(kept), shown=None)


# ---- summaries ------------------------------------------------------------------------------------------------------

SUMMARY = ("arena", "own")
SUMMARY_ROWS = (
    Row(
        name="summaries by a model",
        instead="the record alone",
        seams={"summarize.model:as_summarizer": lambda old: lambda _, **named: old(None, **named)},
        measures=SUMMARY,
    ),
    Row(
        name="summary begun ahead of need (prepare .6)",
        instead="at the limit",
        seams={"engine:_goal": with_goal(prepare=1.0)},
        measures=SUMMARY,
    ),
    Row(
        name="background",
        instead="inline",
        seams={"engine:_goal": with_goal(summarize="inline"), "engine:ContextEngine.in_background": returning(False)},
        measures=SUMMARY,
    ),
    Row(
        name="a further summary waits for three rooms (FURTHER_ROOMS)",
        seams={"core.planning:FURTHER_ROOMS": value(0.0)},
        measures=SUMMARY,
    ),
    Row(
        name="a late summary of what had left is shown",
        seams={"core.planning:_shows_more": returning(False)},
        measures=SUMMARY,
    ),
    Row(
        name="a finished summary settles halfway",
        instead="low-water mark",
        seams={"core.compaction:Goal.settles": value(lambda self, priced_view: self.reaches(priced_view))},
        measures=SUMMARY,
    ),
    Row(
        name="summary by extending the last request",
        instead="a call of its own",
        seams={"summarize.model:ModelSummarizer.extending": argument(0)},
        measures=("own",),
    ),
    Row(
        name="given-up guard",
        seams={"core.session:Session.has_given_up": returning(False)},
        measures=("servers", "arena"),
    ),
    Row(
        name="a compaction must free a tenth (MIN_PROGRESS)",
        seams={"core.compaction:MIN_PROGRESS": value(0.0)},
        measures=("servers", "shown", *SUMMARY),
    ),
    Row(name="a summary that is too long is cut", seams={"core.outcome:_accepted": argument(0)}, measures=SUMMARY),
    Row(
        name="summary of messages edited since is refused",
        seams={"core.session:Pending.matches": returning(True)},
        measures=SUMMARY,
    ),
)


# ---- validity -------------------------------------------------------------------------------------------------------

VALID = ("shown", "arena", "conformance", "speed")
VALID_ROWS = (
    Row(
        name="pairing repair",
        instead="sent as it is",
        seams={"core.pairing:is_valid_step": returning(True)},
        measures=VALID,
    ),
    Row(
        name="quick look at valid steps",
        instead="each is repaired",
        seams={"core.pairing:is_valid_step": returning(False)},
        measures=VALID,
    ),
    Row(
        name="call ids used twice are renamed",
        seams={"core.pairing:unique_calls": value(lambda shown, _: tuple(shown))},
        measures=VALID,
    ),
    Row(
        name="rules of the provider",
        instead="those of an unknown one",
        seams={"core.model_info:rules_of": lambda _: lambda *_: _module("core.pairing").UNKNOWN},
        measures=VALID,
    ),
    Row(
        name="blocks of another provider made readable",
        seams={"core.native:readable": argument(0)},
        measures=("arena", "conformance"),
    ),
    Row(
        name="reasoning bound to another prefix is left out (BINDS)",
        seams={"core.priced_view:BINDS": value(frozenset())},
        measures=("shown", "arena", "conformance"),
    ),
    Row(
        name="parts that a provider refuses (sendable)",
        seams={"core.pairing:sendable": argument(0)},
        measures=("arena", "conformance"),
    ),
    Row(
        name="the provider's own compactions",
        seams={"core.native:compaction_in": returning(None)},
        measures=("arena", "conformance"),
    ),
    Row(
        name="breakpoints and cache keys",
        seams={
            "core.provider_call:dressed": lambda _: lambda window, _: window.priced_view.messages(),
            "core.provider_call:call_arguments": value(lambda *_, **__: {}),
        },
        measures=("arena", "conformance"),
    ),
)


# ---- speed ----------------------------------------------------------------------------------------------------------


def _walk(_: Any) -> Any:
    """Show every step of the view each time; prices are remembered."""
    module, turns = _module("core.priced_view"), _module("core.turns")

    def shown(
        self: Any, messages: Any, start: int, view: Any, before: Any, head: Any = None, *, head_tokens: int = 0
    ) -> Any:
        del head, head_tokens
        return turns.Shown.of(module.show_steps(messages, start, view, before, self._price))

    return value(shown)(None)


def _looking_anew(old: Any) -> Any:
    def found(self: Any, *given: Any, **named: Any) -> Any:
        self._known.clear()
        return old(self, *given, **named)

    return found


NO_HEAD = {"core.measuring:_head": returning(None)}
SPEED_ROWS = (
    Row(
        name="memo of prices",
        seams={"util.memo:PerMessage.__call__": value(lambda self, message: self._work_out(message))},
        measures=FAST,
    ),
    Row(
        name="incremental steps (Steps, Head)",
        instead="a walk with a memo of prices",
        seams={"pricing:Steps.__call__": _walk, **NO_HEAD},
        measures=FAST,
    ),
    Row(name="Head (counted part is not shown anew)", seams=NO_HEAD, measures=FAST),
    Row(name="Marks", instead="looked for each time", seams={"pricing:Marks.__call__": _looking_anew}, measures=FAST),
    Row(
        name="Checksums",
        instead="worked out each time",
        seams={"pricing:Checksums.__call__": _looking_anew},
        measures=FAST,
    ),
    Row(
        name="kept windows",
        instead="each node measures",
        seams={"agent.step:Flow.kept_window": returning(None)},
        measures=FAST,
    ),
    Row(
        name="tool sets are remembered",
        seams={
            "pricing:Pricing._tool_set": lambda old: lambda self, tools: (self._tool_sets.clear(), old(self, tools))[1]
        },
        measures=FAST,
    ),
    Row(
        name="rules of models are remembered",
        seams={
            "engine:ContextEngine.rules_of": value(
                lambda self, model: self._rules if model is None else self._read_rules(model)
            )
        },
        measures=FAST,
    ),
)


# ---- recall ---------------------------------------------------------------------------------------------------------


def _lines_only(_: Any) -> Any:
    def spans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        while start < stop:
            end = text.find("\n", start, stop)
            end = stop if end < 0 else end + 1
            while end - start > 600:
                yield start, start + 600
                start += 600
            yield start, end
            start = end

    return spans


def _common_words(_: Any) -> Any:
    """How many of the wanted terms a text has."""

    def scores(texts: Any, owners: Any, query: str) -> list[float]:
        del owners
        text = _module("text")
        wanted = {*text.query_terms(query)}
        return [float(len(wanted.intersection(text.terms(one)))) for one in texts]

    return scores


FIND = ("recall",)
RECALL_ROWS = (
    Row(
        name="recall: ranking by rarity of words and neighbors",
        instead="number of common words",
        seams={"recall:_word_scores": _common_words},
        measures=FIND,
    ),
    Row(name="recall: neighbors", seams={"recall:NEIGHBOR_SHARES": value((0.0, 0.0))}, measures=FIND),
    Row(name="recall: score for its room", seams={"recall:LENGTH_EXPONENT": value(0.0)}, measures=FIND),
    Row(name="recall: parts count less", seams={"recall:PART_SHARE": value(1.0)}, measures=FIND),
    Row(name="text: sentences of prose", instead="lines", seams={"text:statement_spans": _lines_only}, measures=FIND),
    Row(name="text: stems", instead="whole words", seams={"text:_stem": argument(0)}, measures=FIND),
    Row(name="text: common words are left out", seams={"text:_common_terms": returning(frozenset())}, measures=FIND),
    Row(name="text: names in parts", seams={"text:MAX_NAME_PARTS": value(0)}, measures=FIND),
)

ROWS = (*SIZE_ROWS, *VIEW_ROWS, *RECORD_ROWS, *LIMIT_ROWS, *SUMMARY_ROWS, *VALID_ROWS, *SPEED_ROWS, *RECALL_ROWS)
