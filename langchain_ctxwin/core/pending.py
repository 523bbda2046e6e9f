"""A summary that is being written or waits to be shown, and the messages it stands for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.view import Position, View, position_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One summary on its way: at most one per conversation, valid only for the history it was begun for."""

    key: str
    """Names the work for every process: conversation and content."""

    start: Position
    """First message that the summary adds to the one before it."""

    through: Position
    """Last message that it covers."""

    digest: str
    """Fingerprint of the messages from `start` to `through`."""

    since_seconds: float
    """When it was begun, seconds since the epoch."""

    max_tokens: int
    """Length asked for."""

    text: str = ""
    """The finished summary; empty while it is being written."""

    @property
    def stop(self) -> int:
        """Position after the last message that it covers."""
        return self.through.index + 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "key": self.key,
            "start": {"id": self.start.id, "index": self.start.index},
            "through": {"id": self.through.id, "index": self.through.index},
            "digest": self.digest,
            "since": self.since_seconds,
            "max_tokens": self.max_tokens,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Pending | None:
        """Read the JSON form; None when there is no summary on its way.

        Raises:
            KeyError, TypeError, ValueError: it is not what `to_json` writes.
        """
        if not value or "key" not in value:
            return None
        start, through = (Position(id=str(value[n]["id"]), index=int(value[n]["index"])) for n in ("start", "through"))
        return cls(
            key=str(value["key"]),
            start=start,
            through=through,
            digest=str(value["digest"]),
            since_seconds=float(value["since"]),
            max_tokens=int(value["max_tokens"]),
            text=str(value.get("text") or ""),
        )

    def is_true_of(self, messages: Sequence[AnyMessage]) -> bool:
        """True when the messages are still what they were when it was begun; costs time, so ask before showing it."""
        return content_digest(messages, self.start.index, self.stop) == self.digest

    def located(self, messages: Sequence[AnyMessage], view: View, first: int) -> Pending | None:
        """Return it with verified positions; None when its messages left this branch, or are summarized already."""
        start, through = self.start.find(messages), self.through.find(messages)
        if start is None or through is None or not start <= through < len(messages) - 1:  # what follows it was removed
            return None
        if start != uncovered(view, first):
            return None
        if (start, through) == (self.start.index, self.through.index):
            return self
        return replace(self, start=position_of(messages, start), through=position_of(messages, through))


def uncovered(view: View, first: int) -> int:
    """Return the position of the first message that no summary covers; `first` is the first one of the history."""
    return max(first, view.covered.index + 1) if view.covered else first


def content_digest(messages: Sequence[AnyMessage], start: int, stop: int) -> str:
    """Return a fingerprint of texts and calls of the messages in `[start, stop)`, whatever ids they have now."""
    digest = hashlib.blake2b(digest_size=12)
    for index in range(start, stop):
        message = messages[index]
        calls = [[call["name"], call["args"]] for call in message.tool_calls] if isinstance(message, AIMessage) else []
        parts = [message.type, message.content, calls]
        digest.update(json.dumps(parts, default=str).encode())
    return digest.hexdigest()
