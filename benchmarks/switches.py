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


def with_settings(**changes: Any) -> StandIn:
    """The parts of a request, with some settings changed."""

    def stand_in(old: Any) -> Any:
        def parts(*given: Any) -> Any:
            made = old(*given)
            return replace(made, settings=made.settings.model_copy(update=changes))

        return parts

    return stand_in


def is_always(result: Any) -> StandIn:
    """A property that has one value."""
    return value(property(lambda _: result))


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
        estimate = _module("core.sizing").SizeEstimate
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


def _without_ratio(_: Any) -> Any:
    def with_span(self: Any, span: Any, last: Any) -> Any:
        sizing = _module("core.sizing")
        spans = sizing.at_most((*self.spans, span), sizing.MAX_SPANS)
        return replace(self, spans=spans, last=last)

    return with_span


SIZE_ROWS = (
    Row(name="spans", seams={"core.sizing:at_most": returning(())}),
    Row(name="ratio", instead="always 1", seams={"core.sizing:Sizes.with_span": _without_ratio}),
    Row(
        name="offset",
        seams={
            "core.sizing:Sizes.with_request": value(
                lambda self, *_, **__: replace(self, reports=self.reports + 1, doubted=None)
            )
        },
    ),
    Row(name="anchor (last reported size)", seams={"core.request:last_report_of": returning(None)}, measures=ALL),
    Row(
        name="margin",
        instead="count taken as it is",
        seams={"core.sizing:Sizes._bounded": _fixed_bound(0.0)},
        measures=ALL,
    ),
    Row(name="margin that narrows", instead="always 5 %", seams={"core.sizing:Sizes._bounded": _fixed_bound(0.05)}),
    Row(
        name="margin that narrows, 2 %",
        instead="always 2 %",
        seams={"core.sizing:Sizes._bounded": _fixed_bound(0.02)},
    ),
    Row(
        name="refusal by the lower of two counts",
        instead="by the lower bound",
        seams={"core.sizing:Sizes.least": value(lambda _, size, *__: size.lower_tokens)},
        measures=SIZES,
    ),
    Row(
        name="doubted reports",
        instead="every number is believed",
        seams={"core.usage:contradicts": returning(False)},
        measures=SIZES,
    ),
    Row(
        name="doubted reports: fallen although the request grew",
        seams={"core.usage:LEAST_SHARE_AFTER_FALL": value(0.0)},
        measures=SIZES,
    ),
    Row(
        name="doubted reports agree",
        instead="a doubted report is never believed",
        seams={"core.usage:agrees": returning(False)},
        measures=SIZES,
    ),
    Row(
        name="reports that stand in the history",
        seams={"core.updates:from_history": value(lambda session, *_: (session, None))},
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
            "core.updates:from_refusal": value(
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

    def cuts(request: Any) -> list[int]:
        last = request.newest_index
        return [step.index for step in request.steps if request.start < step.index <= last and step.messages]

    return cuts


def _without_step_cuts(old: Any) -> Any:
    return {
        need: tuple(tier for tier in tiers if tier.__name__ not in {"cut_large_turn", "cut_steps"})
        for need, tiers in old.items()
    }


def _one_clamp(_: Any) -> Any:
    """Everything but the question and pins is cut to one length, at once; then the question."""
    clamping = _module("core.clamping")

    def clamped(request: Any) -> Any:
        current, pins = clamping.last_user(request.parts.messages), request.parts.pins
        after = clamping._after_cut(lambda candidate: candidate.fits)
        bare = clamping._without_record(request)
        bare = clamping.clamp(bare, lambda index: index != current and index not in pins, after)
        if not bare.likely_fits:
            bare = clamping.clamp(bare, lambda index: index == current, after)
        return clamping._with_account_of(bare, request)

    return clamped


VIEW_ROWS = (
    Row(
        name="turn cuts before step cuts",
        instead="the oldest steps leave, whatever their turn",
        seams={"core.compaction:turn_cuts": _any_step},
        measures=VIEW,
    ),
    Row(name="step cuts inside of the current turn", seams={"core.plan:TIERS": _without_step_cuts}, measures=VIEW),
    Row(
        name="whole_turn_share",
        instead="0",
        seams={"core.request:Request.leaves_turn_whole": is_always(False)},
        measures=VIEW,
    ),
    Row(
        name="clamping kind by kind",
        instead="one clamp of all",
        seams={"core.clamping:clamped_to_fit": _one_clamp},
        measures=VIEW,
    ),
    Row(
        name="a clamped question shrinks once something follows",
        seams={"core.clamping:with_lasting_question": argument(0)},
        measures=VIEW,
    ),
    Row(name="pins are clamped", seams={"core.clamping:with_clamped_pins": argument(0)}, measures=VIEW),
    Row(
        name="cuts end below the limit (CUT_SHARE, RECORDED_SHARE)",
        seams={"core.clamping:CUT_SHARE": value(1.0), "core.compaction:RECORDED_SHARE": value(1.0)},
        measures=VIEW,
    ),
    Row(
        name="the question is cut only when it surely does not fit",
        seams={"core.request:Request.likely_fits": value(property(lambda self: self.fits))},
        measures=VIEW,
    ),
    Row(
        name="the limit as a most likely size",
        instead="the limit",
        seams={"core.request:Request.likely_limit": value(property(lambda self: self.limit))},
        measures=VIEW,
    ),
    Row(
        name="candidate lengths of a clamp 1 % apart",
        instead="20 % apart",
        seams={"core.clamping:CAP_STEP": value(0.8)},
        measures=("shown", "arena", "speed"),
    ),
    Row(name="a pinned question carries its answer", seams={"core.compaction:ANSWER_SHARE": value(0.0)}, measures=VIEW),
    Row(
        name="a pinned question without its answer has a marker",
        seams={"core.pins:looks_open": returning(False)},
        measures=VIEW,
    ),
    Row(
        name="the first user message is pinned",
        seams={"engine:ContextEngine._parts": with_settings(pin_first_user=False)},
        measures=VIEW,
    ),
    Row(
        name="the current user message is pinned in a long turn",
        seams={"core.pins:last_user": returning(None)},
        measures=VIEW,
    ),
    Row(name="new pins on what left", seams={"core.session:with_new_pins": argument(0)}, measures=("arena",)),
    Row(
        name="pictures are left out by number and bytes",
        seams={"core.request:Request._left_out_media": returning(frozenset())},
        measures=("arena", "conformance"),
    ),
    Row(
        name="documented limits of pictures",
        seams={"core.media:provider_limits": lambda _: lambda *_: _module("core.media").NO_LIMITS},
        measures=("arena",),
    ),
    Row(
        name="edits of what left are noticed",
        seams={"core.view:with_checksum": argument(0), "core.history:MessageHistory.checksum_of": returning(0)},
        measures=("arena", "speed"),
    ),
    Row(
        name="record begun anew after edits",
        seams={"core.measuring:with_record_anew": returning(None)},
        measures=("arena",),
    ),
    Row(
        name="clear_tools (an option, here ON for all tools)",
        seams={"engine:ContextEngine._parts": with_settings(clear_tools=Everything())},
        measures=("shown",),
    ),
    Row(
        name="spare_tools (an option, here ON for all tools)",
        seams={"core.parts:Parts.spared_tools": is_always(Everything())},
        measures=VIEW,
    ),
    Row(
        name="show_fill (an option, here ON)",
        seams={"engine:ContextEngine._parts": with_settings(show_fill=True)},
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
        seams={"core.compaction:recorded": lambda old: lambda *a, **k: old(*a, **{**k, "is_first": False})},
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
        seams={"engine:ContextEngine._read_key": value(lambda _, *key: _module("core.session").read_key(*key))},
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
        seams={"engine:ContextEngine._parts": with_settings(prepare=1.0)},
        measures=SUMMARY,
    ),
    Row(
        name="background",
        instead="inline",
        seams={
            "engine:ContextEngine._parts": with_settings(summarize="inline"),
            "engine:ContextEngine.in_background": returning(False),
        },
        measures=SUMMARY,
    ),
    Row(
        name="a further summary waits for three rooms (FURTHER_ROOMS)",
        seams={"core.plan:FURTHER_ROOMS": value(0.0)},
        measures=SUMMARY,
    ),
    Row(
        name="a late summary of what had left is shown",
        seams={"core.plan:_tells_more": returning(False)},
        measures=SUMMARY,
    ),
    Row(
        name="a finished summary settles halfway",
        instead="low-water mark",
        seams={"core.request:Request.is_halfway": value(property(lambda self: self.is_low))},
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
    Row(
        name="a summary that is too long is cut",
        seams={
            "core.updates:_accepted": lambda _: lambda text, plan, *_: plan.after.shown_as(plan.after.view, text),
        },
        measures=SUMMARY,
    ),
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
        seams={"core.request:BINDS": value(frozenset())},
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
            "core.provider_call:dressed": lambda _: lambda window, _: window.assembled(),
            "core.provider_call:call_arguments": value(lambda *_, **__: {}),
        },
        measures=("arena", "conformance"),
    ),
)


# ---- speed ----------------------------------------------------------------------------------------------------------


def _built_anew(old: Any) -> Any:
    return lambda messages, _=None, **named: old(messages, None, **named)


SPEED_ROWS = (
    Row(
        name="memo of prices",
        seams={"util.memo:PerMessage.__call__": value(lambda self, message: self._work_out(message))},
        measures=FAST,
    ),
    Row(
        name="history that is extended",
        instead="built anew with each request",
        seams={"core.history:read_history": _built_anew},
        measures=FAST,
    ),
    Row(
        name="request kept between nodes",
        instead="each node measures",
        seams={"agent.step:AgentStep.take_over": returning(None)},
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

    def scores(words: Any, query: str) -> list[float]:
        wanted = {*_module("text").query_terms(query)}
        return [float(len(wanted.intersection(said))) for said in words]

    return scores


FIND = ("recall",)
RECALL_ROWS = (
    Row(
        name="recall: ranking by rarity of words and neighbors",
        instead="number of common words",
        seams={"recall:_scores": _common_words},
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
