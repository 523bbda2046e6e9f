"""A counter that anybody wrote: what it cannot count, or what is no count, is estimated."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.sizing import MAX_NUMBER
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Seen

SOME_CHARS = 100  # of a text that no counter finds empty


class GuardedCounter:
    """Passes on the counts of a counter that may raise, or return what is no count.

    A fraction is rounded up. For anything else that is no count the estimator's is taken, and the event `count.failed`
    says why, once per reason. A counter is asked in the turn, by every thread that counts: how long it takes is up to
    who wrote it.
    """

    def __init__(self, counter: TokenCounter, estimator: TokenCounter) -> None:
        self._counter = counter
        self._estimator = estimator
        self._reasons = Seen()
        self.has_failed = False  # true once a count was estimated instead
        for name in ("upper", "lower"):
            if hasattr(counter, name):
                setattr(self, name, getattr(counter, name))

    def __call__(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        """Return the tokens of messages and tools."""
        tokens = self.attempt(messages, tools=tools)
        return self.estimate(messages, tools=tools) if tokens is None else tokens

    def estimate(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        """Return the estimator's count, for want of another."""
        self.has_failed = True
        return self._estimator(messages, tools=tools)

    def attempt(
        self, messages: Sequence[AnyMessage], *, tools: Any = None
    ) -> int | None:
        """Return the counter's own count, or None."""
        try:
            value = self._counter(messages, **({"tools": tools} if tools else {}))
        except Exception as error:  # noqa: BLE001  # a counter may be anybody's code
            fault = type(error).__name__
        else:
            fault = _fault(value, messages)
        if not fault:
            return ceil(value)
        if self._reasons.is_new(fault):
            name = getattr(self._counter, "__name__", type(self._counter).__name__)
            log.warning("count.failed", counter=name, reason=fault, instead="estimate")
        return None


def _fault(value: object, messages: Sequence[AnyMessage]) -> str:
    """What is wrong with a count, in the same words for every value of a kind; nothing for one to reckon with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"returned no count, but {type(value).__name__}"
    if not 0 <= value < MAX_NUMBER:
        return "returned a negative or endless number"
    if not value and any(len(message.text) >= SOME_CHARS for message in messages):
        return "returned 0 for a long text: it takes a list of messages, not a text"
    return ""
