"""Conversations out of LangGraph's checkpoints, in SQLite or Postgres; nothing is written there.

every thread of the root graph  ->  its newest state, delta channels rebuilt  ->  messages
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import convert_to_messages
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph

from langchain_ctxwin.agent.state import ContextState
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.messages import short

SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of every SQLite database (sqlite.org/fileformat)
LOCK_SECONDS = (
    5.0  # how long to wait for somebody who writes; savers write for milliseconds
)
SCHEMES = ("postgresql://", "postgres://")

Opened = tuple[Callable[[Any], BaseCheckpointSaver[str]], type[Exception]]
"""Makes a saver with a serializer, and the error of the whole database."""


def is_address(text: str | Path) -> bool:
    """True for the address of a server, also of one that is none of Postgres."""
    return "://" in str(text)


def shown_address(place: str | Path) -> str:
    """Return a place for people: where a badly written address ends its password, nobody can tell."""
    return (
        f"{str(place).partition('://')[0]}://***" if is_address(place) else str(place)
    )


def is_database(place: str | Path) -> bool:
    """True for the address of a server and for a SQLite file, whatever it is called."""
    if is_address(place) or not Path(place).is_file():
        return is_address(place)
    try:
        with Path(place).open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:  # its reader says why
        return False


def thread_states(
    place: str | Path, *, tell: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each thread of a checkpointer with its newest state, the oldest thread first.

    A thread that cannot be read is reported, and left out.
    """
    name, opened = shown_address(place), _postgres if is_address(place) else _sqlite
    with opened(str(place)) as (saver_with, unreadable):
        graph = StateGraph(ContextState).add_node("none", lambda _: {})
        # It makes no classes but LangChain's and LangGraph's own values.
        strict = JsonPlusSerializer(allowed_msgpack_modules=None)
        compiled = graph.add_edge(START, "none").compile(saver_with(strict))
        for thread in _threads(name, saver_with(_Unread()), unreadable):
            try:
                state = dict(
                    compiled.get_state({"configurable": {"thread_id": thread}}).values
                )
                state["messages"] = convert_to_messages(state.get("messages") or ())
            except unreadable:
                raise
            except Exception as error:  # noqa: BLE001  # what a thread holds may be of any program
                tell(f"{name}: left out thread {thread}: {short(error)}")
            else:
                yield thread, state


class _Unread:
    """Reads nothing of what is stored: to list threads, their names are enough."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ARG002  # the name is part of the protocol
        raise TypeError("a serializer that lists threads writes nothing")

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ARG002
        return {}


def _threads(
    place: str, saver: BaseCheckpointSaver[str], unreadable: type[Exception]
) -> list[str]:
    """The threads of the root graph; savers list the newest checkpoint first."""
    newest_checkpoints = dict[str, str]()
    try:
        for one in saver.list(None):
            about = one.config["configurable"]
            if not about.get("checkpoint_ns"):
                newest_checkpoints[about["thread_id"]] = about["checkpoint_id"]
    except unreadable:
        raise
    except Exception as error:
        raise ConfigError(
            f"{place}: its threads cannot be listed ({short(error)}): mend or delete that row"
        ) from error
    return sorted(newest_checkpoints, key=lambda thread: newest_checkpoints[thread])


@contextmanager
def _sqlite(path: str) -> Iterator[Opened]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # optional packages, only for this
    except ImportError as error:
        raise ConfigError(
            f"{path} is a SQLite database: pip install langgraph-checkpoint-sqlite"
        ) from error

    def saver_with(serde: Any) -> BaseCheckpointSaver[str]:
        saver = SqliteSaver(connection, serde=serde)
        saver.is_setup = True  # else it would make its tables
        return saver

    try:
        address = f"{Path(path).resolve().as_uri()}?mode=ro"
        with closing(
            sqlite3.connect(
                address, uri=True, timeout=LOCK_SECONDS, check_same_thread=False
            )
        ) as connection:
            yield saver_with, sqlite3.Error
    except sqlite3.Error as error:
        raise ConfigError(
            f"{path} cannot be read as a database of LangGraph's SQLite saver: {error}"
        ) from error


@contextmanager
def _postgres(address: str) -> Iterator[Opened]:
    place = shown_address(address)
    if not address.startswith(SCHEMES):
        raise ConfigError(
            f"{place}: the address of a server begins with {' or '.join(SCHEMES)}"
        )
    try:
        import psycopg  # noqa: PLC0415  # optional packages, only for this
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
        from psycopg.rows import dict_row  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"{place} is a Postgres server: pip install langgraph-checkpoint-postgres"
        ) from error
    options: Any = {
        "options": "-c default_transaction_read_only=on",
        "autocommit": True,
        "row_factory": dict_row,
    }
    try:
        with psycopg.connect(address, prepare_threshold=0, **options) as connection:
            yield lambda serde: PostgresSaver(connection, serde=serde), psycopg.Error
    except psycopg.Error as error:  # whose text may quote parts of a password
        raise ConfigError(
            f"{place} cannot be read ({type(error).__name__}): check that the server runs, has LangGraph's tables, and "
            "that @ / : ? in a password are written %40 %2F %3A %3F"
        ) from None
