"""What does a chat model say about itself: its name, and its tokenizer family by its class?

Model names change monthly, classes do not.
"""

from __future__ import annotations

from typing import Any

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
"""Family by class name; the most derived class that is listed counts."""

UNKNOWN_FAMILY = "generic"


def family_of(model: object) -> str:
    """Return the family that a model states (`tokenizer_family`) or that its class implies, else `"generic"`.

    Bindings are looked through.
    """
    inner: Any = model
    while (bound := getattr(inner, "bound", None)) is not None and bound is not inner:
        inner = bound
    stated = getattr(inner, "tokenizer_family", None)
    if isinstance(stated, str) and stated:
        return stated
    names = (cls.__name__ for cls in type(inner).__mro__)
    return next((CLASS_FAMILIES[name] for name in names if name in CLASS_FAMILIES), UNKNOWN_FAMILY)


def model_name(model: Any) -> str:
    """Return the name a model states about itself, looking through bindings; empty when it states none."""
    inner = getattr(model, "bound", model)
    names = (getattr(inner, key, None) for key in ("model", "model_name", "name"))
    return next((name for name in names if isinstance(name, str) and name), "")
