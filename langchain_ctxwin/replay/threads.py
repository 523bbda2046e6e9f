"""Conversations out of LangGraph's checkpoints, in SQLite or Postgres; nothing is written there.

every thread of the root graph  ->  its newest state, delta channels rebuilt  ->  messages
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

from langchain_ctxwin.agent.state import ContextState
from langchain_ctxwin.archive import archived_in, full_history
from langchain_ctxwin.errors import ConfigError, ContextWindowError

SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of every SQLite database (sqlite.org/fileformat)."""

POSTGRES = ("postgresql://", "postgres://")

NEEDED = {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "metadata"}
"""Columns of the table `checkpoints` that every version of LangGraph's savers since 0.2 has."""

THREADS = "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = '' GROUP BY thread_id ORDER BY MIN(checkpoint_id)"
"""Oldest thread first; checkpoint ids are in order of time."""


def is_database(place: str | Path) -> bool:
    """True for the address of a Postgres server and for a SQLite file, whatever it is called.

    Raises:
        ConfigError: a file cannot be opened.
    """
    if str(place).startswith(POSTGRES):
        return True
    path = Path(place)
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror or error}") from error


def thread_states(place: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each thread of a checkpointer with its newest state.

    The `messages` are whole where what was archived lies in the same database; else `archived` says how many are not.

    Raises:
        ConfigError: the database cannot be opened, holds no checkpoints of a schema that is known, or its package is
            not installed.
    """
    opened = _postgres(str(place)) if str(place).startswith(POSTGRES) else _sqlite(Path(place))
    with opened as (saver, store, threads):
        graph = StateGraph(ContextState).add_node("none", lambda _: {}).add_edge(START, "none")
        compiled = graph.compile(checkpointer=saver)
        for thread in threads:
            state = dict(compiled.get_state({"configurable": {"thread_id": thread}}).values)
            yield thread, {**state, **_whole(state, store)}


def _whole(state: Mapping[str, Any], store: Any) -> dict[str, Any]:
    archived = archived_in(state)
    if archived is None:
        return {"messages": list(state.get("messages") or ())}
    try:
        return {"messages": full_history(state, store)}
    except ContextWindowError:
        return {"archived": archived.messages}


@contextmanager
def _sqlite(path: Path) -> Iterator[tuple[BaseCheckpointSaver[str], Any, list[str]]]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # optional packages, only for this
        from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"{path} is a SQLite database: pip install langgraph-checkpoint-sqlite") from error
    try:
        address = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            columns = {row[1] for row in connection.execute("PRAGMA table_info(checkpoints)")}
            _require_known(str(path), tables, columns)
            threads = [str(name) for (name,) in connection.execute(THREADS)]
            saver = SqliteSaver(connection)
            saver.is_setup = True  # else it would make its tables
            store: Any = SqliteStore(connection) if "store" in tables else None
            if store is not None:
                store.is_setup = True
            yield saver, store, threads
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be read as a SQLite database: {error}") from error


@contextmanager
def _postgres(address: str) -> Iterator[tuple[BaseCheckpointSaver[str], Any, list[str]]]:
    try:
        import psycopg  # noqa: PLC0415  # optional packages, only for this
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
        from langgraph.store.postgres import PostgresStore  # noqa: PLC0415
        from psycopg.rows import dict_row  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("a Postgres address was given: pip install langgraph-checkpoint-postgres") from error
    shown = address.rpartition("@")[2]  # without the password
    read_only: Any = {"options": "-c default_transaction_read_only=on", "autocommit": True, "row_factory": dict_row}
    try:
        with psycopg.connect(address, prepare_threshold=0, **read_only) as connection:
            listed = connection.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
            ).fetchall()
            columns = {row["column_name"] for row in listed if row["table_name"] == "checkpoints"}
            tables = {row["table_name"] for row in listed}
            _require_known(shown, tables, columns)
            threads = [str(row["thread_id"]) for row in connection.execute(THREADS)]
            yield PostgresSaver(connection), PostgresStore(connection) if "store" in tables else None, threads
    except psycopg.Error as error:
        raise ConfigError(f"{shown} cannot be read: {str(error).strip().partition(chr(10))[0]}") from error


def _require_known(place: str, tables: set[str], columns: set[str]) -> None:
    """Raise `ConfigError` for a database of something else, or of another schema."""
    if not columns:
        found = ", ".join(sorted(tables)[:10]) or "no table"
        raise ConfigError(f"{place} holds no table `checkpoints` of LangGraph, but {found}")
    if missing := NEEDED - columns:
        raise ConfigError(
            f"{place}: the table `checkpoints` is of another schema: it has {', '.join(sorted(columns))}, and not "
            f"{', '.join(sorted(missing))}"
        )
