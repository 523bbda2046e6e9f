"""Keep the newest checkpoint of a thread only, with all that the ones before it are needed for.

    the newest checkpoints, made whole  ->  a spare thread  ->  the thread anew  ->  the spare one goes

A delta channel is rebuilt from the writes of older checkpoints: deleting those alone empties it without an error.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from functools import partial
from typing import Any

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.pregel import Pregel

from langchain_ctxwin.errors import ConfigError, ContextWindowError, expect
from langchain_ctxwin.util.work import Wait, Work, arun, run

__all__ = ["aprune_thread", "prune_thread"]

SPARE_OF = "ctxwin_spare_of"
"""Key in the metadata of a spare thread's checkpoints: the thread that is being pruned."""

_PASSING = ("branch:", "__")  # how the channels begin that LangGraph empties after each step


def spare_of(thread_id: str) -> str:
    """Return the name of a thread's spare one: no name that people give can be mistaken for it.

    Examples:
        >>> spare_of("42")[:30]
        'ctxwin-pruning-73475cb40a568e8'
    """
    return f"ctxwin-pruning-{hashlib.sha256(thread_id.encode('utf-8', 'surrogatepass')).hexdigest()}"


def prune_thread(graph: Pregel[Any, Any, Any, Any], thread_id: str) -> int:
    """Remove all checkpoints of a thread but the newest of each namespace, and return how many went.

    What the newest one is rebuilt from, such as the messages of a `ContextState`, is put into it first. Time travel
    and forks to what went are over. The thread must be idle: what a run stores meanwhile may go, too. When the process
    dies in the middle, the thread may be gone until this is called again: it finishes then. Where nothing has to be put
    into the newest one, a checkpointer with a `prune` of its own does it, in its own way and in one transaction.

    Args:
        graph: the compiled graph that wrote the thread.
        thread_id: its name.

    Raises:
        ConfigError: the graph has no checkpointer, or the thread holds a subgraph that the graph has not.
        ContextWindowError: the thread was begun anew after a process died while it was pruned, or the name of its spare
            one is another thread's.

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


class _Pruning:
    """Prunes one thread; written once for sync and async callers."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any], thread_id: str) -> None:
        saver = expect(graph, Pregel, "graph", "the compiled graph that wrote the thread").checkpointer
        if not isinstance(saver, BaseCheckpointSaver):
            raise ConfigError(
                f"checkpointer={saver!r}: pass the graph that was compiled with the thread's checkpointer"
            )
        self._graph, self._saver = graph, saver
        self._thread, self._spare = thread_id, spare_of(thread_id)

    def work(self) -> Work[int]:
        yield from self._finish()
        count, newest = yield from self._newest(self._thread)
        if count == len(newest):
            return 0
        kept = list[CheckpointTuple]()
        for found in newest:
            kept += [(yield from self._made_whole(found))]
        # What is rebuilt from nothing older can be left to the checkpointer: most do that in one transaction.
        is_whole = all(one is found for one, found in zip(kept, newest, strict=True))
        if not is_whole or not (yield from self._pruned_by_saver()):
            yield from self._written([_marked(one, self._thread) for one in kept], self._spare)
            yield from self._renewed(kept)
        left, _ = yield from self._newest(self._thread)
        return count - left

    def _pruned_by_saver(self) -> Work[bool]:
        """Let the checkpointer prune, and return whether it does that at all."""
        try:
            yield self._asking("prune", [self._thread], strategy="keep_latest")
        except NotImplementedError:
            return False
        return True

    def _renewed(self, kept: list[CheckpointTuple]) -> Work[None]:
        """Replace the thread by what the spare one holds."""
        yield self._asking("delete_thread", self._thread)
        yield from self._written(kept, self._thread)
        yield self._asking("delete_thread", self._spare)

    def _finish(self) -> Work[None]:
        """Bring to an end what a process left in the middle."""
        _, spare = yield from self._newest(self._spare)
        if not spare:
            return
        root = spare[-1]
        if any(one.metadata.get(SPARE_OF) != self._thread for one in spare):
            raise ContextWindowError(
                f"thread {self._spare!r} is not what pruning {self._thread!r} left: delete it if nobody needs it"
            )
        spare = [_marked(one, None) for one in spare]
        if _namespace(root):  # the root is written last: without it, nothing was deleted yet
            yield self._asking("delete_thread", self._spare)
            return
        _, there = yield from self._newest(self._thread)
        if not there or _namespace(there[-1]):
            yield from self._renewed(spare)
            return
        where = {"thread_id": self._thread, "checkpoint_ns": "", "checkpoint_id": root.checkpoint["id"]}
        if (yield self._asking("get_tuple", {"configurable": where})) is None:
            raise ContextWindowError(
                f"thread {self._thread!r} was begun anew while its history was in thread {self._spare!r}: "
                "delete the one that you do not need, or write its messages to the other"
            )
        yield self._asking("delete_thread", self._spare)

    def _newest(self, thread: str) -> Work[tuple[int, list[CheckpointTuple]]]:
        """Return how many checkpoints a thread has, and the newest of each namespace, that of the root last."""
        config: Any = {"configurable": {"thread_id": thread}}
        count, newest = 0, dict[str, CheckpointTuple]()

        def take(found: CheckpointTuple) -> None:
            nonlocal count
            count += 1
            known = newest.get(_namespace(found))
            if known is None or found.checkpoint["id"] > known.checkpoint["id"]:
                newest[_namespace(found)] = found

        def listed() -> None:
            for found in self._saver.list(config):
                take(found)

        async def alisted() -> None:
            async for found in self._saver.alist(config):
                take(found)

        yield Wait(listed, alisted)
        return count, sorted(newest.values(), key=lambda found: not _namespace(found))

    def _made_whole(self, found: CheckpointTuple) -> Work[CheckpointTuple]:
        """Put into a checkpoint what delta channels are rebuilt from older ones."""
        namespace, checkpoint = _namespace(found), found.checkpoint
        missing = checkpoint["channel_versions"].keys() - checkpoint["channel_values"].keys()
        name = "|".join(part.partition(":")[0] for part in namespace.split("|"))
        graph = dict(self._graph.get_subgraphs(recurse=True)).get(name) if namespace else self._graph
        channels = getattr(graph, "channels", None)
        if channels is None and any(not channel.startswith(_PASSING) for channel in missing):
            raise ConfigError(
                f"namespace {namespace!r} of thread {self._thread!r} belongs to no subgraph of this graph: pass the "
                "graph that wrote the thread, or delete the thread"
            )
        known = (channels or {}).items()
        deltas = {key: spec for key, spec in known if key in missing and isinstance(spec, DeltaChannel)}
        if not deltas:
            return found
        histories = yield self._asking("get_delta_channel_history", config=found.config, channels=[*deltas])
        values = dict(checkpoint["channel_values"])
        for key, spec in deltas.items():
            channel = spec.from_checkpoint(histories[key].get("seed", spec.typ()))
            channel.replay_writes(histories[key]["writes"])
            values[key] = channel.get()  # LangGraph reads a plain value like a snapshot
        whole: Any = {**checkpoint, "channel_values": values}
        return found._replace(checkpoint=whole)

    def _written(self, kept: list[CheckpointTuple], thread: str) -> Work[None]:
        for one in kept:
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": _namespace(one)}}
            held = one.checkpoint["channel_values"].keys()
            versions = {name: version for name, version in one.checkpoint["channel_versions"].items() if name in held}
            stored = yield self._asking("put", config, one.checkpoint, one.metadata, versions)
            by_task = defaultdict[str, list[tuple[str, Any]]](list)
            for task, channel, value in one.pending_writes or ():
                by_task[task].append((channel, value))
            for task, writes in by_task.items():
                yield self._asking("put_writes", stored, writes, task)

    def _asking(self, method: str, *given: Any, **options: Any) -> Wait:
        """The wait for what a method of the checkpointer answers, which exists with an "a" before its name, too."""
        now, later = getattr(self._saver, method), getattr(self._saver, f"a{method}")
        return Wait(partial(now, *given, **options), partial(later, *given, **options))


def _marked(found: CheckpointTuple, thread: str | None) -> CheckpointTuple:
    """A checkpoint of the spare thread; without a thread, as it was before."""
    metadata: dict[str, Any] = {key: value for key, value in found.metadata.items() if key != SPARE_OF}
    marked: Any = metadata if thread is None else {**metadata, SPARE_OF: thread}
    return found._replace(metadata=marked)


def _namespace(found: CheckpointTuple) -> str:
    return str(found.config["configurable"].get("checkpoint_ns") or "")
