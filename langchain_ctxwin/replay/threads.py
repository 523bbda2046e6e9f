"""Conversations out of LangGraph's checkpoints, in SQLite or Postgres; nothing is written there.

every thread of the root graph  ->  its newest state, delta channels rebuilt  ->  messages
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

from langchain_ctxwin.agent.state import ContextState
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.messages import short
from langchain_ctxwin.util.stores import MessageSerializer

SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of every SQLite database (sqlite.org/fileformat)
LOCK_SECONDS = 5.0  # how long to wait for somebody who writes; savers write for milliseconds

# A path has lost a slash of the address that it was, and a drive of Windows has one letter.
ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")
HOST = r"(?:\[[\w:.%]*\]|[\w.-]*)(?::\d*)?"
SHOWN = re.compile(rf"{HOST}(?:,{HOST})*(?:/[^@:?]*)?")
"""Hosts, ports and the name of a database: what can be no password."""

HIDDEN = "***"

NEEDED = {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "metadata"}
"""Columns of the table `checkpoints` that every version of LangGraph's savers since 0.2 has."""

# oldest thread first; checkpoint ids are in order of time
THREADS = "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = '' GROUP BY thread_id ORDER BY MIN(checkpoint_id)"

Opened = tuple[BaseCheckpointSaver[str], list[str], type[Exception]]
"""Saver, threads, and the error of the whole database."""


def is_address(text: str | Path) -> bool:
    """True for the address of a server, also of one that is none of Postgres."""
    return ADDRESS.match(str(text)) is not None


def shown_address(text: str | Path) -> str:
    """Return an address for people: without user, password and options, hidden where a password may be part of it."""
    scheme, rest = _parts(text)
    before, _, options = rest.partition("?")
    where = before.rpartition("@")[2]
    is_clear = SHOWN.fullmatch(where) and ("@" in before or "@" not in options)
    return f"{scheme}://{where if is_clear else HIDDEN}"


def is_database(place: str | Path) -> bool:
    """True for the address of a server and for a SQLite file, whatever it is called."""
    path = Path(place)
    if is_address(place) or not path.is_file():
        return is_address(place)
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {error.strerror or error}") from error


def thread_states(place: str | Path, *, tell: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each thread of a checkpointer with its newest state.

    A thread that cannot be read is told, and left out.
    """
    name = shown_address(place) if is_address(place) else str(place)
    with _postgres(place) if is_address(place) else _sqlite(Path(place)) as (saver, threads, unreadable):
        graph = StateGraph(ContextState).add_node("none", lambda _: {}).add_edge(START, "none")
        compiled = graph.compile(checkpointer=saver)
        for thread in threads:
            try:
                state = dict(compiled.get_state({"configurable": {"thread_id": thread}}).values)
                state["messages"] = list(state.get("messages") or ())
                if not all(isinstance(message, BaseMessage) for message in state["messages"]):
                    raise ConfigError("its `messages` hold something that is no message of LangChain's")  # noqa: TRY301
            except unreadable:
                raise
            except Exception as error:  # noqa: BLE001  # what a thread holds may be of any program
                tell(f"{name}: left out thread {thread}: {short(error)}")
            else:
                yield thread, state


@contextmanager
def _sqlite(path: Path) -> Iterator[Opened]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # optional packages, only for this
    except ImportError as error:
        raise ConfigError(f"{path} is a SQLite database: pip install langgraph-checkpoint-sqlite") from error
    try:
        address = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=LOCK_SECONDS, check_same_thread=False)) as connection:
            connection.text_factory = _decoded
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            columns = set[str]()
            if "checkpoints" in tables:  # a view could go on for ever
                columns = {row[1] for row in connection.execute("PRAGMA table_info(checkpoints)")}
            _require_known(str(path), tables, columns)
            threads = [str(name) for (name,) in connection.execute(THREADS)]
            saver = SqliteSaver(connection, serde=MessageSerializer())
            saver.is_setup = True  # else it would make its tables
            yield saver, threads, sqlite3.Error
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be read as a SQLite database: {error}") from error


def _decoded(text: bytes) -> str:
    """What a column of text holds; one with bytes that are no text costs its own thread alone."""
    return text.decode(errors="replace")


@contextmanager
def _postgres(place: str | Path) -> Iterator[Opened]:
    shown, (scheme, rest) = shown_address(place), _parts(place)
    if scheme not in {"postgresql", "postgres"}:
        raise ConfigError(f"{shown}: the address of a server begins with postgresql:// or postgres://")
    user = rest.partition("?")[0].rpartition("@")[0]
    if HIDDEN in shown or "@" in user or "/" in user:  # parts of a password would be looked up as the name of a host
        raise ConfigError(f"{shown} is no address: @ / : ? in a password are written %40 %2F %3A %3F")
    try:
        import psycopg  # noqa: PLC0415  # optional packages, only for this
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
        from psycopg.rows import dict_row  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"{shown} is a Postgres server: pip install langgraph-checkpoint-postgres") from error
    read_only: Any = {"options": "-c default_transaction_read_only=on", "autocommit": True, "row_factory": dict_row}
    try:
        with psycopg.connect(f"{scheme}://{rest}", prepare_threshold=0, **read_only) as connection:
            listed = connection.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
            ).fetchall()
            tables = {row["table_name"] for row in listed}
            _require_known(shown, tables, {row["column_name"] for row in listed if row["table_name"] == "checkpoints"})
            threads = [str(row["thread_id"]) for row in connection.execute(THREADS)]
            yield PostgresSaver(connection, serde=MessageSerializer()), threads, psycopg.Error
    except psycopg.Error as error:
        raise ConfigError(f"{shown} cannot be read: {_cleared(short(error), rest)}") from error


def _parts(text: str | Path) -> tuple[str, str]:
    """What stands before and behind `://`; of a path, which has one slash, as far as that can be known."""
    scheme, _, rest = str(text).partition(":/")
    if rest.startswith("/"):
        return scheme, rest[1:]
    before, _, options = rest.partition("?")
    return scheme, f"/{rest}" if "host=" in options and "@" not in before else rest


def _cleared(text: str, rest: str) -> str:
    """What a driver says of an address, by what stands behind its scheme, without the passwords in it."""
    before, _, options = rest.partition("?")
    found = [before.rpartition("@")[0].partition(":")[2]]
    found += [value for part in options.split("&") for key, _, value in [part.partition("=")] if "password" in key]
    for password in filter(None, (*found, *map(unquote, found))):
        text = text.replace(password, HIDDEN)
    return text


def _require_known(place: str, tables: set[str], columns: set[str]) -> None:
    if not columns:
        found = ", ".join(sorted(tables)[:10]) or "no table"
        raise ConfigError(f"{place} holds no table `checkpoints` of LangGraph, but {found}")
    if missing := NEEDED - columns:
        raise ConfigError(
            f"{place}: the table `checkpoints` is of another schema: it has {', '.join(sorted(columns))}, and not "
            f"{', '.join(sorted(missing))}"
        )
