"""`View`: what of the history the model sees, as small JSON: start, pins, cleared and clamped messages, record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.core.record import Record


@dataclass(frozen=True, slots=True)
class Position:
    """A message by id; the index is a hint that is verified before use."""

    id: str
    index: int

    def find(self, messages: Sequence[AnyMessage]) -> int | None:
        """Return where the message is now: at the hint, or wherever edits moved it; None when it is gone."""
        if (
            0 <= self.index < len(messages)
            and message_id(messages, self.index) == self.id
        ):
            return self.index
        return next(
            (i for i in range(len(messages)) if message_id(messages, i) == self.id),
            None,
        )


class Clamp(NamedTuple):
    """How much of a long message is shown: its head and its tail, in characters."""

    head_chars: int
    tail_chars: int
    pin: bool = False
    """True for an explicit pin that alone exceeded the room. Other clamps end when their message is pinned."""

    tool: str = ""
    """Name of the agent's tool that reads the rest; empty when it has none."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        value = self._asdict()
        return {
            key: one for key, one in value.items() if one is not False and one != ""
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The part of the history that the model sees, and how."""

    start: Position | None = None  # first message of the view; None from the beginning
    # messages before the start that are shown all the same, in order
    pinned: tuple[Position, ...] = ()
    # ids of tool results whose content is replaced by a stub
    cleared: frozenset[str] = frozenset()
    # ids of messages that are shown by head and tail
    clamped: Mapping[str, Clamp] = field(default_factory=dict)
    without_media: Mapping[str, int] = field(default_factory=dict, compare=False)
    """How many of the first pictures and files of a message are not shown, by its id: worked out with each request,
    and no part of what is stored."""

    covered: Position | None = None  # last message that the summary covers
    block: Mapping[str, Any] | None = None
    """What a provider wrote on demand of the messages that are covered: the summary, as that provider reads it."""

    left_checksum: int | None = (
        None  # of what left, as it was then; None where nothing did
    )
    begun_by: str = ""  # id of the answer with which a provider compacted what lies before; empty when none did
    # what left leaves behind; stored under a key of its own
    record: Record = field(default_factory=Record)

    @property
    def edited(self) -> frozenset[str]:
        """Ids of the messages that are not shown as they are."""
        return self.cleared.union(self.clamped, self.without_media)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without the record; empty when the view is the whole history, unedited."""
        if replace(self, record=Record()) == View():
            return {}
        covered: dict[str, Any] = {}
        if self.covered:
            covered["through"] = asdict(self.covered)
            if self.block:
                covered["block"] = dict(self.block)
        value: dict[str, Any] = {
            "start": asdict(self.start) if self.start else {},
            "pinned": [[position.id, position.index] for position in self.pinned],
            "cleared": sorted(self.cleared),
            "clamped": {
                key: clamp.to_json() for key, clamp in sorted(self.clamped.items())
            },
            "covered": covered,
        }
        if self.left_checksum is not None:
            value["checksum"] = self.left_checksum
        if self.begun_by:
            value["begun_by"] = self.begun_by
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> View:
        """Read what `to_json` returns; missing keys take their defaults."""
        clamped = value.get("clamped") or {}
        covered = value.get("covered") or {}
        return cls(
            start=position_in(value.get("start")),
            pinned=tuple(Position(*row) for row in value.get("pinned") or ()),
            cleared=frozenset(value.get("cleared") or ()),
            clamped={key: Clamp(**how) for key, how in clamped.items()},
            covered=position_in(covered.get("through")),
            block=covered.get("block"),
            left_checksum=value.get("checksum"),
            begun_by=value.get("begun_by") or "",
        )


def cleared_in(view: View, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return the messages after the start whose results are cleared."""
    start = view.start.index if view.start else 0
    return (
        [message for message in messages[start:] if message.id in view.cleared]
        if view.cleared
        else []
    )


def message_id(messages: Sequence[AnyMessage], index: int) -> str:
    """Return the id of a message; one without an id is named by its position."""
    return messages[index].id or f"#{index}"


def position_in(value: Mapping[str, Any] | None) -> Position | None:
    """Return a position that is stored, if there is one."""
    return Position(**value) if value else None


def position_of(messages: Sequence[AnyMessage], index: int) -> Position:
    """Return the stored form of a position."""
    return Position(id=message_id(messages, index), index=index)


def first_after_system(messages: Sequence[AnyMessage]) -> int:
    """Return the number of leading system messages."""
    return next(
        (
            i
            for i, message in enumerate(messages)
            if not isinstance(message, SystemMessage)
        ),
        len(messages),
    )
