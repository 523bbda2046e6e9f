"""Reads what the fleet stored: the final state and the whole history of each thread, and how much room it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.postgres import PostgresStore

from fleet_parts.check import Stored
from fleet_parts.graph import Place, build
from fleet_parts.services import Fleet
from langchain_ctxwin.archive import full_history
from langchain_ctxwin.errors import ArchiveError

CHECKPOINT_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def stored_threads(fleet: Fleet, threads: list[str]) -> Iterator[Stored]:
    place = Place(worker="reader", valkey=fleet.valkey, diary=fleet.diary)
    with PostgresSaver.from_conn_string(fleet.dsn) as saver, PostgresStore.from_conn_string(fleet.dsn) as store:
        graph = build(place).compile(checkpointer=saver, store=store)
        for thread in threads:
            values = graph.get_state({"configurable": {"thread_id": thread}}).values
            yield _stored(thread, values, store)


def _stored(thread: str, values: dict[str, Any], store: PostgresStore) -> Stored:
    error, in_state = "", values.get("messages", [])
    try:
        history = full_history(values, store)
    except ArchiveError as raised:
        error, history = str(raised), in_state
    return Stored(
        thread=thread,
        history=history,
        in_state=len(in_state),
        archived=values.get("context_view", {}).get("archived", {}).get("messages", 0),
        compactions=values.get("context_guard", {}).get("compactions", 0),
        error=error,
    )


def stored_kb(fleet: Fleet) -> tuple[float, float]:
    """Kilobytes of checkpoints and of the store, with their indexes."""
    with psycopg.connect(fleet.dsn) as connection:
        sizes = {
            name: connection.execute("SELECT pg_total_relation_size(%s::regclass)", [name]).fetchone()
            for name in (*CHECKPOINT_TABLES, "store")
        }
    found = {name: row[0] / 1e3 if row else 0.0 for name, row in sizes.items()}
    return sum(found[name] for name in CHECKPOINT_TABLES), found["store"]
