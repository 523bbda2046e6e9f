"""What an agent asks of its own compaction: that it happens now, and what must stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.record import HOLDS, KEEP, RecordLine, one_line, statements
from langchain_ctxwin.core.view import Position, message_id

COMPACT_KEY = "ctxwin_compact"
"""Key in `additional_kwargs` that marks the answer of the tool by which an agent compacts; its value is what must stay.
It needs no state of its own: the answer is in the history, before the request that is to be small."""

MAX_LINES = 20
LINE_CHARS = 240
"""Most lines of one request to keep something, and the longest: a screenful, which most records have room for."""


def is_asked(messages: Sequence[AnyMessage], since: Position | None) -> bool:
    """True when an agent asked for a compaction after its last answer, and none has happened since.

    Args:
        messages: the full history.
        since: the last message at the time of the latest compaction.
    """
    newest = next(_requests(messages), None)
    if newest is None:
        return False
    compacted = since.find(messages) if since else None
    return compacted is None or compacted < newest


def asked_lines(messages: Sequence[AnyMessage]) -> tuple[RecordLine, ...]:
    """Return the lines for what must stay, as the agent said after its last answer."""
    positions = sorted(_requests(messages))
    return tuple(line for i in positions for line in kept_lines(messages[i], message_id(messages, i)))


def kept_lines(message: AnyMessage, key: str) -> Iterator[RecordLine]:
    """Yield the lines for what must stay by the word of one message; none for most messages."""
    keep = message.additional_kwargs.get(COMPACT_KEY) if isinstance(message, ToolMessage) else None
    return lines_to_keep(keep, key) if isinstance(keep, str) else iter(())


def lines_to_keep(text: str, key: str) -> Iterator[RecordLine]:
    """Yield one line for each statement of a text that must stay."""
    for statement in statements(text)[:MAX_LINES]:
        yield RecordLine("open", f"{KEEP}{one_line(statement)[:LINE_CHARS]}", key, HOLDS)


def _requests(messages: Sequence[AnyMessage]) -> Iterator[int]:
    """Positions of the requests after the last answer, newest first."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AIMessage):
            return
        if COMPACT_KEY in messages[index].additional_kwargs:
            yield index
