"""A chat model by its name, such as "google_genai:..."."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_ctxwin.errors import ConfigError, brief

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

        return init_chat_model(name)
    except Exception as error:  # providers raise errors of their own for what they miss
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{argument}={brief(name)}: {reason:.300}: name a provider and its model, as in 'google_genai:...', with "
            "langchain-ctxwin[agents] and its package installed, or pass a chat model"
        ) from error
