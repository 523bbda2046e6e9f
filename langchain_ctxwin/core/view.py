"""`View`: what of the history the model sees, as small JSON: start, pins, cleared and clamped messages, record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.core.provider_blocks import kind_of
from langchain_ctxwin.core.record import Record, stored_count
from langchain_ctxwin.core.turns import CHECKSUM_MODULUS


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"id": self.id, "index": self.index}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Position:
        """Read the JSON form; raises like `View.from_json`."""
        return cls(id=stored_text(value["id"]), index=stored_count(value["index"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamp:
    """How much of a long message is shown: its head and its tail, in characters."""

    head_chars: int
    tail_chars: int
    of_pin: bool = False
    """True for an explicit pin that alone exceeded the room. Other clamps end when their message is pinned."""

    tool: str = ""
    """Name of the agent's tool that reads the rest; empty when it has none."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {
            "head_chars": self.head_chars,
            "tail_chars": self.tail_chars,
        }
        return (
            value
            | ({"pin": True} if self.of_pin else {})
            | ({"tool": self.tool} if self.tool else {})
        )


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
        value: dict[str, Any] = {
            "start": self.start.to_json() if self.start else {},
            "pinned": [[position.id, position.index] for position in self.pinned],
            "cleared": sorted(self.cleared),
            "clamped": {
                key: clamp.to_json() for key, clamp in sorted(self.clamped.items())
            },
            "covered": {},
        }
        if self.covered:
            through = self.covered.to_json()
            value["covered"] = {"through": through} | (
                {"block": dict(self.block)} if self.block else {}
            )
        if self.left_checksum is not None:
            value["checksum"] = self.left_checksum
        if self.begun_by:
            value["begun_by"] = self.begun_by
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> View:
        """Read the JSON form; missing keys take their defaults.

        Raises AttributeError, KeyError, TypeError or ValueError for what `to_json` does not write.
        """
        covered: Mapping[str, Any] = value.get("covered") or {}
        start, through = value.get("start"), covered.get("through")
        clamped = {
            key: Clamp(
                head_chars=stored_count(how["head_chars"]),
                tail_chars=stored_count(how["tail_chars"]),
                of_pin=bool(how.get("pin")),
                tool=stored_text(how.get("tool") or ""),
            )
            for key, how in (value.get("clamped") or {}).items()
        }
        return cls(
            start=Position.from_json(start) if start else None,
            pinned=tuple(
                Position(id=stored_text(key), index=stored_count(i))
                for key, i in value.get("pinned") or ()
            ),
            cleared=frozenset(map(stored_text, value.get("cleared") or ())),
            clamped=clamped,
            covered=Position.from_json(through) if through else None,
            block=stored_block(covered.get("block")) if through else None,
            left_checksum=None
            if value.get("checksum") is None
            else stored_checksum(value["checksum"]),
            begun_by=stored_text(value.get("begun_by") or ""),
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


def stored_block(value: object) -> Mapping[str, Any] | None:
    """Return a stored block of a provider as it is; TypeError for anything else."""
    if value and kind_of(value) != "compaction":
        raise TypeError(f"{type(value).__name__} is no block of a compaction")
    return cast("Mapping[str, Any] | None", value or None)


def stored_text(value: object) -> str:
    """Return a stored text as it is; TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    return value


def stored_checksum(value: Any) -> int:
    """Return a stored checksum; ValueError for anything else."""
    if type(value) is not int or not 0 <= value < CHECKSUM_MODULUS:
        raise ValueError("no checksum")
    return value
