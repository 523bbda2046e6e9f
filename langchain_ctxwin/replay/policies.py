"""Policies that a replay compares: ours by their settings, and what everybody can write in twenty lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from langchain_core.messages import AnyMessage, ToolMessage

from langchain_ctxwin.config import PRESETS, ContextConfig
from langchain_ctxwin.errors import ConfigError

KEEPS, RECORD_SHARES = (0.1, 0.25, 0.4, 0.6), (0.3, 0.6)
"""What a recommendation tries: how much a compaction leaves, and how much of the room the record may take."""

Sizes = Callable[[AnyMessage], int]
"""Tokens of a message."""


class Plain(Protocol):
    """A policy that knows the messages and what they cost, and nothing else."""

    def view(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
        """Return what of the history the next request shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One row of a comparison."""

    name: str
    config: ContextConfig | None = None
    """The settings of ours; None for a plain one."""

    make: Callable[[int, Sizes], Plain] | None = None
    """Makes a plain policy for one conversation, by the tokens that its messages may have."""

    @classmethod
    def named(cls, text: str) -> Policy:
        """Return a preset, a plain policy, or the one that a settings file describes.

        Raises:
            ConfigError: there is none of this name, or the file is not valid.

        Examples:
            >>> Policy.named("drop-to-half").name
            'drop-to-half'
        """
        if text in PRESETS:
            return cls(name=text, config=ContextConfig.preset(text))  # type: ignore[arg-type]  # it is one of them
        if text in PLAIN:
            return cls(name=text, make=PLAIN[text])
        if Path(text).is_file():
            return cls(name=text, config=ContextConfig.from_file(text))
        names = ", ".join((*PRESETS, *PLAIN))
        raise ConfigError(
            f"--policy {text}: give one of {names}, or a file with settings of ContextConfig"
        )


def candidates() -> list[Policy]:
    """Return the settings that a recommendation chooses from, each named by the TOML that sets it."""
    tried = [
        ContextConfig(keep=keep, record_share=share)
        for keep in KEEPS
        for share in RECORD_SHARES
    ]
    # where several are as good, the default stands first
    tried.sort(key=lambda one: one != ContextConfig())
    return [
        Policy(name=f"keep = {one.keep}\nrecord_share = {one.record_share}", config=one)
        for one in tried
    ]


class KeepLast:
    """As many of the newest messages as fit: the start moves with every step."""

    def __init__(self, room: int, size: Sizes) -> None:
        self.room, self.size = room, size

    def view(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
        """Return the newest messages that fit."""
        start, used = len(history), 0
        while start and used + self.size(history[start - 1]) <= self.room:
            start -= 1
            used += self.size(history[start])
        return list(history[_first_whole(history, start) :])


class DropToHalf:
    """The tail, whose start moves only when the room is full, then to half of it."""

    def __init__(self, room: int, size: Sizes) -> None:
        self.room, self.size, self.start = room, size, 0

    def view(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
        """Return what is left of the history, after dropping when the room is full."""
        held = sum(map(self.size, history[self.start :]))
        if held > self.room:
            while self.start < len(history) - 1 and held > self.room / 2:
                held -= self.size(history[self.start])
                self.start += 1
            self.start = _first_whole(history, self.start)
        return list(history[self.start :])


def _first_whole(history: Sequence[AnyMessage], start: int) -> int:
    """The next position that is no result: its call would be missing."""
    while start < len(history) and isinstance(history[start], ToolMessage):
        start += 1
    return start


PLAIN: dict[str, Callable[[int, Sizes], Plain]] = {
    "keep-last": KeepLast,
    "drop-to-half": DropToHalf,
}
"""Policies by name."""
