"""Checkpointers on files that can be opened again, and a serializer that tells when state is not plain."""

import sqlite3
from contextlib import asynccontextmanager, contextmanager

import aiosqlite
from langgraph.checkpoint.serde.event_hooks import (
    register_serde_event_listener,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


@contextmanager
def sqlite_saver(path, *, strict=False):
    """Open a saver on a connection of its own; opening `path` again is what a restarted process does.

    Strict keeps only LangGraph's own safe types, as `LANGGRAPH_STRICT_MSGPACK=true` does where no
    type is declared.
    """
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        yield SqliteSaver(connection, serde=strict_serializer() if strict else None)
    finally:
        connection.close()


@asynccontextmanager
async def async_sqlite_saver(path, *, strict=False):
    """Open an async saver on a connection of its own."""
    async with aiosqlite.connect(path) as connection:
        yield AsyncSqliteSaver(
            connection, serde=strict_serializer() if strict else None
        )


def strict_serializer():
    """Return a serializer that rebuilds only safe types; others come back as plain data, as in strict mode."""
    return JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=None)


@contextmanager
def foreign_types():
    """Collect the types outside LangGraph's safe list that checkpoints rebuild, or refuse to, in the meantime.

    Example:
        >>> with foreign_types() as found:
        ...     graph.get_state(config)
        >>> assert found == []
    """
    found = []

    def note(event):
        found.append(f"{event['module']}.{event['name']}")

    unregister = register_serde_event_listener(note)
    try:
        yield found
    finally:
        unregister()
