"""Why the provider's prompt cache missed: by its own word, else by comparing a request with the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage

ChangedPart = Literal["model", "system", "tools", "messages", "nothing"]

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
    system: Any
    """Content of the system message; None without one."""

    messages: Sequence[AnyMessage]
    """All the others."""

    tokens: int
    """Its size, by the provider's own word."""

    compactions: int
    """Of the conversation so far."""

    def changed_since(self, before: SentRequest) -> ChangedPart:
        """Return the first part that is no longer what it was, in the order in which Anthropic looks at them."""
        if self.model != before.model:
            return "model"
        if self.system != before.system:
            return "system"
        if self.tools_digest != before.tools_digest:
            return "tools"
        start = [*map(_sent_form, self.messages[: len(before.messages)])]
        return "nothing" if start == [*map(_sent_form, before.messages)] else "messages"

    def missed_tokens(self, before: SentRequest, cached_tokens: int | None) -> int:
        """Return the tokens of the request before that were not read from the cache; 0 where none is worth a word.

        Nothing is known of a provider that reports no cached tokens (None).
        """
        missed = before.tokens - (
            before.tokens if cached_tokens is None else cached_tokens
        )
        return (
            missed
            if missed >= max(LEAST_MISSED_TOKENS, LEAST_MISSED_SHARE * before.tokens)
            else 0
        )


def stated_miss(answer: AIMessage) -> tuple[ChangedPart, int | None] | None:
    """Return what changed and how many tokens missed, where the provider says so.

    Examples:
        >>> reason = {"type": "tools_changed", "cache_missed_input_tokens": 4_000}
        >>> stated_miss(
        ...     AIMessage(
        ...         "", response_metadata={"diagnostics": {"cache_miss_reason": reason}}
        ...     )
        ... )
        ('tools', 4000)
    """
    diagnostics = answer.response_metadata.get("diagnostics")
    reason = (
        diagnostics.get("cache_miss_reason")
        if isinstance(diagnostics, Mapping)
        else None
    )
    if not isinstance(reason, Mapping) or str(reason.get("type")) not in STATED:
        return None
    tokens = reason.get("cache_missed_input_tokens")
    return STATED[reason["type"]], tokens if isinstance(tokens, int) else None


def _sent_form(message: AnyMessage) -> tuple[Any, ...]:
    """What of a message is sent, whatever was learned of it since."""
    calls = message.tool_calls if isinstance(message, AIMessage) else None
    return message.type, message.content, calls
