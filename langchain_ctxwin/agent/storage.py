"""What belongs to a thread: where it runs, its background summaries, its pictures and files, and what it may spend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import AIMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from langchain_ctxwin.core import plan as planning
from langchain_ctxwin.core.compaction import after_failure, with_spent
from langchain_ctxwin.core.model_info import MONEY, Usage
from langchain_ctxwin.core.provider_blocks import (
    apart,
    digest,
    digests_in,
    filled,
    media_in,
)
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import Pending
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ConfigError, SummarizationError, ThreadBudgetError
from langchain_ctxwin.summarize.jobs import (
    SummaryStore,
    too_slow,
    writing,
    writing_summary,
)
from langchain_ctxwin.summarize.model import NativeSummarizer, Written
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


NOWHERE = RunPlace()
"""Outside of a graph."""


def place_of(runtime: Runtime[Any] | None) -> RunPlace:
    """Return the place of a graph run; an empty one outside of a graph."""
    info, store = (runtime.execution_info, runtime.store) if runtime else (None, None)
    # A thread id alone keeps nothing: servers pass one as a label.
    if not info or not get_config()["configurable"].get(CHECKPOINTER):
        return NOWHERE
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    thread = str(info.thread_id)
    return RunPlace(
        "|".join([thread, *names]),
        summaries=SummaryStore(store, thread, "|".join(names)) if store else None,
        thread_id=thread,
        media=ThreadStore(store, "media", thread) if store else None,
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


def advanced(step: AgentStep) -> Work[None]:
    """Collect the summary on its way, or begin one when it is due."""
    window = step.window
    pending = window.session.pending
    if pending is None:
        is_on_demand = isinstance(step.engine.summarizer, NativeSummarizer)
        if due := planning.prepare(window, is_on_demand=is_on_demand):
            _begin(step, *due)
    elif pending.is_written:
        if window.need() and window.price_text(pending.text) >= window.room:
            _fail(step, pending, "it has no room any more")
    else:
        job, store = step.engine.jobs.find(pending.key), step.place.summaries
        written, failure = (job.written, job.failure) if job else (None, "")
        seconds = window.settings.summary_timeout_seconds
        age_seconds = abs(step.engine.clock() - pending.since)
        if job and age_seconds >= seconds and not (written or failure):
            failure = too_slow(seconds)
        # another process may have it
        if store is not None and (job is None or failure):
            written = yield from store.getting(pending.key)
        is_lost = job is None and (store is None or age_seconds > PATIENCE * seconds)
        if written is not None:
            _finish(step, pending, written)
        elif failure:
            _fail(step, pending, failure)
        elif is_lost and not window.over_by:
            yield from _written_here(step, pending)


def _written_here(step: AgentStep, pending: Pending) -> Work[None]:
    """Write a summary that was lost, while the turn waits: what was lost once may be lost again."""
    seconds = step.window.settings.summary_timeout_seconds
    try:
        write = _writing(step, pending)
        written = yield from writing_summary(write, timeout_seconds=seconds)
    except SummarizationError as error:
        _fail(step, pending, str(error))
    else:
        _finish(step, pending, written)


def _begin(step: AgentStep, due: Pending, reason: str) -> None:
    place, engine, window = step.place, step.engine, step.window
    # Equal messages after another past, in another branch, under another system prompt, or read by another summarizer,
    # or one that is told something else, make another summary.
    past = (place.thread, str(step.system_prompt), window.session.summary)
    settings = window.settings
    told = (settings.summary_prompt or "", *settings.summary_sections)
    key = digest(*past, due.digest, engine.writer, *told)
    pending = replace(due, key=key, since=engine.clock())
    is_begun = engine.jobs.start(
        key,
        _writing(step, pending),
        store=place.summaries,
        thread_id=place.thread_id,
    )
    if is_begun:
        engine.report_summary(window, "started", reason=reason)
        step.go_on(replace(window.session, pending=pending))


def _writing(step: AgentStep, pending: Pending) -> Callable[[], Any]:
    return writing(
        step.engine.summarizer,
        step.window,
        pending.start,
        pending.stop,
        pending.max_tokens,
        call=step.called,
    )


def _finish(step: AgentStep, pending: Pending, written: Written) -> None:
    """Have a finished summary wait to be shown; one that is longer than what it covers is refused."""
    window, block = step.window, written.block
    info = step.engine.summarizer_info()
    session = with_spent(window.session, written.usage, info)
    covered = window.history.messages[pending.start : pending.stop]
    covered_tokens = sum(map(window.price, covered), window.price_text(session.summary))
    tokens = window.price(AIMessage([block] if block else written.text))
    step.go_on(session)
    if tokens >= covered_tokens:
        reason = f"it has {tokens:,} tokens, what it covers {covered_tokens:,}"
        _fail(step, pending, reason, written)
        return
    step.engine.report_summary(window, "ready", written)
    ready = replace(pending, text=written.text, block=block)
    step.go_on(replace(session, pending=ready))


def _fail(
    step: AgentStep, pending: Pending, reason: str, written: Written | None = None
) -> None:
    """Give a summary up: nothing is lost, and it is counted, with its cost if known."""
    window, engine = step.window, step.engine
    engine.report_summary(window, "failed", written, reason=reason)
    engine.jobs.forget(pending.key)
    step.go_on(after_failure(window, reason))


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
    window, store = step.window, step.place.media
    is_apart = window.settings.media == "store"
    if is_apart and step.place.thread and store is None:
        raise ConfigError(NO_STORE)
    messages, media = window.history.messages, window.history.media
    if store is None or not media:
        return
    in_view = window.shown_media().items()
    shown = [messages[i] for i, gone in in_view if gone < len(media_in(messages[i]))]
    if is_apart:
        hidden = {messages[index].id for index in media} - {one.id for one in shown}
        data = dict[str, str]()
        for one in step.stored_messages:
            if one.id in hidden:
                data |= apart(one)[1]
        if data and (yield from store.putting(data)):
            step.rewrite(hidden, lambda message: apart(message)[0])
    if digests := frozenset[str]().union(*map(digests_in, shown)):
        stored = yield from store.getting(digests)
        back = {one.id for one in shown}
        step.rewrite(back, lambda message: filled(message, stored))


# ---- what a thread may spend, where that is bounded -----------------------------------------------------------------

NEAR_SHARE = Decimal("0.8")
"""Of a limit: it is reported while something is still left to decide about."""

AMOUNTS = {"max_thread_tokens": "tokens", "max_thread_cost": "cost"}
"""The settings that bound what a thread spends, with what `context_guard` calls each amount."""


class Bound(NamedTuple):
    """One limit of a thread, and what was spent of it; USD or tokens."""

    setting: str
    spent: Decimal
    limit: Decimal

    def about(self) -> dict[str, str]:
        """Return it as JSON; numbers as text, so that money stays exact."""
        return {name: str(value) for name, value in self._asdict().items()}


def within_budget(step: AgentStep) -> None:
    """Return while the thread has something left to spend; else raise, or ask for more where that is set.

    Raises:
        ConfigError: the cost is bounded, and no source states the prices of a model.
        ThreadBudgetError: the thread spent all that it may.
    """
    settings = step.window.settings
    if settings.max_thread_cost is not None:
        _require_prices(step)
    while over := next((one for one in _bounds(step) if one.spent >= one.limit), None):
        name = over.setting
        if settings.on_budget == "raise" or not step.place.thread:
            raise ThreadBudgetError(
                f"the thread spent {over.spent} of {name}={over.limit}: raise {name}, begin another thread, or set "
                "on_budget='interrupt' (with a checkpointer) to be asked"
            )
        more = {"resume_with": {name: str(2 * over.spent)}}
        answer = interrupt({"reason": "thread_budget", **over.about(), **more})
        # asked again where the answer is none
        with suppress(LookupError, TypeError, ValueError):
            limit = str(MONEY.validate_python(answer[name]))
            session = step.window.session
            allowed = {**(session.guard.get("allowed") or {}), name: limit}
            guard = {**session.guard, "allowed": allowed}
            step.go_on(replace(session, guard=guard))


def count_spent(step: AgentStep, window: Window, answers: Sequence[AIMessage]) -> None:
    """Add what the answers to a request cost to what the state says of the thread, where that is bounded."""
    before = _bounds(step)
    if not before:
        return
    session, info = step.window.session, step.engine.info_of(window)
    for answer in answers:
        usage = Usage.of_answer(answer)
        # by our own count
        if usage.input_tokens is None or usage.output_tokens is None:
            output_tokens = window.price(answer)
            usage = Usage(input_tokens=window.total_tokens, output_tokens=output_tokens)
        session = with_spent(session, usage, info)
    step.go_on(session)
    for old, new in zip(before, _bounds(step), strict=True):
        if old.spent < NEAR_SHARE * old.limit <= new.spent:
            model = window.model
            step.engine.reporter.notice("budget_near", model, **new.about())


def _bounds(step: AgentStep) -> list[Bound]:
    """The limits that are set, what was allowed since included, with what answers and summaries took."""
    settings, guard = step.window.settings, step.window.session.guard
    spent, allowed = guard.get("spent") or {}, guard.get("allowed") or {}
    return [
        Bound(
            name,
            Decimal(spent.get(amount, 0)),
            max(Decimal(limit), Decimal(allowed.get(name, 0))),
        )
        for name, amount in AMOUNTS.items()
        if (limit := getattr(settings, name))
    ]


def _require_prices(step: AgentStep) -> None:
    engine, model = step.engine, step.window.model
    most = step.window.settings.max_thread_cost
    known = {model: engine.info_of(step.window)}
    if not engine.is_local:
        known.setdefault(engine.summarizer_model, engine.summarizer_info())
    for name, info in known.items():
        if Usage(input_tokens=0, output_tokens=0).cost(info) is None:
            raise ConfigError(
                f"max_thread_cost={most} needs the prices of {name or 'a model without a name'}, which nobody states: "
                "pass prices=ModelRegistry() or prices=ModelInfo(name=..., input_price=..., output_price=...), or "
                "bound max_thread_tokens"
            )
