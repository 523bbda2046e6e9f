"""What the map-reduce graph reports while it runs: log events, and the same facts on LangGraph's custom stream."""

from __future__ import annotations

import threading
from typing import Any

import structlog
from langgraph.config import get_stream_writer

from langchain_ctxwin.decompose.state import Outcome, Work
from langchain_ctxwin.util.memo import Lru

log = structlog.get_logger("langchain_ctxwin")

MAX_LEVELS_COUNTED = 1_000
"""Levels of runs whose finished parts are counted at once; a forgotten one begins to count again."""


class Progress:
    """Counts the finished parts of each level of each run in this process; thread-safe.

    After a resume it counts the parts that were done since.
    """

    def __init__(self) -> None:
        self._done: Lru[int] = Lru(MAX_LEVELS_COUNTED)
        self._lock = threading.Lock()

    def announce(self, work: Work, outcome: Outcome) -> None:
        """Report that a part is done, answered or not."""
        for failure in outcome["failures"]:
            log.warning("decompose.part_failed", level=work["level"], part=work["part"], error=failure["error"])
        if outcome["refused"]:
            log.warning("decompose.part_split", level=work["level"], part=work["part"], refused=outcome["refused"])
        key, parts = (work["run"], work["level"]), work["parts"]
        with self._lock:  # also around the event, so that the numbers arrive in their order
            done = self._done.put(key, min(parts, (self._done.get(key) or 0) + 1))
            facts = {"level": work["level"], "part": work["part"], "parts": parts, "done": done}
            _stream("decompose.part_done", **facts, failed=bool(outcome["failures"]), refused=outcome["refused"])


def announce_level(level: int, parts: int, **facts: Any) -> None:
    """Report that the calls of a level begin."""
    log.info("decompose.level_started", level=level, parts=parts, **facts)
    _stream("decompose.level_started", level=level, parts=parts, **facts)


def announce_unsplit(reason: str) -> None:
    """Report that a question was not split by the model."""
    log.warning("decompose.question_unsplit", reason=reason)


def _stream(event: str, **facts: Any) -> None:
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):  # called outside a graph: there is no stream
        return
    writer({"type": event, **facts})
