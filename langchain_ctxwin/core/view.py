"""`View`: what of the history the model sees, as small JSON; and how one message is shown shorter than it is.

Edits never touch the history; they make a copy for the request. Their texts name ids and characters, never token
counts, so that they are the same in every request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolMessage
from pydantic import InstanceOf, PlainSerializer, TypeAdapter

from langchain_ctxwin.core.pairing import is_call, without_kept_calls
from langchain_ctxwin.core.provider_blocks import (
    Messages,
    block_text,
    media_count,
    text_of,
    without_media,
)
from langchain_ctxwin.core.record import Count, Record


@dataclass(frozen=True, slots=True)
class Position:
    """A message by id; the index says where it is, and is verified before use."""

    id: str
    index: Count

    def is_in(self, messages: Messages) -> bool:
        """True while the message is where it was."""
        is_inside = 0 <= self.index < len(messages)
        return is_inside and message_id(messages, self.index) == self.id


@dataclass(frozen=True, slots=True)
class Clamp:
    """How much of a long message is shown: its head and its tail, in characters."""

    head_chars: Count
    tail_chars: Count
    pin: bool = False
    """True for an explicit pin that alone exceeded the room. Other clamps end when their message is pinned."""

    tool: str = ""
    """Name of the agent's tool that reads the rest; empty when it has none."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The part of the history that the model sees, and how."""

    start: Position | None = None  # first message of the view; None from the beginning
    # positions of messages before the start that are shown all the same, in order
    pinned: tuple[Count, ...] = ()
    # ids of tool results whose content is replaced by a stub
    cleared: Annotated[frozenset[str], PlainSerializer(sorted)] = frozenset()
    # ids of messages that are shown by head and tail
    clamped: Mapping[str, Clamp] = field(default_factory=dict)
    without_media: Mapping[str, int] = field(default_factory=dict, compare=False)
    """How many of the first pictures and files of a message are not shown, by its id: worked out with each request,
    and no part of what is stored."""

    covered: Count = (
        0  # position up to which the summary covers messages; 0 where there is none
    )
    block: Mapping[str, Any] | None = None
    """What a provider wrote on demand of the messages that are covered: the summary, as that provider reads it."""

    left_checksum: str = ""  # of what left, as it was then; empty where nothing did
    # what left leaves behind; stored under a key of its own
    record: InstanceOf[Record] = field(default_factory=Record)

    @property
    def start_index(self) -> int:
        """Position of its first message; 0 from the beginning."""
        return self.start.index if self.start else 0

    @cached_property
    def edited(self) -> frozenset[str]:
        """Ids of the messages that are not shown as they are."""
        return self.cleared.union(self.clamped, self.without_media)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without the record; empty when the view is the whole history, unedited."""
        value: dict[str, Any] = VIEW.dump_python(
            self, mode="json", exclude_defaults=True, exclude=UNSTORED
        )
        return value


VIEW = TypeAdapter(View)
UNSTORED = {"record", "without_media"}


def message_id(messages: Messages, index: int) -> str:
    """Return the id of a message; one without an id is named by its position."""
    return messages[index].id or f"#{index}"


def position_of(messages: Messages, index: int) -> Position:
    """Return the stored form of a position."""
    return Position(id=message_id(messages, index), index=index)


def first_after_system(messages: Messages) -> int:
    """Return the number of leading system messages."""
    leading = takewhile(lambda message: isinstance(message, SystemMessage), messages)
    return len([*leading])


# ---- how one message is shown shorter than it is: copies for the request; the history stays as it is -----------------


TextEdit = Callable[[str], str]


def edit(message: AnyMessage, key: str, view: View) -> AnyMessage:
    """Return the message as `view` shows it; the same object when the view does not edit it.

    Clamped are long texts, and the strings inside the arguments of calls, which stay valid JSON; media, ids, signatures
    and reasoning stay as they are.
    """
    if key in view.without_media:
        message = without_media(message, key, view.without_media[key])
    if key in view.cleared and isinstance(message, ToolMessage):
        return _cleared(message, key)
    clamp = view.clamped.get(key)
    if clamp is None:
        return message
    return _with_texts(message, lambda text: clamp_text(text, key, clamp))


def clamp_text(text: str, key: str, clamp: Clamp) -> str:
    """Return head and tail of a text with a marker between them; the text itself when that would not be shorter."""
    left_out = len(text) - clamp.head_chars - clamp.tail_chars
    reader = f", which {clamp.tool} reads" if clamp.tool else ""
    marker = f"\n[... {left_out:,} characters left out; in the history as message {key}{reader} ...]\n"
    if left_out <= len(marker):
        return text
    return text[: clamp.head_chars] + marker + text[len(text) - clamp.tail_chars :]


def clampable_chars(message: AnyMessage) -> int:
    """Length of the longest piece of text that clamping would cut, in characters."""
    lengths = [0]

    def measured(text: str) -> str:
        lengths.append(len(text))
        return text

    _with_texts(message, measured)
    return max(lengths)


def _cleared(message: ToolMessage, key: str) -> AnyMessage:
    """The result with a stub in the place of what it says."""
    size = f"{len(text_of(message.content)):,} characters"
    if media := media_count(message):
        size = f"{size} and {media} media items"
    stub = f"[Tool result cleared: {size}; still in the history as message {key}.]"
    return message.model_copy(update={"content": stub, "artifact": None})


def _with_texts(message: AnyMessage, change: TextEdit) -> AnyMessage:
    """A copy of a message with its long texts changed: what it says, and the arguments of its calls."""
    content: Any = _with_text(message.content, change)
    if not isinstance(message, AIMessage):
        return message.model_copy(update={"content": content})
    if isinstance(content, list):
        content = [
            _with_arguments(block, change) if is_call(block) else block
            for block in content
        ]
    calls = {
        name: [_with_arguments(call, change) for call in getattr(message, name)]
        for name in ("tool_calls", "invalid_tool_calls")
    }
    # Integrations rebuild the provider's raw copy of the calls from `tool_calls`.
    kwargs = without_kept_calls(message)
    update = {"content": content, "additional_kwargs": kwargs, **calls}
    return message.model_copy(update=update)


def _with_text(content: Any, change: TextEdit) -> Any:
    """The content with its blocks of text changed as one text, which stands where the first of them stood."""
    if isinstance(content, str):
        return change(content)
    whole = text_of(content)
    changed = change(whole) if whole else whole
    if changed == whole:
        return content
    blocks = list[Any]()
    for block in content:
        if block_text(block) is None:
            blocks.append(block)
        elif changed:
            blocks.append(
                {**block, "text": changed} if isinstance(block, dict) else changed
            )
            changed = ""
    return blocks


def _with_arguments(call: Any, change: TextEdit) -> Any:
    """A call, or a block that states one, with the strings inside its arguments changed."""
    return {
        key: _with_strings(value, change) if key in {"input", "args"} else value
        for key, value in call.items()
        if key != "partial_json"
    }


def _with_strings(value: Any, change: TextEdit) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _with_strings(item, change) for key, item in value.items()}
    return (
        [_with_strings(item, change) for item in value]
        if isinstance(value, list)
        else value
    )
