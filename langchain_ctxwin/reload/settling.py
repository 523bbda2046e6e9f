"""When is what a file holds complete? Nobody says so, but a writer that has finished changes nothing any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.settings_file import read_bytes

SETTLE_SECONDS = 0.05
"""How long content has to stay the same: longer than writers pause between two pieces, and hardly noticed."""

DOUBTFUL_SECONDS = 0.5
"""The same for content that looks unfinished: no file, an empty one, or one that ends in the middle of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a file held at one moment."""

    content: bytes = b""
    problem: str = ""
    """Why there is no content."""

    stamp: tuple[int, ...] = field(default=(), compare=False)
    """Inode, time of change and size: differ after a write that left the content as it was."""

    @property
    def settle_seconds(self) -> float:
        """How long it has to stay the same to count as complete."""
        is_whole = self.content.endswith(b"\n") or self.content.rstrip().endswith(b"}")
        return SETTLE_SECONDS if is_whole and self.content.strip() else DOUBTFUL_SECONDS


class Settling:
    """Lets content through that has stayed the same for long enough, each only once."""

    def __init__(self, judged: Seen) -> None:
        self._judged = judged
        self._candidate: Seen | None = None
        self._since_seconds = 0.0

    def offer(self, seen: Seen, now_seconds: float) -> Seen | None:
        """Return what has settled now; None while it may still change, and for what was let through before."""
        if seen == self._judged:
            self._candidate = None
            return None
        before = self._candidate
        if before is None or (before, before.stamp) != (seen, seen.stamp):
            self._candidate, self._since_seconds = seen, now_seconds
            return None
        if self.wait_seconds(now_seconds):
            return None
        self.settle(seen)
        return seen

    def settle(self, seen: Seen) -> None:
        """Note that this is judged, however long it has been there."""
        self._judged, self._candidate = seen, None

    def wait_seconds(self, now_seconds: float) -> float | None:
        """Return when to look again; None when nothing is about to settle."""
        if self._candidate is None:
            return None
        return max(0.0, self._since_seconds + self._candidate.settle_seconds - now_seconds)


def look(path: Path) -> Seen:
    """Return what a file holds now."""
    try:
        stat = path.stat()
        return Seen(content=read_bytes(path), stamp=(stat.st_ino, stat.st_mtime_ns, stat.st_size))
    except OSError as error:
        return Seen(problem=f"cannot read settings from {path}: {error.strerror or error}")
    except ConfigError as error:
        return Seen(problem=str(error))
