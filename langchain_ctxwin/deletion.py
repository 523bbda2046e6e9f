"""Delete a conversation from every place where this package keeps something of it.

    jobs of this process  ->  results of tools  ->  the graph's store  ->  history of events  ->  checkpoints

What holds the text goes last, so that a deletion that failed in the middle can be repeated by whoever finds the thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from langchain_ctxwin.errors import ConfigError, brief, expect, expect_each
from langchain_ctxwin.observe.history import History, HistorySink
from langchain_ctxwin.pruning import spare_of
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.summarize.jobs import default_jobs, namespace_of_summaries
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tool_results.cursors import namespace_of_results
from langchain_ctxwin.tool_results.stores import LangGraphResultStore
from langchain_ctxwin.util.media_store import namespace_of_media
from langchain_ctxwin.util.memo import clear_conversations
from langchain_ctxwin.util.stores import delete_items

__all__ = ["Forgotten", "aforget", "forget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The number of deleted items of a conversation by place; zeros where there was nothing."""

    thread_id: str

    jobs: int = 0
    """Summaries that this process was writing, or remembered."""

    results: int = 0
    """Large results of tools."""

    summaries: int = 0
    """Items of the graph's store that held a summary."""

    media: int = 0
    """Items of the graph's store that held a picture or a file."""

    events: int = 0
    """Rows of histories of events."""

    had_checkpoints: bool = False
    """True when the checkpointer held the thread."""

    not_given: tuple[str, ...] = ()
    """Arguments that were left out: what lies in such a place is still there."""


def forget(
    thread_id: str,
    *,
    store: BaseStore | None = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    results: Any = (),
    history: Any = (),
    jobs: SummaryJobs | None = None,
    scope: str | None = None,
) -> Forgotten:
    """Delete what this package keeps of a conversation, and its checkpoints where the checkpointer is given.

    The thread must be idle: what a run, a tool or a summary in another process writes meanwhile stays. Nothing that
    expires is waited for, and what is not there is no error: call it again after a failure, or later. What was sent
    to others (models, traces, logs, your own sinks) is theirs to delete.

    Args:
        thread_id: name of the conversation.
        store: the graph's store: summaries in the background, pictures and files that left the view, and results of a
            `LangGraphResultStore` on it.
        checkpointer: that of the graph; the thread, and what a pruning left that died, are deleted from it.
        results: the `ToolResultGuard`, or the store that it was given; several as a list.
        history: the `HistorySink`, `History` or path of each history of events.
        jobs: writes the summaries of your engines; by default those that all engines of a process share.
        scope: what the guard's own `scope=` returns for this conversation; by default its thread id.

    Raises:
        ConfigError: there is no thread id, or an argument is of the wrong type; nothing was deleted then. What a store,
            server or file raises is raised as it is.

    Examples:
        >>> from langgraph.store.memory import InMemoryStore
        >>> forget("42", store=InMemoryStore()).summaries
        0
    """
    places = {
        "store": store,
        "checkpointer": checkpointer,
        "results": results,
        "history": history,
    }
    thread = str if thread_id else ()
    graph = "the one that the graph was compiled with"
    for name, value, kinds, wanted in (
        ("thread_id", thread_id, thread, "the id of the thread to forget, as a text"),
        ("store", store, BaseStore | None, graph),
        ("checkpointer", checkpointer, BaseCheckpointSaver | None, graph),
        ("jobs", jobs, SummaryJobs | None, "the SummaryJobs of your engine"),
        ("scope", scope, str | None, "the text that the guard's scope returns"),
    ):
        expect(value, kinds, name, wanted)
    stores = [_result_store(one, scope) for one in _listed(results)]
    stores += [LangGraphResultStore(store)] if store is not None else []
    wanted = "a HistorySink, a History, or the path of its file"
    histories = expect_each(
        _listed(history), str | Path | History | HistorySink, "history", wanted
    )
    namespace = namespace_of_results(thread_id if scope is None else scope)
    # What holds the text goes last: the store, the histories, the checkpoints.
    cancelled = (jobs or default_jobs()).cancel_thread(thread_id)
    clear_conversations()
    return Forgotten(
        thread_id=thread_id,
        jobs=cancelled,
        results=sum(one.clear(namespace) for one in stores),
        summaries=delete_items(store, namespace_of_summaries(thread_id))
        if store is not None
        else 0,
        media=delete_items(store, namespace_of_media(thread_id))
        if store is not None
        else 0,
        events=sum(_forgotten_events(one, thread_id) for one in histories),
        had_checkpoints=checkpointer is not None
        and _had_checkpoints(checkpointer, thread_id),
        not_given=tuple(
            name for name, value in places.items() if value is None or value == ()
        ),
    )


async def aforget(thread_id: str, **places: Any) -> Forgotten:
    """Like `forget`, with the same arguments, in a thread, where async stores and checkpointers answer, too."""
    return await asyncio.to_thread(partial(forget, thread_id, **places))


def _listed(value: Any) -> list[Any]:
    return (
        list(value)
        if isinstance(value, list | tuple | set)
        else []
        if value is None
        else [value]
    )


def _result_store(results: Any, scope: str | None) -> Any:
    """The store of results that was given, or that of a guard."""
    if isinstance(results, ToolResultGuard) and results.has_own_scope and scope is None:
        raise ConfigError(
            "the guard of results= has a scope of its own: pass scope=, what it returns for this thread"
        )
    store = results.store if isinstance(results, ToolResultGuard) else results
    if not callable(getattr(store, "clear", None)):
        raise ConfigError(
            f"results={brief(results)} has no method clear(namespace): pass a ToolResultGuard or its store, and give a "
            "store of your own that method"
        )
    return store


def _forgotten_events(one: Any, thread_id: str) -> int:
    if isinstance(one, HistorySink):
        # what was reported of the thread is in the file then
        Reporter([one], own=()).flush()
        if not one.path.exists():
            return 0
    history = History(one) if isinstance(one, str | Path) else one
    return History(history.path).forget(thread_id)


def _had_checkpoints(saver: BaseCheckpointSaver[Any], thread_id: str) -> bool:
    """Delete a thread, and what a pruning of it left that died."""
    had = False
    for thread in (thread_id, spare_of(thread_id)):
        try:
            had |= saver.get_tuple({"configurable": {"thread_id": thread}}) is not None
        except Exception:  # noqa: BLE001  # what cannot be read is there all the same, and can be deleted
            had = True
        saver.delete_thread(thread)
    return had
