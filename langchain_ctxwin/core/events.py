"""Events: what happened in a step, one frozen type each; and why a prompt cache missed, as such an event.

They hold sizes, names and reasons, never a message's text. A miss is told by the provider's own word, else by comparing
a request with the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, ClassVar, Literal, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.model_info import ModelInfo, Usage, stop_reasons
from langchain_ctxwin.core.sizing import sent_tokens

Level = Literal["debug", "info", "warning"]
"""How much an event wants to be noticed, in the words of logging."""

LEVELS: Mapping[str, Level] = {
    "context.step": "debug",
    "tool_result.guarded": "debug",
    **dict.fromkeys(
        (
            "context.alert",
            "context.budget_near",
            "context.newest_clamped",
            "context.overflow_recovered",
            "context.reasoning_left_out",
            "context.refused",
            "context.session_mended",
            "context.summary_failed",
            "context.summary_refused",
            "context.usage_ignored",
            "models.changed",
        ),
        "warning",
    ),
}
"""How much events want to be noticed, by name; others are `info`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a conversation.

    `event.name` is what logs and streams call it. `to_dict()` has all fields as JSON values.
    """

    NAME: ClassVar[str] = "context.event"
    """What logs and streams call it; a name may hold fields of the event."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset(
        {"event", "name", "status", "notice", "about", "thread", "time"}
    )
    """What logs and streams show apart, or not at all: a status is in the name, and a run knows its thread."""

    thread: str = ""
    """Thread id of the run; empty outside of one."""

    model: str = ""
    """Name of the model that the request goes to; empty when unknown."""

    time: float = 0.0
    """Seconds since the epoch, when it was reported."""

    quoting: Mapping[str, str] = field(default_factory=dict)
    """What may quote messages, by the name of a fact: it is in no dict, and only the stream of the run shows it."""

    @property
    def name(self) -> str:
        """What logs and streams call it."""
        return self.NAME.format(self)

    @property
    def level(self) -> Level:
        """How much it wants to be noticed."""
        return LEVELS.get(self.name, "info")

    def to_dict(self) -> dict[str, Any]:
        """Return the name and all fields as JSON values; money as text, so that it stays exact."""
        names = (one.name for one in fields(self) if one.name != "quoting")
        values = {name: getattr(self, name) for name in names}
        plain = json.loads(json.dumps(values, default=str))
        return {"event": type(self).__name__, "name": self.name, **plain}

    def facts(self) -> dict[str, Any]:
        """Return what is known of this kind of event, as logs and streams show it."""
        values = self.to_dict()
        return {
            name: value
            for name, value in (values | values.get("about", {})).items()
            if name not in self.HIDDEN and value not in (None, "")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent(Event):
    """A model answered: what its request held, and what it came to."""

    NAME = "context.step"

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
    """Our count of the request."""

    reported_tokens: int | None = None
    """Input tokens by the provider's own word, with what it cleared itself; None for a request that it compacted."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    """Parts of the input that were read from the provider's prompt cache, and written to it."""

    output_tokens: int | None = None
    cost: Decimal | None = None
    """USD of the call by the model's prices; None when a price or the usage is unknown."""

    duration_seconds: float | None = None
    """Time from the first call of the model to the answer."""

    calls: int = 1
    """Calls of the model: one, and one for each recovery."""

    compactions: int = 0
    """Of the conversation so far."""

    finish_reason: str = ""
    tools_offered: tuple[str, ...] = ()
    tools_called: tuple[str, ...] = ()
    route: Mapping[str, Any] = field(default_factory=dict)
    """Why a routed model chose this candidate, as the metadata of the answer state it; empty without a router."""

    quality: float | None = None
    """A score of the answer from 0 to 1, where somebody has one: `dataclasses.replace(event, quality=0.8)`."""

    @classmethod
    def of_answer(
        cls, answer: AIMessage, *, info: ModelInfo | None, **request: Any
    ) -> StepEvent:
        """Return the event of an answer.

        Args:
            answer: what the model answered, with the usage that its provider reports.
            info: the prices of the model; None when they are unknown.
            **request: the fields that are known of its request.
        """
        usage = Usage.of_answer(answer)
        metadata = answer.response_metadata
        provider = metadata.get("model_provider") or (info.provider if info else "")
        route = metadata.get("route")
        return cls(
            provider=provider if isinstance(provider, str) else "",
            answer_id=answer.id or "",
            reported_tokens=sent_tokens(answer),
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost(info),
            finish_reason=next(iter(stop_reasons(answer)), ""),
            tools_called=tuple(call["name"] for call in answer.tool_calls),
            route=route if isinstance(route, Mapping) else {},
            **request,
        )

    @property
    def input_tokens(self) -> int | None:
        """Size of the request: as reported, else as counted."""
        return (
            self.estimated_tokens
            if self.reported_tokens is None
            else self.reported_tokens
        )

    @property
    def utilization(self) -> float | None:
        """The request over its input limit."""
        if self.input_tokens is None or not self.input_limit:
            return None
        return self.input_tokens / self.input_limit

    @property
    def accuracy(self) -> float | None:
        """One minus the share by which our count missed the reported size; 0 at the least."""
        if self.estimated_tokens is None or not self.reported_tokens:
            return None
        return max(
            0.0,
            1
            - abs(self.estimated_tokens - self.reported_tokens) / self.reported_tokens,
        )

    @property
    def new_tokens(self) -> int | None:
        """Reported input that was neither read from the cache nor written to it."""
        if self.reported_tokens is None:
            return None
        return max(
            0,
            self.reported_tokens
            - (self.cached_tokens or 0)
            - (self.cache_write_tokens or 0),
        )

    @property
    def unused_reserve_tokens(self) -> int | None:
        """Tokens that were kept free for the answer, and that it did not take."""
        if self.reserved_tokens is None or self.output_tokens is None:
            return None
        return max(0, self.reserved_tokens - self.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEvent(Event):
    """A compaction happened."""

    NAME = "context.compacted"
    kind: str = ""
    """`summarize` when a summary was written for it, `force` when no model was called."""

    reason: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    """Input tokens of the request before and after it."""

    input_limit: int | None = None
    duration_seconds: float | None = None
    left_messages: int = 0
    compactions: int = 0
    """Of the conversation so far, this one included; `quoting` has the summary that is shown from now on."""


ChangedPart = Literal["model", "system", "tools", "messages", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMissEvent(Event):
    """A part of the request before was not read from the provider's prompt cache, although it could have been.

    What a compaction explains is not told.
    """

    NAME = "context.cache_missed"
    changed: ChangedPart = "nothing"
    """The first part that differs from the request before; of `nothing` the cache had expired, or was passed by."""

    missed_tokens: int | None = None
    """Input that would have been read from the cache; None where nobody says."""


SummaryStatus = Literal["started", "ready", "failed", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEvent(Event):
    """Something became of a summary; its name is `context.summary_started`, and so on."""

    NAME = "context.summary_{0.status}"
    status: SummaryStatus
    """`refused` is one that failed or would not have made the request smaller."""

    compactions: int = 0
    """Number of the compaction that it is for."""

    reason: str = ""
    """Why, without what others wrote; their own words are in `quoting`."""

    unsupported: int = 0
    """Values in it (numbers, addresses, names of files) that stand nowhere in the conversation: it is shown with a mark
    behind each; `quoting` has them."""

    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    """USD, by the prices of the summarizer's model; None when they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowEvent(Event):
    """A request was too large: a smaller one follows, or one that asks for less output, or the step failed."""

    NAME = "context.refused"

    attempt: int = 0
    """Number of the refused call, where another one follows; 0 when the step failed."""

    reason: str = ""
    """Name of the error that left the step."""

    total_tokens: int | None = None
    input_limit: int | None = None
    """Size of the request and its limit, by our count."""

    stated_tokens: int | None = None
    stated_limit: int | None = None
    """Size and limit in the provider's words."""

    output_tokens: int | None = None
    """What is asked for from now on; None when the request gets smaller instead."""

    @property
    def is_recovered(self) -> bool:
        """Whether another call follows."""
        return self.attempt > 0

    @property
    def name(self) -> str:
        """What became of it."""
        return "context.overflow_recovered" if self.is_recovered else self.NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultEvent(Event):
    """A guard saw the result of a tool; one that it reduced has a name of its own, because logs show it."""

    NAME = "tool_result.guarded"
    tool: str = ""
    tokens: int | None = None
    """Size of the whole result, as it was counted."""

    shown_tokens: int | None = None
    """Size of what is shown, where it was reduced."""

    is_oversized: bool = False
    is_reduced: bool = False
    """True for one of which a part is shown, also because its fields were chosen."""

    @property
    def name(self) -> str:
        """What logs and streams call it."""
        return "tool_result.reduced" if self.is_reduced else self.NAME


Notice = Literal[
    "usage_ignored",
    "session_mended",
    "reasoning_left_out",
    "newest_clamped",
    "compaction_undone",
    "budget_near",
]
"""A reported size could not be used; stored state was not as this package
writes it; a provider refused reasoning that is tied to another prefix; the current
user message or the newest results were cut to what fits; the host took the latest compaction back; a thread spent most
of what it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeEvent(Event):
    """Something that an operator may want to look at; its name is `context.usage_ignored`, and so on."""

    NAME = "context.{0.notice}"
    notice: Notice
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChangeEvent(Event):
    """A source states another limit or price of a model than before."""

    NAME = "models.changed"
    field: str = ""
    """Name of the field of `ModelInfo`."""

    before: str = ""
    after: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent(Event):
    """A measure passed its threshold, or is back within it; about one conversation, one model, or all of them."""

    NAME = "context.alert"
    HIDDEN = Event.HIDDEN - {"thread"}
    alert: str = ""
    """Name of the threshold in the configuration."""

    value: float | None = None
    threshold: float | None = None
    is_cleared: bool = False
    detail: str = ""
    """What the value is of, in a few words."""


TYPES: tuple[type[Event], ...] = (
    AlertEvent,
    CacheMissEvent,
    CompactionEvent,
    ModelChangeEvent,
    NoticeEvent,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)
"""All types of events; `to_dict` states the name of its type as `event`."""


LEAST_MISSED_TOKENS = 1_024  # caches begin at this size, and some round down to blocks of it (OpenAI, prompt caching)
LEAST_MISSED_SHARE = 0.1  # of the request before: what follows the last breakpoint of a cache is written each time
STATED: Mapping[str, ChangedPart] = {
    "model_changed": "model",
    "system_changed": "system",
    "tools_changed": "tools",
    "messages_changed": "messages",
}
"""How Anthropic calls what changed (`diagnostics.cache_miss_reason`); its other reasons say that it cannot tell."""


class SentRequest(NamedTuple):
    """A request that was answered, to be compared with the next one of its conversation."""

    event: StepEvent
    """What was told of it."""

    tools_digest: str
    messages: Sequence[AnyMessage]
    """All of them, the system message first when there is one."""


def cache_miss(
    sent: SentRequest, before: SentRequest | None, answer: AIMessage
) -> CacheMissEvent | None:
    """Return the event for a request of which a part was not read from the cache; None where that is not worth a word.

    Args:
        sent: the answered request.
        before: the one before it in its conversation, where that is known.
        answer: may say by itself what changed.

    Examples:
        >>> reason = {"type": "tools_changed", "cache_missed_input_tokens": 4_000}
        >>> answer = AIMessage(
        ...     "", response_metadata={"diagnostics": {"cache_miss_reason": reason}}
        ... )
        >>> event = cache_miss(SentRequest(StepEvent(), "", []), None, answer)
        >>> event.changed, event.missed_tokens
        ('tools', 4000)
    """
    diagnostics = answer.response_metadata.get("diagnostics") or {}
    reason = diagnostics.get("cache_miss_reason") or {}
    changed = STATED.get(str(reason.get("type")))
    missed = reason.get("cache_missed_input_tokens")
    if before is not None:
        if sent.event.compactions > before.event.compactions:
            return None
        tokens, cached = before.event.reported_tokens or 0, sent.event.cached_tokens
        least = max(LEAST_MISSED_TOKENS, LEAST_MISSED_SHARE * tokens)
        if changed is None and cached is not None and tokens - cached >= least:
            changed, missed = _changed_part(sent, before), tokens - cached
    if changed is None:
        return None
    return CacheMissEvent(
        model=sent.event.model,
        changed=changed,
        missed_tokens=missed,
    )


def _changed_part(sent: SentRequest, before: SentRequest) -> ChangedPart:
    """The first part of the request that changed, in the order in which Anthropic compares them."""
    if sent.event.model != before.event.model:
        return "model"
    old_system, *previous = _sent_forms(before)
    system, *forms = _sent_forms(sent)
    if system != old_system:
        return "system"
    if sent.tools_digest != before.tools_digest:
        return "tools"
    return "nothing" if forms[: len(previous)] == previous else "messages"


def _sent_forms(sent: SentRequest) -> list[Any]:
    """What is sent of the messages, without the metadata that changes later; first the prompt, None without one."""
    forms = [(m.type, m.content, getattr(m, "tool_calls", 0)) for m in sent.messages]
    return forms if forms and forms[0][0] == "system" else [None, *forms]
