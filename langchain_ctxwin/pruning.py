"""Keep the newest checkpoint of a thread only, with all that the ones before it are needed for.

    the newest checkpoints, made whole  ->  a spare thread  ->  the thread anew  ->  the spare one goes

A delta channel is rebuilt from the writes of older checkpoints: deleting those alone empties it without an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.pregel import Pregel

from langchain_ctxwin.errors import ConfigError, ContextWindowError
from langchain_ctxwin.util.work import Wait, Work, arun, run

__all__ = ["aprune_thread", "prune_thread"]

SPARE = " (being pruned)"
"""What the name of the spare thread ends with."""

_PASSING = ("branch:", "__")
"""How the channels begin that LangGraph empties after each step."""

Specs = Mapping[str, Any]
"""The channels of a graph, by name."""


def prune_thread(graph: Pregel[Any, Any, Any, Any], thread_id: str) -> int:
    """Remove all checkpoints of a thread but the newest of each namespace, and return how many went.

    What the newest one is rebuilt from, such as the messages of a `ContextState`, is put into it first. Time travel
    and forks to what went are over. The thread must be idle: what a run stores meanwhile may go, too. When the process
    dies in the middle, the thread may be gone until this is called again: it finishes then.

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
    done: int = run(_Pruning(graph, thread_id).work())
    return done


async def aprune_thread(graph: Pregel[Any, Any, Any, Any], thread_id: str) -> int:
    """Like `prune_thread`, for async checkpointers."""
    done: int = await arun(_Pruning(graph, thread_id).work())
    return done


@dataclass(frozen=True, slots=True)
class _Kept:
    """The newest checkpoint of a namespace, made whole."""

    namespace: str
    found: CheckpointTuple
    checkpoint: Checkpoint


class _Pruning:
    """Prunes one thread; written once for sync and async callers."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any], thread_id: str) -> None:
        saver = graph.checkpointer
        if not isinstance(saver, BaseCheckpointSaver):
            raise ConfigError(
                f"checkpointer={saver!r}: pass the graph that was compiled with the thread's checkpointer"
            )
        self._graph, self._saver = graph, saver
        self._thread, self._spare = thread_id, f"{thread_id}{SPARE}"

    def work(self) -> Work[int]:
        yield from self._finish()
        count, newest = yield from self._newest(self._thread)
        if count == len(newest):
            return 0
        kept = list[_Kept]()
        for found in newest:
            kept += [(yield from self._made_whole(found))]
        yield from self._written(kept, self._spare)
        yield self._deleting(self._thread)
        yield from self._written(kept, self._thread)
        yield self._deleting(self._spare)
        return count - len(newest)

    def _finish(self) -> Work[None]:
        """Bring to an end what a process left in the middle."""
        _, spare = yield from self._newest(self._spare)
        root = next((found for found in spare if not _namespace(found)), None)
        if root is not None:  # it is written last: the spare thread is whole
            _, there = yield from self._newest(self._thread)
            if not any(not _namespace(found) for found in there):
                kept = [_Kept(_namespace(found), found, found.checkpoint) for found in spare]
                yield self._deleting(self._thread)
                yield from self._written(kept, self._thread)
            elif (yield self._getting(self._thread, root.checkpoint["id"])) is None:
                raise ContextWindowError(
                    f"thread {self._thread!r} was begun anew while its history was in thread {self._spare!r}: "
                    "delete the one that you do not need, or write its messages to the other"
                )
        if spare:
            yield self._deleting(self._spare)

    def _newest(self, thread: str) -> Work[tuple[int, list[CheckpointTuple]]]:
        """Return how many checkpoints a thread has, and the newest of each namespace, that of the root last."""
        config: Any = {"configurable": {"thread_id": thread}}

        def listed() -> tuple[int, list[CheckpointTuple]]:
            seen = _Newest()
            for found in self._saver.list(config):
                seen.take(found)
            return seen.count, seen.in_order()

        async def alisted() -> tuple[int, list[CheckpointTuple]]:
            seen = _Newest()
            async for found in self._saver.alist(config):
                seen.take(found)
            return seen.count, seen.in_order()

        count, newest = yield Wait(listed, alisted)
        return count, newest

    def _made_whole(self, found: CheckpointTuple) -> Work[_Kept]:
        """Put into a checkpoint what delta channels are rebuilt from older ones."""
        namespace, checkpoint = _namespace(found), found.checkpoint
        missing = checkpoint["channel_versions"].keys() - checkpoint["channel_values"].keys()
        specs = self._specs(namespace)
        if specs is None and any(not name.startswith(_PASSING) for name in missing):
            raise ConfigError(
                f"namespace {namespace!r} of thread {self._thread!r} belongs to no subgraph of this graph: pass the "
                "graph that wrote the thread, or delete the thread"
            )
        deltas = {
            name: spec for name, spec in (specs or {}).items() if name in missing and isinstance(spec, DeltaChannel)
        }
        if not deltas:
            return _Kept(namespace, found, checkpoint)
        histories = yield Wait(
            lambda: self._saver.get_delta_channel_history(config=found.config, channels=[*deltas]),
            lambda: self._saver.aget_delta_channel_history(config=found.config, channels=[*deltas]),
        )
        values = dict(checkpoint["channel_values"])
        for name, spec in deltas.items():
            channel = spec.from_checkpoint(histories[name].get("seed", spec.typ()))
            channel.replay_writes(histories[name]["writes"])
            values[name] = channel.get()  # LangGraph reads a plain value like a snapshot
        whole: Any = {**checkpoint, "channel_values": values}
        return _Kept(namespace, found, whole)

    def _specs(self, namespace: str) -> Specs | None:
        """The channels of the graph that writes to a namespace; None when nobody knows it."""
        if not namespace:
            return self._graph.channels
        name = "|".join(part.partition(":")[0] for part in namespace.split("|"))
        found = dict(self._graph.get_subgraphs(recurse=True)).get(name)
        return getattr(found, "channels", None)

    def _written(self, kept: list[_Kept], thread: str) -> Work[None]:
        for one in kept:
            yield from self._put(one, {"configurable": {"thread_id": thread, "checkpoint_ns": one.namespace}})

    def _put(self, one: _Kept, config: Any) -> Work[None]:
        checkpoint, metadata = one.checkpoint, one.found.metadata
        held = checkpoint["channel_values"].keys()
        versions = {name: version for name, version in checkpoint["channel_versions"].items() if name in held}
        stored = yield Wait(
            lambda: self._saver.put(config, checkpoint, metadata, versions),
            lambda: self._saver.aput(config, checkpoint, metadata, versions),
        )
        for task, writes in _by_task(one.found):
            yield Wait(
                lambda task=task, writes=writes: self._saver.put_writes(stored, writes, task),  # type: ignore[misc]
                lambda task=task, writes=writes: self._saver.aput_writes(stored, writes, task),  # type: ignore[misc]
            )

    def _deleting(self, thread: str) -> Wait:
        return Wait(lambda: self._saver.delete_thread(thread), lambda: self._saver.adelete_thread(thread))

    def _getting(self, thread: str, checkpoint_id: str) -> Wait:
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}
        return Wait(lambda: self._saver.get_tuple(config), lambda: self._saver.aget_tuple(config))


class _Newest:
    """The newest checkpoint of each namespace among those that are listed, newest first."""

    def __init__(self) -> None:
        self.count = 0
        self._found: dict[str, CheckpointTuple] = {}

    def take(self, found: CheckpointTuple) -> None:
        self.count += 1
        namespace = _namespace(found)
        known = self._found.get(namespace)
        if known is None or found.checkpoint["id"] > known.checkpoint["id"]:
            self._found[namespace] = found

    def in_order(self) -> list[CheckpointTuple]:
        return sorted(self._found.values(), key=lambda found: not _namespace(found))


def _namespace(found: CheckpointTuple) -> str:
    return str(found.config["configurable"].get("checkpoint_ns") or "")


def _by_task(found: CheckpointTuple) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    writes = defaultdict[str, list[tuple[str, Any]]](list)
    for task, channel, value in found.pending_writes or ():
        writes[task].append((channel, value))
    yield from writes.items()
