"""The scripted chat model by the names that limits have elsewhere, for programs that import it from the demo."""

from __future__ import annotations

from typing import Any

from langchain_ctxwin.testing import ScriptedChatModel


class OfflineChatModel(ScriptedChatModel):
    """A scripted chat model with a window of `context_window` tokens, which asks for at most `max_tokens` of them.

    Examples:
        >>> OfflineChatModel(context_window=8_192, max_tokens=512).invoke("Hi").text
        'Done.'
    """

    def __init__(self, *, context_window: int, max_tokens: int, **options: Any) -> None:
        super().__init__(window=context_window, max_tokens=max_tokens, **options)
