"""Where a conversation runs: its thread, and the store that its processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from langchain_ctxwin.summarize.shelf import Shelf


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation runs."""

    thread: str = ""
    """Name of the conversation; empty without a checkpointer."""

    shelf: Shelf | None = None
    """Where other processes put finished summaries; None when there is no store."""

    store: BaseStore | None = None
    """What the shelf of a conversation without a name is made from, once its opening tells it apart."""


def place_of(runtime: Runtime[Any] | None) -> Place:
    """Return the place of a graph run; an empty one outside of a graph."""
    info = runtime.execution_info if runtime else None
    if runtime is None or info is None:
        return Place()
    if not info.thread_id:
        return Place(store=runtime.store)
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    thread = "|".join([info.thread_id, *names])
    return Place(thread, Shelf(runtime.store, thread) if runtime.store is not None else None)
