"""Events: what happened in a step, one frozen type each. They hold sizes, names and reasons, never a message's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, ClassVar, Literal, Self, get_args

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.calibration import cleared_tokens
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.native import compaction_in
from langchain_ctxwin.core.spending import Usage, amount_of

Level = Literal["debug", "info", "warning"]
"""How much an event wants to be noticed, in the words of logging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a conversation.

    `str(event.name)` is what logs and streams call it. `to_dict()` has all fields as JSON values.
    """

    NAME: ClassVar[str] = "context.event"
    LEVEL: ClassVar[Level] = "info"
    DERIVED: ClassVar[tuple[str, ...]] = ()
    """Properties that `to_dict` holds beside the fields."""

    thread: str = ""
    """Thread id of the run; empty outside of one."""

    model: str = ""
    """Name of the model that the request goes to; empty when unknown."""

    time: float = 0.0
    """Seconds since the epoch, when it was reported."""

    @property
    def name(self) -> str:
        """What logs and streams call it."""
        return self.NAME

    @property
    def level(self) -> Level:
        """How much it wants to be noticed."""
        return self.LEVEL

    def facts(self) -> dict[str, Any]:
        """Return what belongs to this kind of event alone, as JSON values; money as text, so that it stays exact."""
        own = [one.name for one in fields(self) if one.name not in {"thread", "model", "time"}]
        return {name: as_json(getattr(self, name)) for name in (*own, *self.DERIVED)}

    def told(self) -> dict[str, Any]:
        """Return what a log of the run says, where thread and time are known: the model and what else is known."""
        facts = {"model": self.model, **self.facts()} if self.model else self.facts()
        return {name: value for name, value in facts.items() if value is not None}

    def quoted(self) -> Mapping[str, str]:
        """Return what may quote messages: only the stream of the run shows it, in the place of what has its name."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the name and all fields as JSON values."""
        return {"name": self.name, "thread": self.thread, "model": self.model, "time": self.time, **self.facts()}

    def reported(self, *, thread: str, time: float) -> Self:
        """Return it with what only the one who reports it knows, where it is not stated."""
        return replace(self, thread=self.thread or thread, time=self.time or time)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent(Event):
    """A model answered: what its request held, and what it came to."""

    NAME: ClassVar[str] = "context.step"
    LEVEL: ClassVar[Level] = "debug"
    DERIVED: ClassVar[tuple[str, ...]] = (
        *("utilization", "window_utilization", "accuracy", "new_tokens", "unused_reserve_tokens", "tools_missing"),
    )

    provider: str = ""
    """Who serves the model; empty when unknown."""

    answer_id: str = ""
    """Id of the answer, by which somebody may give it a score later."""

    regions: Mapping[str, int] = field(default_factory=dict)
    """Input tokens of `system`, `tools`, `summary`, `pinned` and `history`."""

    input_limit: int | None = None
    context_window: int | None = None
    reserved_tokens: int | None = None
    """Kept free for the answer."""

    estimated_tokens: int | None = None
    plain_tokens: int | None = None
    """Our counts of the request: from the size that was reported last, where there is one, and by the counter alone."""

    counted_by: str = ""
    reported_tokens: int | None = None
    """Input tokens by the provider's own word, with what it cleared itself; None for a request that it compacted."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    """Parts of the input that were read from the provider's prompt cache, and written to it."""

    output_tokens: int | None = None
    cost: Decimal | None = None
    uncached_cost: Decimal | None = None
    """USD of the call by the model's prices, as it was and where nothing is cached; None when a price or the usage is
    unknown."""

    duration_seconds: float | None = None
    """Time from the first call of the model to the answer."""

    calls: int = 1
    """Calls of the model: one, and one for each recovery."""

    compactions: int = 0
    """Of the conversation so far."""

    finish_reason: str = ""
    tools_available: int = 0
    """Tools that the agent has, deferred ones included."""

    tools_offered: tuple[str, ...] = ()
    tools_called: tuple[str, ...] = ()
    quality: float | None = None
    """A score of the answer from 0 to 1, where somebody has one: `dataclasses.replace(event, quality=0.8)`."""

    @classmethod
    def of_answer(cls, answer: AIMessage, *, info: ModelInfo | None, **request: Any) -> StepEvent:
        """Return the event of an answer.

        Args:
            answer: what the model answered, with the usage that its provider reports.
            info: the prices of the model; None when they are unknown.
            **request: the fields that are known of its request.
        """
        usage = Usage.of_answer(answer)
        provider = answer.response_metadata.get("model_provider") or (info.provider if info else "")
        is_known = usage.input_tokens and not compaction_in(answer)
        return cls(
            provider=provider if isinstance(provider, str) else "",
            answer_id=answer.id or "",
            reported_tokens=(usage.input_tokens or 0) + cleared_tokens(answer) if is_known else None,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost(info),
            uncached_cost=usage.uncached().cost(info),
            finish_reason=finish_reason_of(answer.response_metadata),
            tools_called=tuple(call["name"] for call in answer.tool_calls),
            **request,
        )

    @property
    def input_tokens(self) -> int | None:
        """Size of the request: as reported, else as counted."""
        return self.estimated_tokens if self.reported_tokens is None else self.reported_tokens

    @property
    def utilization(self) -> float | None:
        """The request over its input limit."""
        return _ratio(self.input_tokens, self.input_limit)

    @property
    def window_utilization(self) -> float | None:
        """The request over the whole context window, the room of the answer included."""
        return _ratio(self.input_tokens, self.context_window)

    @property
    def miss(self) -> float | None:
        """The share of the reported size by which our count missed it."""
        if self.estimated_tokens is None or not self.reported_tokens:
            return None
        return abs(self.estimated_tokens - self.reported_tokens) / self.reported_tokens

    @property
    def accuracy(self) -> float | None:
        """One minus the share by which our count missed the reported size; 0 at the least."""
        return None if self.miss is None else max(0.0, 1 - self.miss)

    @property
    def cache_saved(self) -> Decimal | None:
        """USD that caching saved; below 0 where writing cost more than reading saved."""
        return None if self.cost is None or self.uncached_cost is None else self.uncached_cost - self.cost

    @property
    def new_tokens(self) -> int | None:
        """Reported input that was neither read from the cache nor written to it."""
        if self.reported_tokens is None:
            return None
        return max(0, self.reported_tokens - (self.cached_tokens or 0) - (self.cache_write_tokens or 0))

    @property
    def unused_reserve_tokens(self) -> int | None:
        """Tokens that were kept free for the answer, and that it did not take."""
        if self.reserved_tokens is None or self.output_tokens is None:
            return None
        return max(0, self.reserved_tokens - self.output_tokens)

    @property
    def tools_missing(self) -> tuple[str, ...]:
        """Tools that the answer calls although they were not offered."""
        return tuple(name for name in self.tools_called if name not in self.tools_offered)


def finish_reason_of(metadata: Mapping[str, Any]) -> str:
    """Return why an answer ended, by its `response_metadata`; empty when they do not say."""
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API says nothing else of an answer cut off
    said = [metadata.get("finish_reason"), metadata.get("stop_reason")]
    said.append(incomplete.get("reason") if isinstance(incomplete, Mapping) else None)
    return next((reason for reason in said if isinstance(reason, str) and reason), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEvent(Event):
    """A compaction happened."""

    NAME: ClassVar[str] = "context.compacted"
    kind: str = ""
    """`summarize` when a summary was written for it, `force` when no model was called."""

    reason: str = ""
    actions: tuple[str, ...] = ()
    # Input tokens of the request before and after it.
    tokens_before: int = 0
    tokens_after: int = 0
    """Input tokens of the request before and after it."""

    input_limit: int | None = None
    duration_seconds: float | None = None
    left_messages: int = 0
    left_results: int = 0
    # USD that it costs once, because the prompt cache is written anew, and that it saves with each call that follows;
    # None where a price is unknown. The first over the second are the calls after which it has paid for itself.
    once_cost: Decimal | None = None
    saved_cost: Decimal | None = None
    """USD that it costs once, because the prompt cache is written anew, and that it saves with each call that follows;
    None where a price is unknown. The first over the second are the calls after which it has paid for itself."""

    unused_results: int = 0
    """Results that left and that nothing was taken from: no identifier in them occurs in a later message of the
    agent."""


SummaryStatus = Literal["started", "ready", "failed", "lost", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEvent(Event):
    """Something became of a summary; its name is `context.summary_started`, and so on."""

    status: SummaryStatus
    """`refused` is one that failed or would not have made the request smaller; of `lost` the process is gone."""

    key: str = ""
    """Names the piece of work, from `started` to its end."""

    reason: str = ""
    """Why, without what others wrote."""

    detail: str = ""
    """Why, with the words of the summarizer's own error, which may quote messages: only the stream of the run shows
    it, in the place of the reason."""

    messages: int | None = None
    """Messages that it covers."""

    seconds: float | None = None
    calls: int | None = None
    """Model calls that it took, failed ones included."""

    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    """USD, by the prices of the summarizer's model; None when they are unknown."""

    @property
    def name(self) -> str:
        """What became of it."""
        return f"context.summary_{self.status}"

    @property
    def level(self) -> Level:
        """What failed is a warning."""
        return "info" if self.status in {"started", "ready"} else "warning"

    def facts(self) -> dict[str, Any]:
        """Return what is known of it."""
        facts = {name: value for name, value in Event.facts(self).items() if name != "detail"}
        return {name: value for name, value in facts.items() if value not in {None, ""}}

    def told(self) -> dict[str, Any]:
        """Return what a log of the run says."""
        facts = Event.told(self)
        del facts["status"]  # it is in the name
        return facts

    def quoted(self) -> Mapping[str, str]:
        """Return the whole reason."""
        return {"reason": self.detail} if self.detail not in {"", self.reason} else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryEvent(Event):
    """A provider refused a request as too large; a smaller one follows, or one that asks for less output."""

    NAME: ClassVar[str] = "context.overflow_recovered"
    LEVEL: ClassVar[Level] = "warning"
    attempt: int = 1
    estimated_tokens: int | None = None
    # Size and limit in the provider's words.
    stated_tokens: int | None = None
    stated_limit: int | None = None
    """Size and limit in the provider's words."""

    output_tokens: int | None = None
    """What is asked for from now on; None when the request gets smaller instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalEvent(Event):
    """A request was not sent, or not answered, because it cannot be made to fit."""

    NAME: ClassVar[str] = "context.refused"
    LEVEL: ClassVar[Level] = "warning"
    reason: str = ""
    """Name of the error that left the step."""

    total_tokens: int | None = None
    input_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEvent(Event):
    """A conversation goes to another candidate from now on, or a routed model answered; `model` is who it is.

    A full conversation that stays where it is has a name of its own, and so has an answer.
    """

    NAME: ClassVar[str] = "context.model_chosen"
    KEPT: ClassVar[str] = "context.model_kept"
    ANSWERED: ClassVar[str] = "context.routed"
    before: str = ""
    """The candidate before; empty at first."""

    reason: str = ""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Every other candidate, and why it was not taken."""

    fallbacks: tuple[str, ...] = ()
    """Candidates that failed before this one answered, and how."""

    estimated_tokens: int | None = None
    # USD of the call as it was estimated for the choice, and at the cheapest candidate that would have taken it.
    estimated_cost: Decimal | None = None
    cheapest_cost: Decimal | None = None
    """USD of the call as it was estimated for the choice, and at the cheapest candidate that would have taken it."""

    # Where the conversation was full: USD of so many coming calls, compacted at the candidate before, or whole at
    # `model` or the one that it did not move to. See `RoutingConfig.when_full`.
    compact_cost: Decimal | None = None
    move_cost: Decimal | None = None
    coming_calls: int | None = None
    has_answered: bool = False
    """True when it stands for one answer of a routed model, False when it is a change of candidate."""

    @property
    def name(self) -> str:
        """What logs and streams call it."""
        if self.has_answered:
            return self.ANSWERED
        return self.KEPT if self.model == self.before else self.NAME

    @property
    def level(self) -> Level:
        """Every answer of a routed model is one: to be looked for."""
        return "debug" if self.has_answered else "info"

    @classmethod
    def of_answer(cls, route: Mapping[str, Any], *, before: str = "") -> RouteEvent:
        """Return the event of an answer, from the `route` in its metadata; what is not as it should be is unknown."""
        rejected, tokens = route.get("rejected"), route.get("estimated_tokens")
        return cls(
            model=str(route.get("model") or ""),
            before=before,
            reason=str(route.get("reason") or ""),
            rejected=rejected if isinstance(rejected, Mapping) else {},
            fallbacks=tuple(map(str, route.get("fallbacks") or ())),
            estimated_tokens=tokens if isinstance(tokens, int) else None,
            estimated_cost=amount_of(route.get("estimated_cost")),
            cheapest_cost=amount_of(route.get("cheapest_cost")),
            has_answered=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsEvent(Event):
    """The set of tools in the requests of a conversation changed."""

    NAME: ClassVar[str] = "context.tools_chosen"
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    tokens: int = 0
    deferred: int = 0
    """Tools that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultEvent(Event):
    """A guard saw the result of a tool; one that it reduced has a name of its own, because logs show it."""

    NAME: ClassVar[str] = "tool_result.guarded"
    REDUCED: ClassVar[str] = "tool_result.reduced"
    tool: str = ""
    # Size of the whole result, as it was counted, and what it may take.
    tokens: int | None = None
    budget_tokens: int | None = None
    """Size of the whole result, as it was counted, and what it may take."""

    shown_tokens: int | None = None
    # Length of the whole, as printed, and of what is shown, where it was reduced.
    chars: int | None = None
    shown_chars: int | None = None
    """Length of the whole, as printed, and of what is shown, where it was reduced."""

    is_oversized: bool = False
    is_reduced: bool = False
    """True for one of which a part is shown, also because its fields were chosen."""

    is_stored: bool = False
    """Whether the whole of it can be read page by page."""

    @property
    def name(self) -> str:
        """What logs and streams call it."""
        return self.REDUCED if self.is_reduced else self.NAME

    @property
    def level(self) -> Level:
        """A result that fits is nothing to be told."""
        return "info" if self.is_reduced else "debug"


OTHER = "other"
"""The name of a tool that the agent does not have, and of any label that is one too many."""

Notice = Literal[
    "usage_ignored", "calibration_reset", "session_mended", "compaction_stopped", "reasoning_left_out", "newest_clamped"
]
"""A reported size could not be used; what was learned about sizes is forgotten; stored state was not as this package
writes it; no summary is tried any more; a provider refused reasoning that is tied to another prefix; the current
user message or the newest results were cut to what fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeEvent(Event):
    """Something that an operator may want to look at; its name is `context.usage_ignored`, and so on."""

    LEVEL: ClassVar[Level] = "warning"
    notice: Notice
    about: Mapping[str, Any] = field(default_factory=dict)
    quoting: Mapping[str, str] = field(default_factory=dict)
    """What may quote messages: only the stream of the run shows it."""

    @property
    def name(self) -> str:
        """What is noticed."""
        return f"context.{self.notice}"

    def facts(self) -> dict[str, Any]:
        """Return what it is about."""
        return {name: as_json(value) for name, value in self.about.items()}

    def quoted(self) -> Mapping[str, str]:
        """Return what may quote messages."""
        return self.quoting


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChangeEvent(Event):
    """A source states another limit or price of a model than before."""

    NAME: ClassVar[str] = "models.changed"
    LEVEL: ClassVar[Level] = "warning"
    field: str = ""
    """Name of the field of `ModelInfo`."""

    before: str = ""
    after: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent(Event):
    """A measure passed its threshold; it is told once until it is back within it.

    The one that clears it has the same name, thread, model and detail; its value is None when it is measured no more.
    """

    NAME: ClassVar[str] = "context.alert"
    alert: str = ""
    """Name of the threshold in the configuration."""

    value: float | None = None
    threshold: float | None = None
    is_cleared: bool = False
    detail: str = ""
    """What the value is of, in a few words."""

    @property
    def level(self) -> Level:
        """One that is over is good news."""
        return "info" if self.is_cleared else "warning"

    def told(self) -> dict[str, Any]:
        """Return what a log says, with the thread: it is read by somebody who looks at no run."""
        return {"thread": self.thread, **Event.told(self)} if self.thread else Event.told(self)

    def reported(self, *, thread: str, time: float) -> Self:  # noqa: ARG002  # the signature of all events
        """Return it with the time; one that is about several conversations stays without a thread."""
        return replace(self, time=self.time or time)


_NAMED = (AlertEvent, CompactionEvent, ModelChangeEvent, RecoveryEvent, RefusalEvent, RouteEvent, StepEvent, ToolsEvent)
KINDS: Mapping[str, type[Event]] = {
    **{kind.NAME: kind for kind in _NAMED},
    **dict.fromkeys((RouteEvent.KEPT, RouteEvent.ANSWERED), RouteEvent),
    **dict.fromkeys((ToolResultEvent.NAME, ToolResultEvent.REDUCED), ToolResultEvent),
    **{f"context.summary_{status}": SummaryEvent for status in get_args(SummaryStatus)},
    **{f"context.{notice}": NoticeEvent for notice in get_args(Notice)},
}
"""The type of an event by its name."""


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def as_json(value: Any) -> Any:
    """Return plain JSON values; money as text, so that it stays exact."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(one) for one in value]
    return value
