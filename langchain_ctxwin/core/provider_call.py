"""What a request tells its provider: where its prompt cache ends, where its history begins anew, when it may compact.

dressed(window)         the messages, with breakpoints, and without the response ids of what was compacted since
call_arguments(window)  the arguments of the call: newest breakpoint, cache key, the provider's own compaction
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.caching import cache_key, tail_argument, with_breakpoints, without_breakpoints
from langchain_ctxwin.core.compaction import portion
from langchain_ctxwin.core.edits import COMPACTION_TYPE
from langchain_ctxwin.core.model_families import rules_of
from langchain_ctxwin.core.native import readable
from langchain_ctxwin.core.window import Window

PromptCache = Literal["5m", "1h", "off"]

MINUTES = {"type": "ephemeral"}
"""A breakpoint that Anthropic keeps for five minutes from its last use."""

LEAST_COMPACTED_TOKENS = {"anthropic": 50_000, "openai": 1_000}
"""Smallest input that a provider compacts itself (Anthropic, compaction guide; OpenAI, compaction guide)."""

COMPACT_EDIT, COMPACT_BETA = "compact_20260112", "compact-2026-01-12"
"""Anthropic's own compaction: the edit to ask for, and the feature header that its API wants with it."""

RESPONSE_ID = "id"
"""Where answers of the Responses API keep the id that the server's history goes on from."""

FORGOTTEN = "previous_response_not_found"
"""OpenAI's code for an id that its server no longer has."""


def dressed(window: Window, prompt_cache: PromptCache) -> list[AnyMessage]:
    """Return the request as its provider wants it, in copies.

    Raises:
        ConfigError: tools and system prompt have more breakpoints than a request may have.
    """
    messages, rules = window.priced_view.messages(), window.request.rules
    if rules.provider == "anthropic" and prompt_cache != "off":
        # What is kept for an hour is what stays; the newest message is read again within minutes, or not at all.
        mark = MINUTES if prompt_cache == "5m" else {**MINUTES, "ttl": prompt_cache}
        messages = with_breakpoints(messages, window.about.tools, mark)
    if rules.keeps_history and window.session.since and window.session.compactions:
        messages = begun_anew(messages, _answered_before(window, window.session.since.index))
    return messages


def shown_to(model: object, messages: Sequence[Any]) -> list[Any]:
    """Return a request as the provider of a model takes it, which may not be the one that it was made for.

    Blocks that only their maker reads become text, and breakpoints of Anthropic's cache are for Anthropic.
    """
    provider = rules_of(model).provider
    shown = [readable(message, provider) for message in messages]
    return shown if provider in {"", "anthropic"} else [without_breakpoints(message) for message in shown]


def call_arguments(
    window: Window,
    messages: Sequence[AnyMessage],
    prompt_cache: PromptCache,
    *,
    conversation: str = "",
    given: Mapping[str, Any] | None = None,
    is_native: bool = False,
) -> dict[str, Any]:
    """Return the arguments that go along with a request.

    Args:
        window: the request as measured.
        messages: the request as it is sent.
        prompt_cache: how long Anthropic's cache keeps prompt and pins; "off" says nothing to any cache.
        conversation: name of the conversation, for the key of OpenAI's cache; empty sends none.
        given: arguments that the model was set to; they are not replaced.
        is_native: let the provider compact, where it can.
    """
    provider, known = window.request.rules.provider, {key for key, value in (given or {}).items() if value is not None}
    arguments: dict[str, Any] = {}
    if provider == "anthropic" and prompt_cache != "off":
        arguments |= tail_argument(messages, window.about.tools, MINUTES)
    if window.request.rules.takes_cache_key and prompt_cache != "off" and conversation:
        arguments["prompt_cache_key"] = cache_key(conversation)
    arguments = {name: value for name, value in arguments.items() if name not in known}
    if is_native and compacts_itself(window):
        arguments |= _compacting(window, given or {})
    return arguments


def compacts_itself(window: Window) -> bool:
    """True when the provider of a request can compact it before it is too large."""
    least = LEAST_COMPACTED_TOKENS.get(window.request.rules.provider)
    return least is not None and least <= _threshold(window)


def forgets_history(error: BaseException) -> bool:
    """True for the refusal of an id that the server's history was to go on from."""
    body = getattr(error, "body", None)
    codes = (getattr(error, "code", None), body.get("code") if isinstance(body, Mapping) else None)
    return FORGOTTEN in codes


def begun_anew(messages: Sequence[AnyMessage], old: set[str] | None = None) -> list[AnyMessage]:
    """Return the request without these response ids, or without any: so that its messages are sent, not named."""

    def is_old(message: AnyMessage) -> bool:
        name = message.response_metadata.get(RESPONSE_ID) if isinstance(message, AIMessage) else None
        return name is not None and (old is None or name in old)

    return [_without_response_id(message) if is_old(message) else message for message in messages]


def _without_response_id(message: AnyMessage) -> AnyMessage:
    kept = {key: value for key, value in message.response_metadata.items() if key != RESPONSE_ID}
    return message.model_copy(update={"response_metadata": kept})


def _answered_before(window: Window, last: int) -> set[str]:
    """The response ids of the answers up to the latest compaction: the server's history with them is another one."""
    view, history = window.session.view, window.request.messages
    shown = [*(position.index for position in view.pinned), *range(window.request.start_of(view), last + 1)]
    found = (history[index] for index in shown if index < len(history))
    return {str(message.response_metadata.get(RESPONSE_ID)) for message in found if isinstance(message, AIMessage)}


def _threshold(window: Window) -> int:
    return portion(window.goal.trigger, window.budget.input_limit)


def _compacting(window: Window, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by which a provider compacts past the trigger, beside what it was asked to manage anyway."""
    managed, threshold = given.get("context_management"), _threshold(window)
    if window.request.rules.provider == "openai":
        edits = managed if isinstance(managed, list) else []
        if any(edit.get("type") == COMPACTION_TYPE for edit in edits):
            return {}
        return {"context_management": [*edits, {"type": COMPACTION_TYPE, "compact_threshold": threshold}]}
    edits = managed.get("edits") or [] if isinstance(managed, Mapping) else []
    if any("compact" in str(edit.get("type")) for edit in edits):
        return {}
    trigger = {"type": "input_tokens", "value": threshold}
    betas = [beta for beta in given.get("betas") or () if beta != COMPACT_BETA]
    return {
        "context_management": {"edits": [*edits, {"type": COMPACT_EDIT, "trigger": trigger}]},
        "betas": [*betas, COMPACT_BETA],
    }
