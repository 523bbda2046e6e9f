"""Keep the newest checkpoint of a thread only, with all that it is rebuilt from, or delete a conversation.

    the newest checkpoints, made whole  ->  a spare thread  ->  the thread anew  ->  the spare one goes

A delta channel is rebuilt from the writes of older checkpoints: deleting those alone empties it without an error.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore

from langchain_ctxwin.core.provider_blocks import digest
from langchain_ctxwin.errors import ConfigError, ContextWindowError, expect
from langchain_ctxwin.protocols import ResultStore
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.summarize.jobs import default_jobs
from langchain_ctxwin.tool_results.cursors import namespace_of_results
from langchain_ctxwin.tool_results.stores import LangGraphResultStore
from langchain_ctxwin.util.stores import delete_items, namespace_of

__all__ = ["forget", "prune_thread"]

Saver = BaseCheckpointSaver[Any]

# how the channels begin that LangGraph empties after each step
_PASSING = ("branch:", "__")


def spare_of(thread_id: str) -> str:
    """Return the name of a thread's spare one: no name that people give can be mistaken for it.

    Examples:
        >>> spare_of("42")
        'ctxwin-pruning-25fc5c9066d977e4698e519b'
    """
    return f"ctxwin-pruning-{digest(thread_id)}"


def prune_thread(graph: Pregel[Any, Any, Any, Any], thread_id: str) -> int:
    """Remove all checkpoints of a thread but the newest of each namespace, and return how many went.

    What the newest one is rebuilt from, such as the messages of a `ContextState`, is put into it first. Time travel
    and forks to what went are over. The thread must be idle: what a run stores meanwhile may go, too. Blocks; for async
    checkpointers call it by `asyncio.to_thread`. When the process
    dies in the middle, the thread may be gone until this is called again: it finishes then. Where nothing has to be put
    into the newest one, a checkpointer with a `prune` of its own does it, in its own way and in one transaction.

    Args:
        graph: the compiled graph that wrote the thread.
        thread_id: its name.

    Raises:
        ConfigError: the graph has no checkpointer, or the thread holds a subgraph that the graph has not.
        ContextWindowError: the thread was begun anew after a process died while it was pruned.

    Examples:
        ```python
        prune_thread(agent, "thread-1")
        ```
    """
    expect(graph, Pregel, "graph", "the compiled graph that wrote the thread")
    wanted = "the graph that was compiled with the thread's checkpointer"
    saver = expect(graph.checkpointer, BaseCheckpointSaver, "checkpointer", wanted)
    _finish(saver, thread_id)
    count, newest = _newest(saver, thread_id)
    if count == len(newest):
        return 0
    whole = [_made_whole(graph, one) for one in newest]
    try:
        # what is rebuilt from nothing older is left to the checkpointer: most do it in one transaction
        is_pruned = whole == newest
        if is_pruned:
            saver.prune([thread_id], strategy="keep_latest")
    except NotImplementedError:
        is_pruned = False
    if not is_pruned:
        _write(saver, whole, spare_of(thread_id))
        _renew(saver, whole, thread_id)
    return count - _newest(saver, thread_id)[0]


def _renew(saver: Saver, checkpoints: list[CheckpointTuple], thread_id: str) -> None:
    """Replace a thread by what its spare one holds."""
    saver.delete_thread(thread_id)
    _write(saver, checkpoints, thread_id)
    saver.delete_thread(spare_of(thread_id))


def _finish(saver: Saver, thread_id: str) -> None:
    """Bring to an end what a process left in the middle; the root of a thread is written last."""
    spare_id = spare_of(thread_id)
    _, spare = _newest(saver, spare_id)
    if not spare:
        return
    if not _namespace(spare[-1]):
        _, there = _newest(saver, thread_id)
        if not there or _namespace(there[-1]):
            _renew(saver, spare, thread_id)
            return
        place = {"thread_id": thread_id, "checkpoint_ns": ""}
        place["checkpoint_id"] = spare[-1].checkpoint["id"]
        if not saver.get_tuple({"configurable": place}):
            raise ContextWindowError(
                f"thread {thread_id!r} was begun anew while its history was in thread {spare_id!r}: delete the one "
                "that you do not need, or write its messages to the other"
            )
    saver.delete_thread(spare_id)


def _newest(saver: Saver, thread_id: str) -> tuple[int, list[CheckpointTuple]]:
    """Return how many checkpoints a thread has, and the newest of each namespace, that of the root last."""
    count, newest = 0, dict[str, CheckpointTuple]()
    for one in saver.list({"configurable": {"thread_id": thread_id}}):
        count += 1
        newest.setdefault(_namespace(one), one)  # savers list the newest first
    return count, sorted(newest.values(), key=_namespace, reverse=True)


def _made_whole(graph: Any, one: CheckpointTuple) -> CheckpointTuple:
    """Put into a checkpoint what delta channels are rebuilt from older ones."""
    checkpoint, namespace = one.checkpoint, _namespace(one)
    values = dict(checkpoint["channel_values"])
    missing = checkpoint["channel_versions"].keys() - values.keys()
    name = "|".join(part.partition(":")[0] for part in namespace.split("|"))
    is_known = name in ("", *(known for known, _ in graph.get_subgraphs(recurse=True)))
    if not is_known and any(not key.startswith(_PASSING) for key in missing):
        raise ConfigError(
            f"namespace {namespace!r} belongs to no subgraph of this graph: pass the graph that wrote the thread, or "
            "delete the thread"
        )
    state = graph.get_state(one.config).values
    # LangGraph reads a plain value like a snapshot
    values |= {key: state[key] for key in missing if key in state}
    whole: Any = {**checkpoint, "channel_values": values}
    return one._replace(checkpoint=whole)


def _write(saver: Saver, checkpoints: list[CheckpointTuple], thread_id: str) -> None:
    for one in checkpoints:
        place = {"thread_id": thread_id, "checkpoint_ns": _namespace(one)}
        versions = {
            name: version
            for name, version in one.checkpoint["channel_versions"].items()
            if name in one.checkpoint["channel_values"]
        }
        stored = saver.put(
            {"configurable": place}, one.checkpoint, one.metadata, versions
        )
        by_task = defaultdict[str, list[tuple[str, Any]]](list)
        for task, channel, value in one.pending_writes or ():
            by_task[task].append((channel, value))
        for task, writes in by_task.items():
            saver.put_writes(stored, writes, task)


def _namespace(one: CheckpointTuple) -> str:
    return str(one.config["configurable"].get("checkpoint_ns") or "")


def forget(
    thread_id: str,
    *,
    store: BaseStore | None = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    results: ResultStore | None = None,
    jobs: SummaryJobs | None = None,
) -> None:
    """Delete what this package keeps of a conversation, and its checkpoints where the checkpointer is given.

    The thread must be idle. What is not there is no error: call it again after a failure, or later. The checkpoints,
    by which somebody finds the thread, go last. Blocks; for async stores and checkpointers call it in another thread.

    Args:
        thread_id: name of the conversation.
        store: the graph's store: summaries, pictures and files that left the view, large results of tools.
        checkpointer: that of the graph; what a pruning left that died is deleted from it, too.
        results: another store of large results, where the guard was given one.
        jobs: writes the summaries of your engines; by default those that all engines of a process share.

    Raises:
        ConfigError: there is no thread id. What a store or server raises is raised as it is.

    Examples:
        >>> from langgraph.store.memory import InMemoryStore
        >>> forget("42", store=InMemoryStore())
    """
    wanted = "the id of the thread to forget, as a text"
    expect(thread_id, str if thread_id else (), "thread_id", wanted)
    (jobs or default_jobs()).cancel_thread(thread_id)
    result_stores: list[Any] = [results] if results is not None else []
    if store is not None:
        for kind in ("summaries", "media"):
            delete_items(store, namespace_of(kind, thread_id))
        result_stores.append(LangGraphResultStore(store))
    for one in result_stores:
        one.clear(namespace_of_results(thread_id))
    if checkpointer is not None:
        checkpointer.delete_thread(spare_of(thread_id))
        checkpointer.delete_thread(thread_id)
