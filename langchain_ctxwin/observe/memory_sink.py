"""A sink that keeps events in memory, for notebooks and tests."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from langchain_ctxwin.core.events import Event
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.forks import ForkSafeLock

E = TypeVar("E", bound=Event)

MAX_EVENTS = 10_000
"""Events kept unless told, some 10 MB: what happens in a long afternoon."""


class MemorySink:
    """Keeps the newest events; several threads may write at once.

    Args:
        max_events: of more, the oldest are forgotten.

    Raises:
        ConfigError: `max_events` is not a whole number above 0.

    Examples:
        >>> sink = MemorySink()
        >>> sink.emit(Event(thread="1"))
        >>> [event.thread for event in sink.events]
        ['1']
    """

    inline = True

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        if not isinstance(max_events, int) or max_events < 1:
            raise ConfigError(f"max_events={max_events!r}: give a whole number of events, at least 1")
        self._events: deque[Event] = deque(maxlen=max_events)
        self._lock = ForkSafeLock()

    def emit(self, event: Event) -> None:
        """Keep an event."""
        with self._lock:
            self._events.append(event)

    @property
    def events(self) -> list[Event]:
        """The events that are kept, oldest first."""
        with self._lock:
            return list(self._events)

    def of(self, kind: type[E]) -> list[E]:
        """Return the kept events of one kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    def clear(self) -> None:
        """Forget all events."""
        with self._lock:
            self._events.clear()
