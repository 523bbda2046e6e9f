"""Why the provider's prompt cache missed: by its own word, else by comparing a request with the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.core.events import CacheMissEvent, ChangedPart

LEAST_MISSED_TOKENS = 1_024  # caches begin at this size, and some round down to blocks of it (OpenAI, prompt caching)
LEAST_MISSED_SHARE = 0.1  # of the request before: what follows the last breakpoint of a cache is written each time
STATED: Mapping[str, ChangedPart] = {
    "model_changed": "model",
    "system_changed": "system",
    "tools_changed": "tools",
    "messages_changed": "messages",
}
"""How Anthropic calls what changed (`diagnostics.cache_miss_reason`); its other reasons say that it cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A request that was answered, to be compared with the next one of its conversation."""

    model: str
    tools_digest: str
    messages: Sequence[AnyMessage]
    """All of them, the system message first when there is one."""

    tokens: int
    """Its size, by the provider's own word."""

    cached_tokens: int | None
    """Of them, read from the cache; None where the provider does not say."""

    compactions: int
    """Of the conversation so far."""


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
        >>> sent = SentRequest(
        ...     model="m",
        ...     tools_digest="",
        ...     messages=[],
        ...     tokens=5_000,
        ...     cached_tokens=0,
        ...     compactions=0,
        ... )
        >>> event = cache_miss(sent, None, answer)
        >>> event.changed, event.missed_tokens
        ('tools', 4000)
    """
    diagnostics = _mapping(answer.response_metadata.get("diagnostics"))
    reason = _mapping(diagnostics.get("cache_miss_reason"))
    stated_change = STATED.get(str(reason.get("type")))
    missed = reason.get("cache_missed_input_tokens") if stated_change else None
    if missed is None and before is not None:
        missed = _missed_tokens(sent, before)
    if not missed and not stated_change:
        return None
    return CacheMissEvent(
        model=sent.model,
        changed=stated_change or (_changed_part(sent, before) if before else "nothing"),
        missed_tokens=missed or None,
        is_stated=stated_change is not None,
        is_compacted=before is not None and sent.compactions > before.compactions,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _missed_tokens(sent: SentRequest, before: SentRequest) -> int:
    """Tokens of the request before that were not read from the cache; 0 where they are too few."""
    if sent.cached_tokens is None:
        return 0
    missed = before.tokens - sent.cached_tokens
    least = max(LEAST_MISSED_TOKENS, LEAST_MISSED_SHARE * before.tokens)
    return missed if missed >= least else 0


def _changed_part(sent: SentRequest, before: SentRequest) -> ChangedPart:
    """The first part of the request that changed, in the order in which Anthropic compares them."""
    if sent.model != before.model:
        return "model"
    if _system(sent) != _system(before):
        return "system"
    if sent.tools_digest != before.tools_digest:
        return "tools"
    previous = [*map(_sent_form, before.messages)]
    start = [*map(_sent_form, sent.messages[: len(previous)])]
    return "nothing" if start == previous else "messages"


def _system(request: SentRequest) -> Any:
    """The content of the system message; None without one."""
    first = request.messages[0] if request.messages else None
    return first.content if isinstance(first, SystemMessage) else None


def _sent_form(message: AnyMessage) -> tuple[Any, ...]:
    """The parts of a message that are sent, without the metadata that changes later."""
    calls = message.tool_calls if isinstance(message, AIMessage) else None
    return message.type, message.content, calls
