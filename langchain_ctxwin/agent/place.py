"""Where a conversation runs: its name, and the store that others share with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from langchain_ctxwin.archive import place_in
from langchain_ctxwin.summarize import SummaryStore

CHECKPOINTER = "__pregel_checkpointer"
"""Where LangGraph (1.0) says in a run's configuration what keeps its state; it has no public name for that."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation runs."""

    thread: str = ""
    """Name of the conversation; empty without a checkpointer."""

    summaries: SummaryStore | None = None
    """Where other processes put finished summaries; None when there is no store."""

    store: BaseStore | None = None
    """What the summaries of a conversation without a name are kept in, once its opening tells it apart."""

    archive: str = ""
    """Name of the thread's place in the store for messages that leave the state; empty without a checkpointer."""

    told: str = ""
    """The system prompt of a conversation without a name: what a summary quotes of it is for nobody else."""


def place_of(runtime: Runtime[Any] | None, prompt: str | SystemMessage) -> Place:
    """Return the place of a graph run with this system prompt; an empty one outside of a graph."""
    info = runtime.execution_info if runtime else None
    if runtime is None or info is None:
        return Place()
    # A thread id alone keeps nothing: servers pass one as a label.
    if not info.thread_id or not get_config()["configurable"].get(CHECKPOINTER):
        return Place(store=runtime.store, told=prompt if isinstance(prompt, str) else repr(prompt.content))
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    thread = "|".join([info.thread_id, *names])
    summaries = SummaryStore(runtime.store, thread) if runtime.store is not None else None
    return Place(thread, summaries, runtime.store, place_in(info.thread_id))
