"""What people read: events in the standard library's logger `langchain_ctxwin`, and what a terminal can show.

Failures are logged without the texts of others, and once while they last.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partialmethod
from typing import IO, Any

from langchain_ctxwin.errors import ContextWindowError, SummarizationError, escaped

NAME = "langchain_ctxwin"

# No handler of our own, not even a null one: where an application has configured none, Python's last resort shows
# warnings on stderr. Nothing goes to stdout, which may be a protocol's.


class EventLog:
    """Writes events with what belongs to them, such as `log.info("context.compacted", kind="force")`.

    They are records of the standard library: the message is `event key=value ...`, and `record.ctxwin` has it all as a
    dict. Where an application has configured structlog, they go through its processors instead, unless those fail.
    """

    def __init__(self) -> None:
        self._logger = logging.getLogger(NAME)

    def _write(self, level: int, event: str, /, **values: Any) -> None:
        # who has not imported it has not configured it, and it takes long
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            # what cannot be logged, because a pipe is closed, say, ends no turn
            with suppress(Exception):
                getattr(
                    structlog.get_logger(NAME), logging.getLevelName(level).lower()
                )(event, **values)
                return
        if self._logger.isEnabledFor(level):
            line = " ".join(
                [event, *(f"{key}={value!r}" for key, value in values.items())]
            )
            extra = {"ctxwin": {"event": event, **values}}
            with suppress(Exception):  # a filter of the application's own may raise
                # Told as an argument, because a value may hold a per cent sign.
                self._logger.log(level, "%s", line, extra=extra, stacklevel=2)

    info = partialmethod(_write, logging.INFO)  # what happened as it should
    # what somebody should do something about
    warning = partialmethod(_write, logging.WARNING)


log = EventLog()


def aligned(
    rows: Sequence[Sequence[str]], *, right: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line per row, its cells under those of the first one, at their end under the headings in `right`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = [">" if heading in right else "<" for heading in rows[0]] if rows else []
    for row in rows:
        yield "  ".join(
            f"{cell:{sign}{width}}"
            for cell, sign, width in zip(row, signs, widths, strict=True)
        ).rstrip()


def say(line: str = "", *, file: IO[str] | None = None) -> None:
    """Print one line, by default to standard output: whatever it quotes, it stays one and leaves the terminal alone."""
    (file or sys.stdout).write(f"{escaped(line)}\n")


class FailureLog:
    """Warns about a lasting failure once, and again when its reason changes or when it comes back."""

    def __init__(self, **about: str) -> None:  # what each warning carries
        self._about = about
        self._reasons: dict[str, str] = {}

    def note(self, event: str, reason: str) -> None:
        """Log a warning unless the same was noted last; an empty reason says that it is over."""
        if reason and self._reasons.get(event) != reason:
            log.warning(event, reason=reason, **self._about)
        self._reasons[event] = reason


def reason_of(error: BaseException) -> str:
    """Return the class and status of an error; foreign texts may quote messages, or an address with a key."""
    name = type(error).__name__
    is_ours = isinstance(error, ContextWindowError) and not isinstance(
        error, SummarizationError
    )
    if is_ours and error.__cause__ is None:  # else it may quote the error behind it
        return f"{name}: {error}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"{name}: HTTP {status}" if isinstance(status, int) else name
