"""How is a conversation summarized without a model? By the lines of its record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.notes import notes
from langchain_ctxwin.core.record import Record, extended, parse_record, render_record
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.summarize.folding import text_tokens


class ExtractiveSummarizer:
    """Writes the record of the messages as a text; deterministic, and no model is called.

    Its lines are what people said, the calls that were made with what came of them, and the names and numbers that
    results brought: see `langchain_ctxwin.core.record`. An engine without a summarizer keeps the same lines by itself.

    Key init args:
        counter: any token counter.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> chat = [HumanMessage("Never touch main.py. Have a nice day.")]
        >>> ExtractiveSummarizer().summarize(chat, previous="", max_tokens=9)
        'user: Never touch main.py.'
    """

    is_local = True
    """No model is asked, so it is run in place."""

    def __init__(self, *, counter: TokenCounter | None = None) -> None:
        self._counter: TokenCounter = TokenEstimator() if counter is None else counter

    def summarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Return the lines of `previous` and of the messages that fit in `max_tokens`, by worth.

        Raises:
            SummarizationError: there is no text at all, or `max_tokens` does not hold a single line.
        """
        before = Record(lines=parse_record(previous))
        added = list(notes(messages, [message_id(messages, index) for index in range(len(messages))]))
        if not before.lines and not added:
            raise SummarizationError(
                f"0 of {len(messages)} messages have text to keep, at least 1 is needed: there is nothing to summarize"
            )
        price = partial(text_tokens, self._counter)
        record = extended(before, added, shown="", room_tokens=max_tokens, free_tokens=max_tokens, price=price)
        if not record.lines:
            raise SummarizationError(f"max_tokens={max_tokens} does not hold one line: raise summary_max_tokens")
        return render_record(record)
