"""`RunPlace`: the names under which a conversation's summaries stand in the graph's store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime

from langchain_ctxwin.summarize import SummaryStore

# Where LangGraph (1.0) says in a run's configuration what keeps its state; it has no public name for that.
CHECKPOINTER = "__pregel_checkpointer"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a conversation runs."""

    thread: str = ""
    """Name of the conversation; empty without a checkpointer."""

    summaries: SummaryStore | None = None
    """Where other processes put finished summaries; None when there is no store."""

    thread_id: str = ""
    """The conversation's thread, which subgraphs share; empty without a checkpointer."""

    prompt_scope: str = ""
    """System prompt, where there is no name: part of the key, so that no summary is shown under another prompt."""


def place_of(runtime: Runtime[Any] | None, prompt: str | SystemMessage) -> RunPlace:
    """Return the place of a graph run with this system prompt; an empty one outside of a graph."""
    info = runtime.execution_info if runtime else None
    if runtime is None or info is None:
        return RunPlace()
    # A thread id alone keeps nothing: servers pass one as a label.
    if not info.thread_id or not get_config()["configurable"].get(CHECKPOINTER):
        return RunPlace(prompt_scope=prompt if isinstance(prompt, str) else repr(prompt.content))
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    summaries = SummaryStore(runtime.store, info.thread_id, "|".join(names)) if runtime.store is not None else None
    return RunPlace("|".join([info.thread_id, *names]), summaries, info.thread_id)
