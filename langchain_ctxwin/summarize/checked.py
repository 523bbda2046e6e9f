"""What happens to every written summary before it is used: what of the conversation did it lose?"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AnyMessage

from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import Summarizer, TokenCounter
from langchain_ctxwin.summarize.lost import completed


def checked(summarizer: Summarizer, counter: TokenCounter) -> Summarizer:
    """Return a summarizer whose texts state the facts that the given one left out.

    Whatever the given one writes is kept: a placeholder or an invention is followed by what was really said.
    One that needs no model (`is_local`) copies its sentences from the conversation and is returned as it is.
    """
    if getattr(summarizer, "is_local", False):
        return summarizer
    wrapper = _AsyncChecked if hasattr(summarizer, "asummarize") else _Checked
    return wrapper(summarizer, counter)


class _Checked:
    def __init__(self, summarizer: Summarizer, counter: TokenCounter) -> None:
        self._summarizer = summarizer
        self._counter = counter

    def summarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Return the checked and completed summary, or raise `SummarizationError`."""
        text = self._summarizer.summarize(messages, previous=previous, max_tokens=max_tokens)
        return self._finished(text, messages, previous, max_tokens)

    def _finished(self, text: object, messages: Sequence[AnyMessage], previous: str, max_tokens: int) -> str:
        if not isinstance(text, str) or not text.strip():
            raise SummarizationError(f"the summarizer returned {text!r}: expected a text that is not empty")
        return completed(text, messages, previous=previous, max_tokens=max_tokens, counter=self._counter)


class _AsyncChecked(_Checked):
    async def asummarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Like `summarize`, awaiting the summarizer."""
        writing = self._summarizer.asummarize(messages, previous=previous, max_tokens=max_tokens)  # type: ignore[attr-defined]  # checked when wrapped
        return self._finished(await writing, messages, previous, max_tokens)
