"""Where a conversation runs: its thread, and the store that its processes share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from langchain_ctxwin.summarize import SummaryStore as Shelf

CHECKPOINTER = "__pregel_checkpointer"
"""Where LangGraph (1.0) says in a run's configuration what keeps its state; it has no public name for that."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation runs."""

    thread: str = ""
    """Name of the conversation; empty without a checkpointer."""

    shelf: Shelf | None = None
    """Where other processes put finished summaries; None when there is no store."""

    store: BaseStore | None = None
    """What the shelf of a conversation without a name is made from, once its opening tells it apart."""

    told: str = ""
    """The system prompt of a conversation without a name: what a summary quotes of it is for nobody else."""


def place_of(runtime: Runtime[Any] | None, told: Callable[[], str | SystemMessage]) -> Place:
    """Return the place of a graph run; an empty one outside of a graph. `told` returns the system prompt."""
    info = runtime.execution_info if runtime else None
    if runtime is None or info is None:
        return Place()
    # A thread id alone keeps nothing: servers pass one as a label.
    if not info.thread_id or not get_config()["configurable"].get(CHECKPOINTER):
        prompt = told()
        return Place(store=runtime.store, told=prompt if isinstance(prompt, str) else repr(prompt.content))
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    thread = "|".join([info.thread_id, *names])
    return Place(thread, Shelf(runtime.store, thread) if runtime.store is not None else None)
