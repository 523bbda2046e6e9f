"""Reports what happens: events to sinks.

What a sink raises is logged, and the turn goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.runnables.config import ensure_config
from langgraph.config import get_stream_writer

from langchain_ctxwin.core.compaction import Compaction, dropped_positions
from langchain_ctxwin.core.events import (
    AlertEvent,
    CompactionEvent,
    Event,
    Notice,
    NoticeEvent,
    SentRequest,
)
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.sizing import may_be
from langchain_ctxwin.errors import expect, expect_each
from langchain_ctxwin.protocols import Clock, MetricsSink
from langchain_ctxwin.util.log import FailureLog, log, reason_of
from langchain_ctxwin.util.memo import Lru

# whose latest request is held, as messages that other memos hold, too
MAX_CONVERSATIONS = 64

SINKS_WANTED = "a list of sinks, objects with a method emit(event), for example sinks=[MemorySink()]"


class LogSink:
    """Writes events to the log, as every engine does by itself."""

    def emit(self, event: Event) -> None:
        """Write the name of the event, with what belongs to it."""
        if event.level != "debug":
            getattr(log, event.level)(event.name, **event.facts())


class StreamSink:
    """Writes events to LangGraph's custom stream (`stream_mode="custom"`), as every engine does by itself.

    Args:
        steps: write `context.step` and `tool_result.guarded`, too.
    """

    def __init__(self, *, steps: bool = False) -> None:
        self._steps = steps

    def emit(self, event: Event) -> None:
        """Write a dict with the event's name as `type`; outside of a graph there is no stream."""
        if event.level == "debug" and not self._steps:
            return
        try:
            writer = get_stream_writer()
        except (
            RuntimeError,
            KeyError,
        ):  # a node that is called outside a graph has no stream
            return
        writer({"type": event.name, **event.facts(), **event.quoting})


class Reporter:
    """Hands events to sinks, with the thread of the run and the time.

    A sink is called in the thread and the context of the run. What it raises is logged once, as `metrics.sink_failed`.

    Args:
        sinks: take the events.
        clock: seconds since the epoch.

    Raises:
        ConfigError: one of the sinks has no `emit`, or `sinks` is no list of them.
    """

    def __init__(
        self,
        sinks: Iterable[MetricsSink] = (),
        *,
        clock: Clock = time.time,
    ) -> None:
        self.sinks: tuple[MetricsSink, ...] = tuple(
            expect_each(sinks or (), MetricsSink, "sinks", SINKS_WANTED)
        )
        """The sinks that were given."""
        self.requests: Lru[SentRequest] = Lru(MAX_CONVERSATIONS)
        """The latest request of each conversation, to say why a prompt cache missed."""
        always = [
            kind()
            for kind in (LogSink, StreamSink)
            if not any(isinstance(sink, kind) for sink in self.sinks)
        ]
        self._clock = clock
        self._failures = [
            (sink, FailureLog("metrics.sink_failed", sink=type(sink).__name__))
            for sink in (*always, *self.sinks)
        ]

    def emit(self, event: Event) -> None:
        """Hand an event to every sink; an alert about several conversations stays without a thread."""
        settings = ensure_config().get("configurable", {})
        thread = event.thread
        if not isinstance(event, AlertEvent):
            thread = thread or str(settings.get("thread_id") or "")
        event = replace(event, thread=thread, time=event.time or self._clock())
        for sink, failures in self._failures:
            try:
                sink.emit(event)
            except Exception as error:  # noqa: BLE001  # whatever a sink does, the turn goes on
                failures.note(reason_of(error))
            else:
                failures.note("")

    def notice(self, notice: Notice, model: str = "", **about: Any) -> None:
        """Report something that an operator may want to look at."""
        self.emit(NoticeEvent(notice=notice, model=model, about=about))

    def compacted(
        self, compaction: Compaction, window: Window, after: Window, *, seconds: float
    ) -> None:
        """Report a compaction and its duration."""
        gone = dropped_positions(window, compaction.after)
        event = CompactionEvent(
            kind=compaction.kind,
            reason=compaction.reason,
            tokens_before=compaction.tokens_before,
            tokens_after=after.total_tokens,
            model=window.model,
            input_limit=window.input_limit,
            duration_seconds=round(seconds, 6),
            left_messages=len(gone),
            compactions=after.session.compactions,
            quoting={"summary": after.summary} if after.summary else {},
        )
        self.emit(event)
        self.cut(after, window.report["clamped"])

    def cut(self, window: Window, before: Mapping[str, Any]) -> None:
        """Warn of what was just said, or just found, and is not shown whole, unless it was told `before`."""
        clamped = window.report["clamped"].items()
        if new := {name: sizes for name, sizes in clamped if before.get(name) != sizes}:
            limit = window.input_limit
            self.notice(
                "newest_clamped", window.model, shown_tokens=new, input_limit=limit
            )


class Prices:
    """Says what the models cost, as far as it is known.

    Args:
        source: a `ModelInfo` of the agent's model, a `ModelRegistry`, a function that returns the `ModelInfo` for a
            name, or None. A registry or function is asked in the turn; what it raises is logged, and costs are unknown.

    Raises:
        ConfigError: it is none of these.
    """

    def __init__(self, source: Any = None) -> None:
        wanted = "a ModelInfo, a ModelRegistry, or a function that returns a ModelInfo"
        ask = getattr(source, "lookup", source)
        self._source = expect(ask, ModelInfo | Callable | None, "prices", wanted)
        self._failures = FailureLog("metrics.no_prices")

    def of(
        self, model: str, declared: ModelInfo | None = None, *, is_agent: bool = True
    ) -> ModelInfo | None:
        """Return the facts about a model as they are now; `declared`, those of its adapter, if they have prices.

        A single `ModelInfo` is taken for the agent's model whatever its name, for another it has to be of its name.
        """
        if declared is not None and declared.input_price is not None:
            return declared
        source = self._source
        if isinstance(source, ModelInfo):
            return source if is_agent or may_be(source.name, model) else None
        if source is None or not model:
            return None
        try:
            info: ModelInfo | None = expect(
                source(model), ModelInfo | None, "prices", "a ModelInfo, or None"
            )
        except Exception as error:  # noqa: BLE001  # costs are unknown then, nothing else
            self._failures.note(f"{model}: {reason_of(error)}")
            return None
        return info
