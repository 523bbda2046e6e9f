"""How much of the history the model sees, as small JSON: start, pins, cleared and clamped messages, receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A message by id; the index is a hint that is verified before use."""

    id: str
    index: int

    def find(self, messages: Sequence[AnyMessage]) -> int | None:
        """Return where the message is now: at the hint, or wherever edits moved it; None when it is gone."""
        if 0 <= self.index < len(messages) and message_id(messages, self.index) == self.id:
            return self.index
        return next((i for i in range(len(messages)) if message_id(messages, i) == self.id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamp:
    """How much of a long message is shown: its head and its tail, in characters."""

    head_chars: int
    tail_chars: int

    of_pin: bool = False
    """True for an explicit pin that alone exceeded the room. Other clamps end when their message is pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What left the view without a summary, in numbers."""

    turns: int = 0
    steps: int = 0
    messages: int = 0
    tokens: int = 0

    def __bool__(self) -> bool:
        return self.messages > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The part of the history that the model sees, and how."""

    start: Position | None = None
    """First message of the view; None from the beginning."""

    pinned: tuple[Position, ...] = ()
    """Messages before the start that are shown all the same, in order."""

    cleared: frozenset[str] = frozenset()
    """Ids of tool results whose content is replaced by a stub."""

    superseded: Mapping[str, str] = field(default_factory=dict)
    """Ids of tool results that a newer result of the same call replaces, with the newer id."""

    clamped: Mapping[str, Clamp] = field(default_factory=dict)
    """Ids of messages that are shown by head and tail."""

    covered: Position | None = None
    """Last message that the summary covers."""

    covered_digest: str = ""
    """Fingerprint of the messages that the summary was last extended by."""

    receipt: Receipt = field(default_factory=Receipt)
    """What left since then without a summary."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; empty when the view is the whole history, unedited."""
        if self == View():
            return {}
        shown: dict[str, dict[str, Any]] = {
            key: {"head_chars": c.head_chars, "tail_chars": c.tail_chars, **({"pin": True} if c.of_pin else {})}
            for key, c in self.clamped.items()
        }
        shown.update({key: {"superseded_by": newer} for key, newer in self.superseded.items()})
        return {
            "start": _position_json(self.start),
            "pinned": [[position.id, position.index] for position in self.pinned],
            "cleared": sorted(self.cleared),
            "clamped": {key: shown[key] for key in sorted(shown)},
            "covered": {"through": _position_json(self.covered), "digest": self.covered_digest} if self.covered else {},
            "receipt": {
                "turns": self.receipt.turns,
                "steps": self.receipt.steps,
                "messages": self.receipt.messages,
                "tokens": self.receipt.tokens,
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> View:
        """Read the JSON form; missing keys take their defaults."""
        shown: Mapping[str, Mapping[str, Any]] = value.get("clamped") or {}
        covered: Mapping[str, Any] = value.get("covered") or {}
        return cls(
            start=_position(value.get("start")),
            pinned=tuple(Position(id=str(key), index=int(index)) for key, index in value.get("pinned") or ()),
            cleared=frozenset(value.get("cleared") or ()),
            superseded={key: str(how["superseded_by"]) for key, how in shown.items() if "superseded_by" in how},
            clamped={key: _clamp(how) for key, how in shown.items() if "head_chars" in how},
            covered=_position(covered.get("through")),
            covered_digest=str(covered.get("digest") or ""),
            receipt=_receipt(value.get("receipt") or {}),
        )


def message_id(messages: Sequence[AnyMessage], index: int) -> str:
    """Return the id of a message; one without an id is named by its position."""
    return messages[index].id or f"#{index}"


def position_of(messages: Sequence[AnyMessage], index: int) -> Position:
    """Return the stored form of a position."""
    return Position(id=message_id(messages, index), index=index)


def _position_json(position: Position | None) -> dict[str, Any]:
    return {"id": position.id, "index": position.index} if position else {}


def _position(value: Mapping[str, Any] | None) -> Position | None:
    return Position(id=str(value["id"]), index=int(value["index"])) if value else None


def _receipt(value: Mapping[str, Any]) -> Receipt:
    numbers = {name: int(value.get(name, 0)) for name in ("turns", "steps", "messages", "tokens")}
    return Receipt(**numbers)


def _clamp(value: Mapping[str, Any]) -> Clamp:
    head, tail = int(value["head_chars"]), int(value["tail_chars"])
    return Clamp(head_chars=head, tail_chars=tail, of_pin=bool(value.get("pin")))
