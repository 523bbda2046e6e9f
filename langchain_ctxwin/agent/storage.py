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
from langchain_ctxwin.core.session import Pending
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import ConfigError, SummarizationError
from langchain_ctxwin.summarize.jobs import SummaryStore, Written, writing_summary
from langchain_ctxwin.summarize.native import NativeSummarizer
from langchain_ctxwin.util.stores import ThreadStore
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

    media: ThreadStore | None = None
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
    thread, store = info.thread_id, runtime.store
    if not thread or not get_config()["configurable"].get(CHECKPOINTER):
        return RunPlace(prompt_scope=str(prompt))
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    return RunPlace(
        thread="|".join([thread, *names]),
        thread_id=thread,
        summaries=SummaryStore(store, thread, "|".join(names))
        if store is not None
        else None,
        media=ThreadStore(store, "media", thread) if store is not None else None,
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


# ---- background summaries: begun when due, collected when ready; nothing waits for them -----------------------------


def advanced(step: AgentStep, window: Window) -> Work[Window]:
    """Return the window with the summary on its way collected, or with one begun when it is due."""
    pending = window.session.pending
    if pending is None:
        is_on_demand = isinstance(step.engine.summarizer, NativeSummarizer)
        due = planning.prepare(window, is_on_demand=is_on_demand)
        return _begun(step, window, *due) if due else window
    if pending.is_written:
        return _still_usable(step, window, pending)
    job, store = step.engine.jobs.find(pending.key), step.place.summaries
    written, failure = (job.written, job.failure) if job else (None, "")
    if store is not None and (job is None or failure):  # another process may have it
        written = yield from store.getting(pending.key)
    if written is not None:
        return _finished(step, window, pending, written)
    return _failed(step, window, pending, failure) if failure else window


def is_lost(step: AgentStep, window: Window) -> bool:
    """True when, as far as this process can know, nobody writes the summary on its way any more."""
    pending = window.session.pending
    if pending is None or pending.is_written or step.engine.jobs.find(pending.key):
        return False
    patience_seconds = PATIENCE * settings_of(window).summary_timeout_seconds
    age_seconds = abs(step.engine.clock() - pending.since)
    return step.place.summaries is None or age_seconds > patience_seconds


def written_here(step: AgentStep, window: Window, pending: Pending) -> Work[Window]:
    """Write a summary that was lost again, of the messages as they are now."""
    start, stop = pending.start.index, pending.stop
    digest = window.parts.history.digest(start, stop)
    try:
        written = yield from writing_summary(
            _writing(step, window, pending),
            timeout_seconds=settings_of(window).summary_timeout_seconds,
        )
    except SummarizationError as error:
        return _failed(step, window, pending, str(error))
    return _finished(step, window, replace(pending, digest=digest), written)


def _writing(step: AgentStep, window: Window, pending: Pending) -> Callable[[], str]:
    return step.engine.writing(
        window,
        pending.start.index,
        pending.stop,
        pending.max_tokens,
        call=step.called,
        conversation=step.place.thread,
    )


def _finished(
    step: AgentStep, window: Window, pending: Pending, written: Written
) -> Window:
    """The window that knows the finished summary, cut where it is too long, or longer than its messages."""
    window = replace(window, session=with_cost(window.session, written.cost))
    parts, block = window.parts, written.block
    replaced_tokens = parts.price_text(window.session.summary)
    replaced = parts.messages[pending.start.index : pending.stop]
    replaced_tokens += sum(map(parts.price, replaced))
    most_tokens = min(accepted_tokens(pending.max_tokens), replaced_tokens - 1)
    text, reason = written.text.strip(), ""
    if not (block and block.get("content")):  # a signed text has to stay whole
        text = first_part(text, most_tokens, parts.price_text)
    if block and parts.price(AIMessage([block])) >= replaced_tokens:
        reason = f"the block of its provider is larger than {replaced_tokens:,} tokens that it covers"
    elif not (text or block):
        reason = f"not a line of the summary fits in {most_tokens:,} tokens"
    if reason:
        return _failed(step, window, pending, reason, written)
    fitting = replace(written, text=text)
    step.engine.report_summary(window, "ready", pending.key, fitting)
    return _with_pending(window, replace(pending, text=text, block=block))


def _failed(
    step: AgentStep,
    window: Window,
    pending: Pending,
    reason: str,
    written: Written | None = None,
) -> Window:
    """The window after a summary that failed: nothing is lost, and it is counted, with its cost if known."""
    step.engine.report_summary(window, "failed", pending.key, written, reason=reason)
    step.engine.jobs.forget(pending.key)
    return replace(window, session=after_failure(window, reason))


def _still_usable(step: AgentStep, window: Window, pending: Pending) -> Window:
    """The window with a finished summary that waits to be shown; one that no longer fits or holds is dropped."""
    reason = ""
    if window.need() and not pending.matches(window.parts.history):
        reason = "its messages were edited since"
    elif window.parts.price_text(pending.text) >= window.room:
        reason = "there is no room for it any more"
    return _failed(step, window, pending, reason) if reason else window


def _begun(step: AgentStep, window: Window, due: Pending, reason: str) -> Window:
    place, engine = step.place, step.engine
    # Equal messages after another past, in another branch, or read by another summarizer, make another summary.
    about = (place.thread, place.prompt_scope, due.digest, window.session.summary)
    work = "\0".join((*about, engine.writer)).encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(work, digest_size=12).hexdigest()
    pending = replace(due, key=key, since=engine.clock())
    is_begun = engine.jobs.start(
        key,
        _writing(step, window, pending),
        timeout_seconds=settings_of(window).summary_timeout_seconds,
        store=place.summaries,
        thread_id=place.thread_id,
    )
    if not is_begun:
        return window
    size = pending.stop - pending.start.index
    engine.report_summary(window, "started", key, reason=reason, messages=size)
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
    in_view = window.parts.media_in(window.view).items()
    shown = [messages[i] for i, gone in in_view if gone < len(media_in(messages[i]))]
    if is_apart:
        hidden = {messages[index].id for index in media} - {one.id for one in shown}
        moved = {
            one.id: apart(one)[1] for one in step.state_messages if one.id in hidden
        }
        data = {key: text for texts in moved.values() for key, text in texts.items()}
        if data and (yield from store.putting(data)):
            gone_ids = {key for key, texts in moved.items() if texts}
            step.rewrite(gone_ids, lambda message: apart(message)[0])
    if digests := frozenset[str]().union(*map(digests_in, shown)):
        stored = yield from store.getting(digests)
        back = {one.id for one in shown if digests_in(one) & stored.keys()}
        step.rewrite(back, lambda message: filled(message, stored))
