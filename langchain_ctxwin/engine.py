"""The four verbs of one agent step: measure, plan (or emergency), apply, build.

messages, state, call
  -- read_history            core/turns      the history in steps; what is known of a conversation is extended
  -- read_session            core/session    the stored session, with every position checked against the history
  -- measured                core/measuring  a `Request`: under the stored view, repaired, priced, with its limits
  -- summary_due, emergency, relieve   core/plan: by `request.need()`, which holds every threshold; a `Compaction`
  -- compaction.applied()    core/compaction the session after it; the request is priced already
  -- request.assembled()     core/request    the messages, which `dressed` fits to their provider
  -- from_answer, refused    core/measuring  what the model's answer teaches

A request is called `Window` where applications see it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AnyMessage, MessageLikeRepresentation, SystemMessage

from langchain_ctxwin.config import ContextConfig, LiveConfig
from langchain_ctxwin.core import plan as planning
from langchain_ctxwin.core.compaction import (
    Compaction,
    after_failure,
    after_summary,
    with_spent,
)
from langchain_ctxwin.core.events import SummaryEvent, SummaryStatus
from langchain_ctxwin.core.limits import (
    ModelLimits,
    for_everybody,
    refusal,
    stated_limit,
)
from langchain_ctxwin.core.measuring import (
    accepted_tokens,
    after_measure,
    measured,
    refused,
    retry_target,
)
from langchain_ctxwin.core.model_info import (
    ModelInfo,
    family_of,
    model_name,
    rules_of,
    unbound,
)
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.pairing import merge_system
from langchain_ctxwin.core.provider_blocks import in_prompt
from langchain_ctxwin.core.provider_call import call_arguments, dressed
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import Json, Session, State, read_session, verified
from langchain_ctxwin.core.tool_schemas import listed, recall_name
from langchain_ctxwin.core.turns import as_messages
from langchain_ctxwin.errors import SummarizationError, UnknownModelError, brief, expect
from langchain_ctxwin.pricing import Pricing
from langchain_ctxwin.protocols import (
    Clock,
    LimitMemory,
    MetricsSink,
    Summarizer,
    TokenCounter,
)
from langchain_ctxwin.reporting import Prices, Reporter
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.summarize.jobs import (
    default_jobs,
    marked_in,
    writing,
    writing_summary,
)
from langchain_ctxwin.summarize.model import (
    NATIVE,
    NativeSummarizer,
    Written,
    as_summarizer,
    native_summarizer,
    writer_of,
)
from langchain_ctxwin.util.work import Work, arun, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A request that fits its model, and the session to pass to the next one.

    Attributes:
        request: The messages to send, the system message first when there is one.
        session: What the next call of `ContextEngine.fit` takes as `session`; JSON.
        report: Tokens of the request by region, its limit, and what was cut: what graphs call `context_report`.
    """

    request: list[AnyMessage]
    session: Json
    report: Json


class ContextEngine:
    """Decides what the model sees so that every request fits; immutable, one for any number of conversations.

    Setup:
        ```bash
        pip install langchain-ctxwin
        ```

    Key init args:
        limits: `ModelLimits`, or anything `ModelLimits.of` reads: a number, a profile, a chat model, a `ModelInfo`. A
            `ModelRegistry` is asked about the model of each request; with None each model states its own.
        counter: any callable shaped like `count_tokens_approximately`; by default an estimator for the model's family.
        summarizer: a chat model or its name, a Runnable or a callable (sync or async) that writes summaries. With None
            the record alone says what left. Where it is the agent's own model object, it reads the conversation from
            the provider's prompt cache. "native" has the provider of the agent's model (Anthropic, OpenAI's Responses
            API) write a block, which begins later requests to it.
        config: when to compact and what to keep; a `ConfigFile` is followed while the program runs.
        learned: remembers the limits that providers state, for other conversations, where they are plausible for the
            model. With None a limit holds only in the conversation whose request was refused.
        jobs: writes summaries in the background; by default one set of threads for the whole process.
        sinks: take the events of `langchain_ctxwin.observe`: every step, compaction, summary, recovery and refusal.
            They are called in the turn; what one raises is logged, and the turn goes on.
        prices: prices of models, for the costs in events: a `ModelInfo`, a `ModelRegistry`, or a function from a name
            to a `ModelInfo`. By default those that `limits` has, or the candidate that a router chose.
        clock: seconds since the epoch, for `compact_when_idle`.

    Instantiate:
        ```python
        engine = ContextEngine(
            limits=ModelLimits(context_window=8192, max_output_tokens=1024)
        )
        ```

    Use:
        ```python
        fitted = engine.fit(
            messages, session=session, system_prompt="You are ...", tools=tools
        )
        answer = model.invoke(fitted.request)
        session = fitted.session
        ```

    Raises:
        UnknownModelError: no limit is known, and a guess is impossible or not allowed.
        ConfigError: limits or settings contradict each other, or an argument is of the wrong type.
    """

    def __init__(
        self,
        limits: Any,
        counter: TokenCounter | None = None,
        summarizer: Any = None,
        config: ContextConfig | LiveConfig | None = None,
        *,
        learned: LimitMemory | None = None,
        jobs: SummaryJobs | None = None,
        sinks: Iterable[MetricsSink] = (),
        prices: Any = None,
        clock: Clock = time.time,
    ) -> None:
        config = ContextConfig() if config is None else config
        wanted = "a ContextConfig, for example ContextConfig(keep=0.4)"
        is_class = isinstance(config, type)
        current = config if is_class else getattr(config, "current", config)
        expect(current, ContextConfig, "config", wanted)
        wanted = "a callable that counts the tokens of messages, for example TokenEstimator(), or None"
        expect(counter, Callable | None, "counter", wanted)
        wanted = 'LearnedSource("limits.json"), or None'
        expect(learned, LimitMemory | None, "learned", wanted)
        expect(jobs, SummaryJobs | None, "jobs", "SummaryJobs(), or None")
        self._live: LiveConfig = config
        is_registry = hasattr(limits, "lookup") and not isinstance(limits, type)
        self._registry = limits if is_registry else None
        self.limits = ModelLimits()
        """Limits of requests that name no model of their own; unknown where models or a registry state them."""
        if self._registry is None and limits is not None:
            self.limits = self._checked(ModelLimits.of(limits), limits)
        self.model = "" if self._registry else model_name(limits)
        """Name of the model that the limits are of; empty when they were given as numbers."""
        self._rules = rules_of(limits)
        self._pricing = Pricing(counter, family=family_of(limits))
        self.clock = clock
        self._learned = learned
        self.summarizer: Summarizer | NativeSummarizer
        """Writes the summaries."""
        if summarizer == NATIVE:
            self.summarizer = native_summarizer(limits)
        else:
            count = self._pricing.count
            self.summarizer = as_summarizer(summarizer, counter=count)
        self.is_local = bool(getattr(self.summarizer, "is_local", False))
        """No model writes summaries: the record is all there is, and takes milliseconds."""
        self.summarizer_model = model_name(self.summarizer)
        """Name of the model that writes the summaries; empty when there is none, or it is unknown."""
        self.writer = writer_of(self.summarizer)
        """Identifies the summarizer among those of other engines, in every process."""
        self.jobs = jobs or default_jobs()
        """Writes summaries in the background."""
        self.reporter = Reporter(sinks)
        """Hands events to the sinks."""
        is_priced = isinstance(limits, ModelInfo) or self._registry is not None
        self.prices = Prices(limits if prices is None and is_priced else prices)
        """Says what the models cost."""

    @property
    def config(self) -> ContextConfig:
        """The settings that hold now. A request keeps those that held when it was measured."""
        return self._live.current

    def with_settings(self, settings: Mapping[str, Any]) -> ContextEngine:
        """Return this engine with some settings of its `ContextConfig` changed; what it remembers is shared.

        A run can change them itself: what its context holds under `ctxwin` (`context_schema`) counts in that run.

        Args:
            settings: by the names of the fields of `ContextConfig`.

        Raises:
            ConfigError: one of the settings is unknown or invalid, or contradicts another.

        Examples:
            >>> engine = ContextEngine(ModelLimits(context_window=8192))
            >>> engine.with_settings({"keep": 0.4}).config.keep
            0.4
        """
        # a file's settings of tool results, routing and alerts are none of an engine's
        config = self.config
        # the default of `keep` follows a lower trigger
        fields = {*ContextConfig.model_fields} - ({"keep"} - config.model_fields_set)
        own = config.model_dump(include=fields)
        wanted = "settings of ContextConfig by their names, such as {'keep': 0.4}"
        changes = expect(settings, Mapping, "settings", wanted)
        config = ContextConfig(**{**own, **changes})
        other = copy(self)
        vars(other).update(_live=config)
        return other

    def fit(
        self,
        messages: Sequence[MessageLikeRepresentation] | str,
        *,
        session: State | None = None,
        system_prompt: str | SystemMessage = "",
        tools: Sequence[Any] = (),
    ) -> Fitted:
        """Return the request for a history: the same messages where they fit, compacted where they do not.

        It measures, compacts what is due, and builds. A summary that is due is written within the call, whatever
        `ContextConfig.summarize` says of the background; without a summarizer nothing is waited for.

        Args:
            messages: the full history, system prompt not included; also dicts, pairs and texts.
            session: what the call before returned; None starts fresh.
            system_prompt: what leads the request.
            tools: the definitions bound to the model.

        Raises:
            BudgetExceededError: the request cannot be made to fit, whatever leaves.
            ConfigError: a limit leaves no room for input, or something is no message or tool.

        Examples:
            >>> from langchain_ctxwin import ContextEngine, ModelLimits
            >>> engine = ContextEngine(
            ...     ModelLimits(context_window=8192, max_output_tokens=1024)
            ... )
            >>> fitted = engine.fit(
            ...     [("user", "Hello!")], system_prompt="You are brief."
            ... )
            >>> [message.content for message in fitted.request]
            ['You are brief.', 'Hello!']
        """
        return run(
            self._fitting(messages, session, system_prompt=system_prompt, tools=tools)
        )

    async def afit(
        self,
        messages: Sequence[MessageLikeRepresentation] | str,
        *,
        session: State | None = None,
        system_prompt: str | SystemMessage = "",
        tools: Sequence[Any] = (),
    ) -> Fitted:
        """Like `fit`, awaiting the summarizer."""
        return await arun(
            self._fitting(messages, session, system_prompt=system_prompt, tools=tools)
        )

    def _fitting(
        self, messages: Any, session: State | None, **fixed: Any
    ) -> Work[Fitted]:
        window = self.measure(messages, session=session, **fixed)
        for planned in (self.plan, self.emergency, self.relieve):
            compaction = planned(window)
            if compaction is not None:
                window = yield from self.applying(compaction, window)
        next_session = after_measure(window).to_json()
        return Fitted(
            request=self.build(window), session=next_session, report=window.report
        )

    def measure(
        self,
        messages: Sequence[MessageLikeRepresentation] | str,
        *,
        system_prompt: str | SystemMessage = "",
        tools: Sequence[Any] = (),
        session: State | Session | None = None,
        model: Any = None,
        called: Any = None,
    ) -> Window:
        """Return the next request, every region of it priced once.

        Args:
            messages: the full history, system prompt not included; also dicts, pairs and texts.
            system_prompt: what leads the request.
            tools: the definitions bound to the model.
            session: the `context_*` keys of the conversation's state; None starts fresh.
            model: the model of this request, where its limits differ from the engine's. Where it states none, the
                engine's hold.
            called: the model that the request goes to, where the limits come from elsewhere. Its provider decides what
                in the request has to be repaired.

        Raises:
            ConfigError: a learned or configured limit leaves no room for input, or something is no message or tool.
        """
        messages, tools = as_messages(messages), listed(tools)
        wanted = "a text or a SystemMessage"
        expect(system_prompt, str | SystemMessage, "system_prompt", wanted)
        wanted = "the session that the call before returned, or None"
        expect(session, Mapping | Session | None, "session", wanted)
        if model is None and not self.limits.known:
            model = called  # which states its limits, or a registry does
        answers = model if called is None else called
        rules = self._rules if answers is None else rules_of(answers)
        settings = self.config
        pricing = self._pricing.of(called if model is None else model)
        history = pricing.history(messages)
        system = merge_system(system_prompt, history.messages[: history.first])
        is_stored = not isinstance(session, Session)
        session = (
            verified(session, history)
            if isinstance(session, Session)
            else read_session(session, history)
        )
        window = self._measured(
            Window(
                history=history,
                settings=settings,
                price=pricing.price,
                price_tools=pricing.tool_set,
                system=system,
                system_tokens=pricing.base_tokens
                + (pricing.price(system) if system else 0),
                tools=tools,
                tool_tokens=pricing.tool_set(in_prompt(tools, rules.provider)).tokens,
                tools_digest=pricing.tool_set(tools).digest,
                doubt=pricing.doubt,
                is_exact=pricing.exact,
                model=model_name(model) or self.model or model_name(called),
                declared=self._limits_of(model, called),
                info=called if isinstance(called, ModelInfo) else None,
                rules=rules,
                now_seconds=self.clock() if settings.compact_when_idle else None,
                pins=history.marked,
                recall=recall_name(tools),
                session=session,
            )
        )
        for fault in window.session.faults if is_stored else ():
            self.reporter.notice("session_mended", fault=fault)
        return window

    def _limits_of(self, model: Any, called: Any) -> ModelLimits:
        """The limits of a request: those of its model, else the engine's, with the output that is asked for.

        What a registry states now, which it caches, counts before what the model says of itself.
        """
        limits = self.limits if model is None else ModelLimits.of(model)
        try:
            if self._registry is not None:
                asked = limits.requested_output_tokens
                stated = self._registry.lookup(model).limits
                limits = replace(stated, requested_output_tokens=asked)
        except UnknownModelError:
            if not (limits.known or self.config.allow_guess):
                raise
        if not limits.known:
            own = self.limits
            limits = own if own.known else self._checked(limits, model)
        if limits.requested_output_tokens is None:
            asked = ModelLimits.of(called).requested_output_tokens
            limits = replace(limits, requested_output_tokens=asked)
        return limits

    def _checked(self, limits: ModelLimits, model: Any) -> ModelLimits:
        """The limits of a model, guessed where that is allowed; raise for those that leave no input."""
        settings = self.config
        try:
            if settings.allow_guess:
                limits = limits.guessed()
            limits.room(settings.output_reserve)
        except UnknownModelError as error:
            name = model_name(model) or brief(unbound(model))
            raise UnknownModelError(f"{name}: {error}") from error
        return limits

    def plan(self, window: Window) -> Compaction | None:
        """Return the compaction by a summary that is due now, or None; pure, calls no model.

        It is None, too, when summaries are off, would not pay for themselves, or failed twice in a row, the last
        time since the last user message.
        """
        return planning.summary_due(window, is_local=self.is_local)

    def relieve(self, window: Window) -> Compaction | None:
        """Return a compaction for a request that fits, or None; pure, calls no model.

        There is one where the history is past a bound of its own (`trigger`, `max_history_tokens`,
        `trigger_messages`): it shrinks to a summary that is ready, or without one.
        """
        return planning.relieve(window)

    def on_request(self, window: Window, *, focus: str = "") -> Compaction | None:
        """Return the compaction that the host asks for, or None when it would free less than a tenth; pure.

        Args:
            window: the measured request; it may fit.
            focus: what matters most from now on, in a few words: see `compact`, which does this for a thread.
        """
        return planning.compaction_on_request(
            replace(window, focus=focus), is_local=self.is_local
        )

    def emergency(
        self, window: Window, *, target_tokens: int | None = None
    ) -> Compaction | None:
        """Return the compaction that a request which does not fit needs; None when it fits, or nothing can leave.

        Pure, calls no model. What cannot be made to fit is sent all the same while it may be smaller than we count: the
        provider decides, and recovery covers the rest.

        Args:
            window: the measured request.
            target_tokens: a limit for the request's upper bound that is stricter than the input limit.

        Raises:
            BudgetExceededError: the request cannot be made to fit, whatever leaves.
        """
        return planning.emergency(window, target_tokens)

    def apply(self, compaction: Compaction | None, window: Window) -> Json:
        """Carry a compaction out and return the update of the `context_*` keys; applying it twice gives the same view.

        For None, which `plan` returns where nothing is due, the update is empty. A summarizer that fails changes only
        `context_guard`, which then says why.

        Args:
            compaction: what leaves, and whether a summary is written of it.
            window: the request that it was planned for.
        """
        return run(self._applied(compaction, window))

    async def aapply(self, compaction: Compaction | None, window: Window) -> Json:
        """Like `apply`, awaiting the summarizer."""
        return await arun(self._applied(compaction, window))

    def _applied(self, compaction: Compaction | None, window: Window) -> Work[Json]:
        if compaction is None:
            return {}
        after = yield from self.applying(compaction, window)
        return after.session.to_json()

    def applying(
        self, compaction: Compaction, window: Window, *, call: Any = None
    ) -> Work[Window]:
        """The work of `apply`, for sync and async callers: the request afterwards, priced, with its session.

        `call` is what the agent's requests go to, tools bound. Where the summarizer is the same model object, it is
        asked by one more message behind what it sums up, as sent, which the provider has in its cache.
        """
        window = replace(window, focus=compaction.before.focus)
        began = time.perf_counter()
        if compaction.snapshot is None:
            after = compaction.applied(window)
        else:
            start, stop = compaction.snapshot
            size = compaction.summary_max_tokens
            seconds = window.settings.summary_timeout_seconds
            self.report_summary(window, "started")
            try:
                write = writing(self.summarizer, window, start, stop, size, call=call)
                written = yield from writing_summary(write, timeout_seconds=seconds)
            except SummarizationError as error:
                session = after_failure(window, str(error))
                after = replace(window, session=session)
            else:
                info = self.summarizer_info()
                session = with_spent(window.session, written.usage, info)
                window = replace(window, session=session)
                after = after_summary(
                    compaction, window, written.text, block=written.block
                )
                self.report_summary(window, "ready", written)
        if after.session.compactions > window.session.compactions:
            seconds = time.perf_counter() - began
            self.reporter.compacted(compaction, window, after, seconds=seconds)
        elif compaction.snapshot:
            reason = str(after.session.guard["reason"])
            self.report_summary(window, "refused", reason=reason)
        return after

    def build(self, window: Window) -> list[AnyMessage]:
        """Return the message list that the model sees, the system message first when there is one.

        Messages bear the breakpoints of prompt caches that have them. `call_options` has what goes along with them.
        """
        return dressed(window)

    def call_options(
        self,
        window: Window,
        messages: Sequence[AnyMessage],
        *,
        conversation: str = "",
        call: Any = None,
    ) -> dict[str, Any]:
        """Return the arguments that go along with a request; the nodes and the middleware pass them by themselves.

        They are Anthropic's breakpoint behind the newest message, the key of OpenAI's cache, and an empty list of tools
        where Gemini has stored the tools with its cached content.

        Args:
            window: the request as measured.
            messages: the request as built.
            conversation: its name, for the key of OpenAI's cache; by default the id of its first message.
            call: the chat model that is called, tools bound. What it sets already stays as it is.

        Examples:
            >>> from langchain_core.messages import HumanMessage
            >>> from langchain_ctxwin import ContextEngine, ModelInfo
            >>> engine = ContextEngine(
            ...     ModelInfo(
            ...         name="claude", provider="anthropic", context_window=200_000
            ...     )
            ... )
            >>> window = engine.measure([HumanMessage("Hello!")])
            >>> engine.call_options(window, engine.build(window))
            {'cache_control': {'type': 'ephemeral'}}
        """
        return call_arguments(window, messages, conversation=conversation, call=call)

    def learn(
        self, window: Window, overflow: ContextOverflow, *, is_stated: bool = True
    ) -> Window:
        """Measure a refused request again with what the refusal stated.

        A stated limit is also given to the memory `learned`. One that was inferred from an answer (`is_stated=False`)
        holds for this conversation alone.
        """
        declared = window.declared
        if is_stated and self._learned is not None:
            stated = stated_limit(overflow, accepted_tokens(window))
            if learned := for_everybody(stated, declared):
                self._learned.learn(window.model, learned)
        session = replace(window.session, counts=refused(window, overflow))
        return self._measured(replace(window, session=session), was_refused=True)

    def shrunk(self, learned: Window, refused: Window, *, number: int = 1) -> Window:
        """Return the request after a refusal, compacted where that is due.

        Args:
            learned: the refused request as `learn` measures it anew; it may have other tools.
            refused: the request that was sent.
            number: which time in a row a refusal makes the request smaller; each aims lower than the one before.

        Raises:
            BudgetExceededError: the request is at its smallest and still too large.
        """
        before = refused.view.without_media.items()
        if learned.view.without_media.items() - before:
            return learned
        target_tokens = retry_target(learned, number)
        compaction = self.emergency(learned, target_tokens=target_tokens)
        if compaction is None:
            if learned.tools_digest != refused.tools_digest:
                return learned
            raise refusal(learned.report)
        return run(self.applying(compaction, learned))

    def require_summarizer(self, call: Any) -> None:
        """Raise `ConfigError` where summaries are to come from the provider of a model that writes none."""
        if isinstance(self.summarizer, NativeSummarizer):
            native_summarizer(call)

    def in_background(self, window: Window) -> bool:
        """True when summaries are written off the critical path; one that needs no model is written in place."""
        return window.settings.summarize == "background" and not self.is_local

    def info_of(self, window: Window) -> ModelInfo | None:
        """Return the facts about the model of a request, with its prices; None when it is unknown."""
        return self.prices.of(window.model, window.info)

    def report_summary(
        self,
        window: Window,
        status: SummaryStatus,
        written: Written | None = None,
        *,
        reason: str = "",
    ) -> None:
        """Report what became of a summary, and what it cost where one was written."""
        facts: dict[str, Any] = {}
        quoting = {"reason": reason}
        if written is not None:
            invented, usage = marked_in(written.text), written.usage
            quoting["unsupported_values"] = ", ".join(invented)
            facts = {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "seconds": round(written.seconds, 3),
                "cost": usage.cost(self.summarizer_info()),
                "unsupported": len(invented),
            }
        event = SummaryEvent(
            status=status,
            model=self.summarizer_model,
            # what follows a colon may quote messages
            reason=reason.partition(": ")[0],
            quoting=quoting,
            compactions=window.session.compactions + 1,
            **facts,
        )
        self.reporter.emit(event)

    def summarizer_info(self) -> ModelInfo | None:
        """Return the prices of the model that writes summaries."""
        name = self.summarizer_model
        return self.prices.of(name, is_agent=name == self.model)

    def _measured(self, window: Window, *, was_refused: bool = False) -> Window:
        limits = self._learned.recall(window.model) if self._learned is not None else {}
        shared = (n for n in limits.values() if for_everybody(n, window.declared))
        return measured(window, shared, was_refused=was_refused)
