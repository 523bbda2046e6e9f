"""A chat model by its name, such as "google_genai:..."."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_ctxwin.errors import ConfigError, brief

REASON_CHARS = 300  # of a provider's own error: a few sentences

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


def chat_model_named(name: str, argument: str) -> BaseChatModel:
    """Return what `init_chat_model` makes of a name.

    Args:
        name: provider and model, joined by a colon.
        argument: what the caller calls it, for the errors.

    Raises:
        ConfigError: langchain or the provider's package is missing, or the provider refuses the name.
    """
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415  # extra `agents`, only for names
    except ImportError as error:
        raise ConfigError(
            f"{argument}={brief(name)} is a name: install langchain-ctxwin[agents] or pass a chat model"
        ) from error
    try:
        return init_chat_model(name)
    except Exception as error:  # providers raise errors of their own for what they miss
        reason = " ".join(str(error).split())[:REASON_CHARS] or type(error).__name__
        if ":" not in name:
            reason += " (or name its provider, as in 'google_genai:...')"
        raise ConfigError(f"{argument}={brief(name)}: {reason}") from error
