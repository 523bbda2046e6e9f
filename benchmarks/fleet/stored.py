"""Reads what the fleet stored: the final state of each thread, and how much room it takes."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from fleet.check import Stored
from fleet.graph import Place, build
from fleet.services import Fleet

CHECKPOINT_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def stored_threads(fleet: Fleet, threads: list[str]) -> Iterator[Stored]:
    place = Place(worker="reader", valkey=fleet.valkey, diary=fleet.diary)
    with PostgresSaver.from_conn_string(fleet.dsn) as saver:
        graph = build(place).compile(checkpointer=saver)
        for thread in threads:
            values = graph.get_state({"configurable": {"thread_id": thread}}).values
            yield Stored(
                thread=thread,
                history=values.get("messages", []),
                compactions=values.get("context_guard", {}).get("compactions", 0),
            )


def stored_kb(fleet: Fleet) -> tuple[float, float]:
    """Kilobytes of checkpoints and of the store, with their indexes."""
    with psycopg.connect(fleet.dsn) as connection:
        sizes = {
            name: connection.execute(
                "SELECT pg_total_relation_size(%s::regclass)", [name]
            ).fetchone()
            for name in (*CHECKPOINT_TABLES, "store")
        }
    found = {name: row[0] / 1e3 if row else 0.0 for name, row in sizes.items()}
    return sum(found[name] for name in CHECKPOINT_TABLES), found["store"]
