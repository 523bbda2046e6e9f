"""Where a conversation runs, its background summaries (begun, collected, given up), and its pictures and files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, SystemMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime

from langchain_ctxwin.core import plan as planning
from langchain_ctxwin.core.compaction import accepted_tokens, after_failure, with_cost
from langchain_ctxwin.core.fitting import first_part
from langchain_ctxwin.core.provider_blocks import apart, digests_in, filled, media_in
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import Pending, content_digest
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import ConfigError, SummarizationError
from langchain_ctxwin.summarize.jobs import SummaryStore, Written, writing_summary
from langchain_ctxwin.summarize.native import NativeSummarizer
from langchain_ctxwin.util.stores import MediaStore
from langchain_ctxwin.util.work import Work

if TYPE_CHECKING:
    from langchain_ctxwin.agent.step import AgentStep

# Where LangGraph (1.0) says in a run's configuration what keeps its state; it has no public name for that.
CHECKPOINTER = "__pregel_checkpointer"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a conversation runs."""

    thread: str = ""
    """Name of the conversation; empty without a checkpointer."""

    summaries: SummaryStore | None = None
    """Holds finished summaries of other processes; None when there is no store."""

    thread_id: str = ""
    """The conversation's thread, which subgraphs share; empty without a checkpointer."""

    media: MediaStore | None = None
    """Where pictures and files are that left the view; None when there is no store."""

    prompt_scope: str = ""
    """The system prompt, where a conversation has no name: part of its key, so that agents share no summaries."""


NOWHERE = RunPlace()
"""Outside of a graph."""


def place_of(runtime: Runtime[Any] | None, prompt: str | SystemMessage) -> RunPlace:
    """Return the place of a graph run with this system prompt; an empty one outside of a graph."""
    info = runtime.execution_info if runtime else None
    if runtime is None or info is None:
        return NOWHERE
    # A thread id alone keeps nothing: servers pass one as a label.
    if not info.thread_id or not get_config()["configurable"].get(CHECKPOINTER):
        return RunPlace(
            prompt_scope=prompt if isinstance(prompt, str) else repr(prompt.content)
        )
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    place = RunPlace("|".join([info.thread_id, *names]), thread_id=info.thread_id)
    if runtime.store is None:
        return place
    return replace(
        place,
        summaries=SummaryStore(runtime.store, info.thread_id, "|".join(names)),
        media=MediaStore(runtime.store, info.thread_id),
    )


def engine_of(engine: ContextEngine, runtime: Runtime[Any] | None) -> ContextEngine:
    """Return the engine with the settings that the context of a run holds under `ctxwin`.

    Raises:
        ConfigError: one of them is unknown or invalid.
    """
    context = runtime.context if runtime else None
    settings = (
        context.get("ctxwin")
        if isinstance(context, Mapping)
        else getattr(context, "ctxwin", None)
    )
    return engine if settings is None else engine.with_settings(settings)


PATIENCE = 1.25
"""Times its time-out after which a summary that another process was writing is given up: its queue and its store need
time too, and clocks differ."""


class BackgroundSummaries:
    """The background summaries of one conversation: begun when due, collected when ready; nothing waits for them."""

    def __init__(self, step: AgentStep) -> None:
        self._step, self._engine, self._place = step, step.engine, step.place

    def stored(self, window: Window) -> Work[Written | None]:
        """Return what another process put into the store for the summary on its way."""
        pending, store = window.session.pending, self._place.summaries
        if pending is None or pending.is_written or store is None:
            return None
        job = self._engine.jobs.find(pending.key)
        if job and not job.failure:
            return None
        return (yield from store.getting(pending.key))

    def advance(self, window: Window, stored: Written | None = None) -> Window:
        """Return the window with the summary on its way collected, or with one begun when it is due."""
        pending = window.session.pending
        if pending is None:
            writer = self._engine.summarizer
            is_on_demand = isinstance(writer, NativeSummarizer)
            due = planning.prepare(window, is_on_demand=is_on_demand)
            return self._start(window, *due) if due else window
        if pending.is_written:
            return self._still_usable(window, pending)
        job = self._engine.jobs.find(pending.key)
        if written := stored or (job.written if job else None):
            return self.finished(window, pending, written)
        if job and job.failure:
            return self.failed(window, pending, job.failure)
        return window

    def is_lost(self, window: Window) -> bool:
        """True when, as far as this process can know, nobody writes the summary on its way any more."""
        pending = window.session.pending
        if pending is None or pending.is_written:
            return False
        job = self._engine.jobs.find(pending.key)
        if job:  # one that ended at this moment is collected by the next step
            return False
        age_seconds = abs(self._engine.clock() - pending.since_seconds)
        return (
            self._place.summaries is None
            or age_seconds > PATIENCE * settings_of(window).summary_timeout_seconds
        )

    def written_here(self, window: Window, pending: Pending) -> Work[Window]:
        """Write a summary that was lost again, of the messages as they are now."""
        try:
            seconds = settings_of(window).summary_timeout_seconds
            written = yield from writing_summary(
                self._writing(window, pending), timeout_seconds=seconds
            )
        except SummarizationError as error:
            return self.failed(window, pending, str(error))
        digest = content_digest(
            window.parts.messages, pending.start.index, pending.stop
        )
        return self.finished(window, replace(pending, digest=digest), written)

    def _writing(self, window: Window, pending: Pending) -> Callable[[], str]:
        start, stop, size = pending.start.index, pending.stop, pending.max_tokens
        call, thread = self._step.called, self._place.thread
        return self._engine.writing(
            window, start, stop, size, call=call, conversation=thread
        )

    def finished(self, window: Window, pending: Pending, written: Written) -> Window:
        """Return the window that knows the finished summary, cut where it is too long, or longer than its messages."""
        window = replace(window, session=with_cost(window.session, written.cost))
        parts = window.parts
        replaced = parts.messages[pending.start.index : pending.stop]
        replaced_tokens = parts.price_text(window.session.summary)
        replaced_tokens += sum(map(parts.price, replaced))
        most_tokens = min(accepted_tokens(pending.max_tokens), replaced_tokens - 1)
        text, block = written.text.strip(), written.block
        if block and parts.price(AIMessage([block])) >= replaced_tokens:
            reason = f"the block of its provider is larger than {replaced_tokens:,} tokens that it covers"
            return self.failed(window, pending, reason, written)
        if not (block and block.get("content")):  # a signed text has to stay whole
            text = first_part(text, most_tokens, parts.price_text)
        if not (text or block):
            reason = f"not a line of the summary fits in {most_tokens:,} tokens"
            return self.failed(window, pending, reason, written)
        fitting = replace(written, text=text)
        self._engine.report_summary(window, "ready", pending.key, fitting)
        return _with_pending(window, replace(pending, text=text, block=block))

    def failed(
        self,
        window: Window,
        pending: Pending,
        reason: str,
        written: Written | None = None,
    ) -> Window:
        """Return the window after a summary that failed: nothing is lost, and it is counted, with its cost if known."""
        self._engine.report_summary(
            window, "failed", pending.key, written, reason=reason
        )
        self._engine.jobs.forget(pending.key)
        return replace(window, session=after_failure(window, reason))

    def _still_usable(self, window: Window, pending: Pending) -> Window:
        """The window with a finished summary that waits to be shown; one that no longer fits or holds is dropped."""
        is_needed = window.over_by > 0 or planning.past_bound(window)
        if is_needed and not pending.matches(window.parts.messages):
            return self.failed(window, pending, "its messages were edited since")
        if window.parts.price_text(pending.text) >= window.room:
            return self.failed(window, pending, "there is no room for it any more")
        return window

    def _start(self, window: Window, due: Pending, reason: str) -> Window:
        place = self._place
        # Equal messages after another past, in another branch, or read by another summarizer, make another summary.
        about = (
            place.thread,
            place.prompt_scope,
            due.digest,
            window.session.summary,
            self._engine.writer,
        )
        work = "\0".join(about)
        digest = hashlib.blake2b(work.encode("utf-8", "surrogatepass"), digest_size=12)
        pending = replace(
            due, key=digest.hexdigest(), since_seconds=self._engine.clock()
        )
        is_begun = self._engine.jobs.start(
            pending.key,
            self._writing(window, pending),
            timeout_seconds=settings_of(window).summary_timeout_seconds,
            store=place.summaries,
            thread_id=place.thread_id,
        )
        if not is_begun:
            return window
        size = pending.stop - pending.start.index
        self._engine.report_summary(
            window, "started", pending.key, reason=reason, messages=size
        )
        return _with_pending(window, pending)


def _with_pending(window: Window, pending: Pending) -> Window:
    return replace(window, session=replace(window.session, pending=pending))


# ---- pictures and files: in a store once they left the view, back in the state when shown again ---------------------

NO_STORE = (
    'media="store", and this run has no store: compile the graph with store=, such as InMemoryStore() or '
    'PostgresStore, or set ContextConfig(media="state")'
)


def placing_media(step: AgentStep) -> Work[None]:
    """Move the data of messages that left the view to the store, and bring back those that are shown again.

    A message is replaced in the state by one of the same id. What the store does not take stays in the state, and what
    it does not have is shown as a line.

    Raises:
        ConfigError: data are to be in a store, and the run has none.
    """
    window, place = step.window, step.place
    is_apart, store = settings_of(window).media == "store", place.media
    if is_apart and place.thread and store is None:
        raise ConfigError(NO_STORE)
    messages, media = window.parts.messages, window.parts.history.media
    if store is None or not media:
        return
    state_messages = {message.id: message for message in step.state_messages}
    in_view = window.parts.media_in(window.view)
    shown = [i for i, gone in in_view.items() if gone < len(media_in(messages[i]))]
    visible = [messages[index] for index in shown]
    if is_apart:
        others = {messages[index].id for index in media} - {one.id for one in visible}
        hidden_data = {
            key: apart(state_messages[key])[1] for key in others & state_messages.keys()
        }
        data = {
            digest: text
            for texts in hidden_data.values()
            for digest, text in texts.items()
        }
        if data and (yield from store.putting(data)):
            gone = {key for key, texts in hidden_data.items() if texts}
            step.rewrite(gone, lambda message: apart(message)[0])
    if digests := frozenset[str]().union(*map(digests_in, visible)):
        stored_data = yield from store.getting(digests)
        back = {one.id for one in visible if digests_in(one) & stored_data.keys()}
        step.rewrite(back, lambda message: filled(message, stored_data))
