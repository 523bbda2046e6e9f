"""Names and tokenizer families of chat models, by their class.

Model names change monthly, classes do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.native import provider_named
from langchain_ctxwin.core.pairing import UNKNOWN, Rules
from langchain_ctxwin.core.tool_schemas import FRAMING

CLASS_FAMILIES = {
    "ChatGoogleGenerativeAI": "gemini",
    "ChatVertexAI": "gemini",
    "BaseChatOpenAI": "openai",
    "ChatOpenAI": "openai",
    "AzureChatOpenAI": "openai",
    "ChatAnthropic": "anthropic",
    "ChatAnthropicVertex": "anthropic",
    "ChatDeepSeek": "deepseek",
    "ChatQwen": "qwen",
    "ChatTongyi": "qwen",
}
"""Family by class name; the most derived class that is listed counts.

Classes that serve models of many makers (Groq, Ollama, Bedrock, Together, ...) are not listed: their name says nothing
of the tokenizer, so they count as generic, unless the model's limits state a `tokenizer_family`.
"""

UNKNOWN_FAMILY = "generic"

MAX_BINDINGS = 16
"""Bindings of bindings that are looked through; a model that binds itself would have no end."""


def family_of(model: object) -> str:
    """Return the family that a model states (`tokenizer_family`) or that its class implies, else `"generic"`.

    Bindings are looked through. A stated family that has no weights counts as generic.
    """
    inner = _unbound(model)
    stated = getattr(inner, "tokenizer_family", None)
    if isinstance(stated, str) and stated:
        return stated if stated in FRAMING else UNKNOWN_FAMILY
    names = (cls.__name__ for cls in type(inner).__mro__)
    return next((CLASS_FAMILIES[name] for name in names if name in CLASS_FAMILIES), UNKNOWN_FAMILY)


OPENAI = Rules(starts_with_ai=True, takes_system=True, provider="openai")
LIKE_OPENAI = replace(OPENAI, provider="other")
RULES = {
    "anthropic": Rules(provider="anthropic"),
    "deepseek": LIKE_OPENAI,
    "gemini": Rules(starts_with_ai=True, calls_after_ai=False, provider="gemini"),
    "openai": OPENAI,
    "qwen": LIKE_OPENAI,
}
"""What providers take, by the family of their integration's class. With Gemini a function call has to follow a user
turn or a function response; its integration and Anthropic's move system messages to the front."""

CALL_SETTINGS = ("betas", "cache_control", "cached_content", "context_management", "prompt_cache_key", "truncation")
"""Settings of chat models that go along with every call and concern the context."""

NO_CACHE_KEY = frozenset({"AzureChatOpenAI"})
"""Chat classes of OpenAI's models whose API refuses the key of a prompt cache in some of its versions."""

LOADS_TOOLS = "mid_conversation_tools"
"""Key of a model's profile that says that tools can come in the midst of a conversation."""

RESPONSES_MARKS = ("use_responses_api", "use_previous_response_id", "context_management", "truncation")
"""Settings of a chat model that make it use OpenAI's Responses API, which keeps and compacts history."""


def rules_of(model: object) -> Rules:
    """Return what the provider of a model takes as it is; of one behind an address of its own nobody knows."""
    inner = _unbound(model)
    names = [cls.__name__ for cls in type(inner).__mro__]
    family = next((CLASS_FAMILIES[name] for name in names if name in CLASS_FAMILIES), "")
    provider = getattr(inner, "provider", None)
    family = family or provider_named(provider)
    rules = RULES.get(family, UNKNOWN)
    if getattr(inner, "openai_api_base", None):
        rules = replace(UNKNOWN, provider="openai" if uses_responses(inner) else "other")
    profile = getattr(inner, "profile", None)
    return replace(
        rules,
        takes_cache_key=rules.provider == "openai" and not any(name in NO_CACHE_KEY for name in names),
        loads_tools=family == "anthropic" and isinstance(profile, Mapping) and profile.get(LOADS_TOOLS) is True,
        keeps_history=getattr(inner, "use_previous_response_id", False) is True,
    )


def uses_responses(model: object) -> bool:
    """True for a chat model, bindings looked through, that is set to use OpenAI's Responses API."""
    inner = _unbound(model)
    is_marked = any(getattr(inner, mark, None) for mark in RESPONSES_MARKS)
    return is_marked or getattr(inner, "output_version", None) == "responses/v1"


def arguments_of(model: Any) -> dict[str, Any]:
    """Return what a chat model is set to send with each call, those of its bindings before its own."""
    given: dict[str, Any] = {}
    for _ in range(MAX_BINDINGS):
        bound = getattr(model, "bound", None)
        if bound is None:
            break
        given, model = {**getattr(model, "kwargs", {}), **given}, bound
    own = {name: getattr(model, name, None) for name in CALL_SETTINGS}
    return {**own, **(getattr(model, "model_kwargs", None) or {}), **given}


def model_name(model: Any) -> str:
    """Return the name a model states about itself, looking through bindings; empty when it states none."""
    inner = _unbound(model)
    names = (getattr(inner, key, None) for key in ("model", "model_name", "name"))
    return next((name for name in names if isinstance(name, str) and name), "")


def _unbound(model: Any) -> Any:
    for _ in range(MAX_BINDINGS):
        bound = getattr(model, "bound", None)
        if bound is None:
            return model
        model = bound
    return model
