"""Conversations out of LangGraph's checkpoints, in SQLite or Postgres; nothing is written there.

every thread of the root graph  ->  its newest state, delta channels rebuilt  ->  messages
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

from langchain_ctxwin.agent.state import ContextState
from langchain_ctxwin.archive import archived_in, full_history
from langchain_ctxwin.errors import ConfigError, ContextWindowError
from langchain_ctxwin.replay.messages import short

SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of every SQLite database (sqlite.org/fileformat)."""

POSTGRES = ("postgresql", "postgres")
"""How the address of a server begins, as its own client reads it."""

ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")
"""How any address begins: a path has lost a slash of it, and a drive of Windows has one letter."""

HOST = r"(?:\[[\w:.%]*\]|[\w.-]*)(?::\d*)?"
SHOWN = re.compile(rf"{HOST}(?:,{HOST})*(?:/[^@:?]*)?")
"""Hosts, ports and the name of a database: what can be no password."""

HIDDEN = "***"

NEEDED = {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "metadata"}
"""Columns of the table `checkpoints` that every version of LangGraph's savers since 0.2 has."""

LOCK_SECONDS = 5.0
"""How long to wait for somebody who writes; savers write for milliseconds."""

THREADS = "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = '' GROUP BY thread_id ORDER BY MIN(checkpoint_id)"
"""Oldest thread first; checkpoint ids are in order of time."""


def is_address(text: str | Path) -> bool:
    """True for the address of a server, also of one that is none of Postgres."""
    return ADDRESS.match(str(text)) is not None


def shown_address(text: str | Path) -> str:
    """Return an address for people: hosts and database, without user, password and options.

    Where it cannot be told what is part of a password nothing is shown.
    """
    scheme, rest = _parts(text)
    before, _, options = rest.partition("?")
    where = before.rpartition("@")[2]
    is_clear = SHOWN.fullmatch(where) and ("@" in before or "@" not in options)
    return f"{scheme}://{where if is_clear else HIDDEN}"


def is_database(place: str | Path) -> bool:
    """True for the address of a server and for a SQLite file, whatever it is called.

    Raises:
        ConfigError: a file cannot be opened.
    """
    if is_address(place):
        return True
    path = Path(place)
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror or error}") from error


def thread_states(
    place: str | Path, *, tell: Callable[[str], None] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each thread of a checkpointer with its newest state.

    The `messages` are whole where what was archived lies in the same database; else `archived` says how many are not.

    Args:
        place: a SQLite file, or the address of a Postgres server.
        tell: is told of a thread that cannot be read, which is left out then; None makes it an error.

    Raises:
        ConfigError: the database cannot be opened, holds no checkpoints of a schema that is known, or its package is
            not installed.
    """
    name = shown_address(place) if is_address(place) else str(place)
    with _postgres(place) if is_address(place) else _sqlite(Path(place)) as opened:
        graph = StateGraph(ContextState).add_node("none", lambda _: {}).add_edge(START, "none")
        compiled = graph.compile(checkpointer=opened.saver)
        for thread in opened.threads:
            try:
                found = compiled.get_state({"configurable": {"thread_id": thread}}).values
                state = {**found, **_whole(found, opened.store)}
            except opened.error:  # of the whole database
                raise
            except Exception as error:  # what a thread holds may be of any program
                fault = f"{name}: thread {thread}: {short(error)}"
                if tell is None:
                    raise ConfigError(fault) from error
                tell(f"{name}: left out thread {thread}: {short(error)}")
                continue
            yield thread, state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A database of a checkpointer."""

    saver: BaseCheckpointSaver[str]
    store: Any
    """What agents archived to, if it lies there; else None."""

    threads: list[str]
    error: type[Exception]
    """What is raised when the database as a whole cannot be read."""


def _whole(state: Mapping[str, Any], store: Any) -> dict[str, Any]:
    messages = list(state.get("messages") or ())
    archived = archived_in(state)
    if archived is None:
        return {"messages": messages}
    try:
        return {"messages": full_history(state, store)}
    except ContextWindowError:
        return {"messages": messages, "archived": archived.messages}


@contextmanager
def _sqlite(path: Path) -> Iterator[_Opened]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # optional packages, only for this
        from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"{path} is a SQLite database: pip install langgraph-checkpoint-sqlite") from error
    try:
        address = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=LOCK_SECONDS, check_same_thread=False)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            columns = {row[1] for row in connection.execute("PRAGMA table_info(checkpoints)")}
            _require_known(str(path), tables, columns)
            threads = [str(name) for (name,) in connection.execute(THREADS)]
            saver = SqliteSaver(connection)
            saver.is_setup = True  # else it would make its tables
            store: Any = SqliteStore(connection) if "store" in tables else None
            if store is not None:
                store.is_setup = True
            yield _Opened(saver=saver, store=store, threads=threads, error=sqlite3.Error)
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be read as a SQLite database: {error}") from error


@contextmanager
def _postgres(place: str | Path) -> Iterator[_Opened]:
    shown, (scheme, rest) = shown_address(place), _parts(place)
    if scheme not in POSTGRES:
        raise ConfigError(
            f"{shown}: the address of a server begins with {' or '.join(f'{one}://' for one in POSTGRES)}"
        )
    user = rest.partition("?")[0].rpartition("@")[0]
    if HIDDEN in shown or "@" in user or "/" in user:  # parts of a password would be looked up as the name of a host
        raise ConfigError(f"{shown} is no address: @ / : ? in a password are written %40 %2F %3A %3F")
    address = f"{scheme}://{rest}"
    try:
        import psycopg  # noqa: PLC0415  # optional packages, only for this
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
        from langgraph.store.postgres import PostgresStore  # noqa: PLC0415
        from psycopg.rows import dict_row  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"{shown} is a Postgres server: pip install langgraph-checkpoint-postgres") from error
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
            saver, store = PostgresSaver(connection), PostgresStore(connection) if "store" in tables else None
            yield _Opened(saver=saver, store=store, threads=threads, error=psycopg.Error)
    except psycopg.Error as error:
        raise ConfigError(f"{shown} cannot be read: {_cleared(short(error), address)}") from error


def _parts(text: str | Path) -> tuple[str, str]:
    """What stands before and behind `://`; of a path, which has one slash, as far as that can be known."""
    scheme, _, rest = str(text).partition(":/")
    if rest.startswith("/"):
        return scheme, rest[1:]
    before, _, options = rest.partition("?")
    return scheme, f"/{rest}" if "host=" in options and "@" not in before else rest


def _cleared(text: str, address: str) -> str:
    """What a driver says of an address, without the passwords in it."""
    before, _, options = _parts(address)[1].partition("?")
    found = [before.rpartition("@")[0].partition(":")[2]]
    found += [value for part in options.split("&") for key, _, value in [part.partition("=")] if "password" in key]
    for password in filter(None, (*found, *map(unquote, found))):
        text = text.replace(password, HIDDEN)
    return text


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
