"""What people read: events in the standard library's logger `langchain_ctxwin`, and what a terminal can show.

Failures are logged without the texts of others, and once while they last.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import IO

import structlog
from structlog.typing import FilteringBoundLogger

from langchain_ctxwin.errors import escaped

NAME = "langchain_ctxwin"

# structlog over the standard library's logger. No handler of our own, not even a null one: where an application has
# configured none, Python's last resort shows warnings on stderr. Nothing goes to stdout, which may be a protocol's.
log: FilteringBoundLogger = structlog.wrap_logger(logging.getLogger(NAME))
"""Writes events with what belongs to them, such as `log.info("context.compacted", kind="force")`.

They go through the processors of the application, where it has configured structlog.
"""


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line per row, its cells under those of the first one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def say(line: str = "", *, file: IO[str] | None = None) -> None:
    """Print one line, by default to standard output: whatever it quotes, it stays one and leaves the terminal alone."""
    (file or sys.stdout).write(f"{escaped(line)}\n")


class FailureLog:
    """Warns about a lasting failure once, and again when its reason changes or when it comes back."""

    def __init__(self, event: str, **about: str) -> None:  # what each warning carries
        self._event, self._about, self._reason = event, about, ""

    def note(self, reason: str) -> None:
        """Log a warning unless the same was noted last; an empty reason says that it is over."""
        if reason not in ("", self._reason):
            log.warning(self._event, reason=reason, **self._about)
        self._reason = reason


def reason_of(error: BaseException) -> str:
    """Return the class and status of an error; foreign texts may quote messages, or an address with a key."""
    name = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"{name}: HTTP {status}" if isinstance(status, int) else name
