"""Names and tokenizer families of chat models, by their class.

Model names change monthly, classes do not.
"""

from __future__ import annotations

from typing import Any

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


OPENAI = Rules(starts_with_ai=True, takes_system=True)
RULES = {
    "anthropic": Rules(),
    "deepseek": OPENAI,
    "gemini": Rules(starts_with_ai=True, calls_after_ai=False),
    "openai": OPENAI,
    "qwen": OPENAI,
}
"""What providers take, by the family of their integration's class. With Gemini a function call has to follow a user
turn or a function response; its integration and Anthropic's move system messages to the front."""

PROVIDERS = {"google": "gemini", "gemini": "gemini", "vertex": "gemini", "anthropic": "anthropic", "openai": "openai"}
"""Words in the name of a provider, for candidates that are stated without a chat model."""


def rules_of(model: object) -> Rules:
    """Return what the provider of a model takes as it is; of one behind an address of its own nobody knows."""
    inner = _unbound(model)
    names = (cls.__name__ for cls in type(inner).__mro__)
    family = next((CLASS_FAMILIES[name] for name in names if name in CLASS_FAMILIES), "")
    provider = getattr(inner, "provider", None)
    if not family and isinstance(provider, str):
        family = family_of_provider(provider)
    if getattr(inner, "openai_api_base", None):
        return UNKNOWN
    return RULES.get(family, UNKNOWN)


def family_of_provider(provider: str) -> str:
    """Return the family of a provider's own models; empty where its name says nothing."""
    return next((family for word, family in PROVIDERS.items() if word in provider.lower()), "")


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
