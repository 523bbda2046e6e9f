"""The errors of the package, as one tree.

    ContextWindowError
    |-- BudgetExceededError     the request cannot fit, whatever is compacted
    |-- ThreadBudgetError       the thread spent all that it may
    |-- SummarizationError      no usable summary (soft: compaction goes on without it)
    |-- UnknownModelError       no source states the model's limits
    |-- NoModelFitsError        no candidate can take the request
    |-- CursorError             a page of a tool result cannot be read
    |   |-- CursorTamperedError     the cursor was changed, or belongs to another tool, call or thread
    |   |-- CursorExpiredError      the cursor is older than its time to live
    |   `-- ResultGoneError         the stored result is no longer there
    |-- ConfigError             a setting is out of range or contradicts another

Providers' own exceptions keep their type and are never wrapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any


class ContextWindowError(Exception):
    """Base class of the errors that this package raises on purpose."""


class BudgetExceededError(ContextWindowError):
    """The request cannot be made to fit its input limit; no model was called.

    The message is the table of regions with the limit and what to change, or names the two messages that share an id
    where one of them has to be shortened.
    """

    def __init__(
        self, message: str, *, report: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.report: dict[str, object] = dict(report or {})
        """The `context_report` of the refused request (tokens per region); empty when unknown."""


class ThreadBudgetError(ContextWindowError):
    """A thread spent what `max_thread_cost` or `max_thread_tokens` allows; the next model call was not made."""


class SummarizationError(ContextWindowError):
    """The summarizer failed, or what it wrote is unusable; nothing was lost."""


class UnknownModelError(ContextWindowError):
    """No source states a limit for the model."""


class NoModelFitsError(ContextWindowError):
    """No candidate can take the request; no model was called. The message lists each candidate and why."""


class CursorError(ContextWindowError):
    """A page of a stored tool result cannot be read."""


class CursorTamperedError(CursorError):
    """The cursor was changed or forged, or belongs to another tool, other arguments or another thread."""


class CursorExpiredError(CursorError):
    """The cursor is older than its time to live."""


class ResultGoneError(CursorError):
    """The stored result is no longer there: it expired, was displaced, or its store lost it."""


class ConfigError(ContextWindowError):
    """A setting is out of range or contradicts another one."""


def escaped(text: str) -> str:
    r"""Return a text with all that cannot be seen escaped: control characters, ends of lines, marks of direction.

    Examples:
        >>> print(escaped("a\x1b[2Jb\u202e"))
        a\x1b[2Jb\u202e
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


SHOWN_CHARS = 80
"""Longest value in an error: enough to recognize it, and a whole chat model is no help."""


PATH = (str, os.PathLike)  # kinds of a file's path


def expect(value: Any, kinds: Any, name: str, wanted: str) -> Any:
    """Return an argument that is of one of these kinds, of any for `object`; others and classes raise a `ConfigError`.

    Examples:
        >>> expect(5, str, "question", "the question as a text")
        Traceback (most recent call last):
            ...
        langchain_ctxwin.errors.ConfigError: question=5: pass the question as a text
    """
    if kinds is object or (isinstance(value, kinds) and not isinstance(value, type)):
        return value
    raise ConfigError(f"{name}={brief(value)}: pass {wanted}")


def expect_each(values: Any, kinds: Any, name: str, wanted: str) -> list[Any]:
    """Return a list of what an argument holds, each of one of these kinds; anything else raises a `ConfigError`."""
    if isinstance(values, str | bytes | Mapping):
        expect(values, (), name, wanted)
    expect(values, Iterable, name, wanted)
    return [
        expect(value, kinds, f"{name}[{index}]", wanted)
        for index, value in enumerate(values)
    ]


def brief(value: object) -> str:
    """Return a value as an error shows it: short."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
