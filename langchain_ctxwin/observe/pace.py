"""May this be logged now, when it may happen with every answer?"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

LOG_SECONDS = 60.0
"""Time between two entries of one kind: a text that is counted wrong is in every later request."""


@dataclass(slots=True, kw_only=True)
class LogPace:
    """Lets one entry a minute through and counts the others; its owner holds a lock."""

    logged_at: float = -inf
    unlogged: int = 0

    def take(self, now: float) -> int | None:
        """Return how many were not logged since the last one that was, or None: too early for another."""
        if 0 <= now - self.logged_at < LOG_SECONDS:  # a clock that was set back silences nothing
            self.unlogged += 1
            return None
        unlogged, self.unlogged, self.logged_at = self.unlogged, 0, now
        return unlogged
