"""The sole assembler: system message, summary, pins and history become the list that the model sees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

from langchain_core.messages import (
    AnyMessage,
    BaseMessage,
    SystemMessage,
)

from langchain_ctxwin.core.blocks import text_of
from langchain_ctxwin.core.pairing import note_message
from langchain_ctxwin.core.record import (
    CLOSING,
    FENCE,
    NO_MARKS,
    OPENING,
    Record,
    render_record,
)

M = TypeVar("M", bound=BaseMessage)

_OPENERS = r"<\uff1c\ufe64"
# or in full width
_SPELLED = rf"[^\w{_OPENERS}]*".join(
    f"[{letter}{chr(ord(letter) + 0xFEE0)}]" for letter in FENCE
)
_LETTER_LIKE = r"[^\W\x00-\x7f]"  # letters of other alphabets have the same shapes
_FENCE = re.compile(
    rf"[{_OPENERS}](?:[^\w{_OPENERS}]*{_SPELLED}|[^\s{_OPENERS}]*{_LETTER_LIKE})",
    re.IGNORECASE,
)
CONSTRAINTS_TEXT = "Rules that hold for the whole conversation:"
RECORD_ID = "ctxwin-record"


def assemble(
    system: SystemMessage | None,
    pinned: Iterable[AnyMessage],
    history: Iterable[AnyMessage],
    *,
    constraints: str = "",
    record: str = "",
    placement: Literal["system", "user"] = "user",
) -> list[AnyMessage]:
    """Return the message list of one request: system message, pins, record, history.

    The pins come first because they change least: what precedes the record stays cached when it is written anew.

    Args:
        system: system prompt and leading system messages, merged.
        pinned: the messages before the view that are shown all the same.
        history: the messages of the view.
        constraints: the engine-level rules as a text; empty when there are none.
        record: the fenced summary and record; empty when nothing left the view.
        placement: where the record is shown.
    """
    is_user = placement == "user"
    whole = append_text(
        system, [part for part in (constraints, "" if is_user else record) if part]
    )
    notes = [note_message(record, RECORD_ID)] if record and is_user else []
    return [*([whole] if whole else ()), *pinned, *notes, *history]


def merge_system(
    prompt: str | SystemMessage, leading: Sequence[AnyMessage]
) -> SystemMessage | None:
    """Merge the system prompt with the system messages that lead the history; None when all are empty.

    A prompt with content blocks (cache markers, for example) keeps them as they are.
    """
    base = (
        prompt if isinstance(prompt, SystemMessage) else SystemMessage(content=prompt)
    )
    filled = [message for message in (base, *leading) if message.content]
    if not filled:
        return None
    first = (
        filled[0] if filled[0] is prompt else SystemMessage(content=filled[0].content)
    )
    return append_text(
        first, [text for message in filled[1:] if (text := text_of(message.content))]
    )


def append_text(
    system: SystemMessage | None, parts: Sequence[str]
) -> SystemMessage | None:
    """Return the system message with text added at its end; the same object when there is nothing to add."""
    if not parts:
        return system
    text = "\n\n".join(parts)
    return SystemMessage(content=text) if system is None else _ending_in(system, text)


def _ending_in(message: M, text: str) -> M:
    content: Any = message.content
    if isinstance(content, list):
        return message.model_copy(
            update={"content": [*content, {"type": "text", "text": text}]}
        )
    return message.model_copy(
        update={"content": f"{content}\n\n{text}" if content else text}
    )


def record_text(summary: str, record: Record) -> str:
    """Return the fenced account of what left the view, the summary above the record; empty when nothing left."""
    lines = render_record(record)
    dropped_note = f"({record.messages:,} left out)" if record.messages else ""
    # nothing quoted closes the fence
    safe_summary = _FENCE.sub(
        lambda match: match[0].translate(NO_MARKS), summary.strip()
    )
    parts = [part for part in (safe_summary, lines, dropped_note) if part]
    return "\n".join((OPENING, *parts, CLOSING)) if parts else ""


def constraints_text(constraints: Sequence[str]) -> str:
    """Return the engine-level rules as one block; empty when there are none."""
    return (
        "\n".join((CONSTRAINTS_TEXT, *(f"- {rule}" for rule in constraints)))
        if constraints
        else ""
    )
