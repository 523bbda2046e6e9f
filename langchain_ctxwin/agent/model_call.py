"""One model call with recovery: call, and when the request was too large for the provider, compact and call again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.errors import GraphBubbleUp

from langchain_ctxwin.agent.choices import known_name
from langchain_ctxwin.agent.events import recovery_event, refusal_event
from langchain_ctxwin.agent.state import tools_of
from langchain_ctxwin.agent.step import AgentStep, Flow
from langchain_ctxwin.core.events import NoticeEvent, StepEvent
from langchain_ctxwin.core.limits import REGIONS, ModelLimits
from langchain_ctxwin.core.model_info import arguments_of
from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow
from langchain_ctxwin.core.provider_call import forgets_history, refuses_reasoning, without_response_ids
from langchain_ctxwin.core.recovery import fitting_output, only_model, silent_overflow, smaller_output
from langchain_ctxwin.core.tool_schemas import name_of
from langchain_ctxwin.core.updates import Lesson, from_answer, small_report, update_without_reasoning, without_sizes
from langchain_ctxwin.core.usage import answered_by, sent_tokens
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import settings_of
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError, NoModelFitsError, RemainingTooSmallError
from langchain_ctxwin.util.work import Wait, Work

if TYPE_CHECKING:
    from langchain_ctxwin.observe.validation import Validator  # takes a while to import


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of the model."""

    request: list[AnyMessage]
    options: dict[str, int] = field(default_factory=dict)
    """Arguments that ask for less output than the model was set to."""

    route: dict[str, Any] = field(default_factory=dict)
    """The argument that names the candidate of a routed model."""

    native: dict[str, Any] = field(default_factory=dict)
    """What goes along for the provider's prompt cache and its own compaction."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments for this call alone."""
        return {**self.native, **self.route, **self.options}


Send = Callable[[Attempt], Wait]
"""Calls the model with an attempt; an adapter's own way to do so."""


class ModelCall:
    """The calls of one model about one request, until it answers or nothing can be done.

    Args:
        flow: what happens around the call.
        call: what is called, tools bound.
        validator: compares counts with what the provider reports.
    """

    def __init__(self, flow: Flow, call: Any, *, validator: Validator | None = None) -> None:
        self._flow = flow
        self._report = flow.engine.reporter.emit
        self._call = call
        self._validator = validator
        # Where a run may choose another model, nobody knows what its answer was asked to be.
        self._requested_output = ModelLimits.of(call).requested_output_tokens if only_model(call) else None

    def answer(self, step: AgentStep, send: Send) -> Work[AIMessage]:
        """Return the model's answer; what it taught is noted in the step.

        Raises:
            BudgetExceededError: the history was edited since it was checked, and nothing that may leave makes it fit.
            Exception: the provider's own, when it is no overflow, or recovery came to its end.
        """
        with self._flow.reporting_refusal(step):
            self._fit(step)
        began = perf_counter()
        most = settings_of(step.window).max_recoveries
        attempt = self._attempt(step, self._flow.request(step))
        for number in count(1):
            error: Exception | None = None
            try:
                attempt, reply = yield from self._unrefused(step, attempt, send)
                overflow = self._silent(step.window, attempt, reply)
            except GraphBubbleUp:  # an interrupt or a command, whatever it quotes
                raise
            except Exception as refusal:
                error, overflow = refusal, classify_overflow(refusal)
                if overflow is not None and number > most:
                    self._report(refusal_event(step.window, refusal))
                if overflow is None or number > most:
                    raise
            if overflow is None or number > most:
                break
            try:
                attempt = yield from self._next(step, attempt, overflow, number, error)
            except (BudgetExceededError, NoModelFitsError) as exhausted:
                self._report(refusal_event(step.window, exhausted))
                if error is None:
                    step.update({}, self._flow.engine.learn(step.window, overflow, is_stated=False))
                    break  # an answer that was cut off is all there is
                error.add_note(str(exhausted))
            else:
                continue
            raise error
        window = step.window
        step.update(self._flow.choices.answered(step.state, reply))
        # A candidate that took over is told of with its own limits and prices; measured only where somebody listens.
        told = step.window if self._flow.engine.reporter.sinks else window
        answer, counts = self._learned(window, reply, was_cut=overflow is not None)
        step.update({"context_counts": counts})
        self._report_step(step, told, answer, seconds=perf_counter() - began, calls=number)
        return answer

    def _unrefused(self, step: AgentStep, attempt: Attempt, send: Send) -> Work[tuple[Attempt, Any]]:
        """What was sent, and the reply; reasoning that is refused, because it is tied to another prefix, is left out.

        A refusal is the caller's where nothing is left to leave out.
        """
        try:
            return attempt, (yield from self._sent(attempt, send))
        except GraphBubbleUp:
            raise
        except Exception as refusal:
            if not refuses_reasoning(refusal):
                raise
            step.update(update_without_reasoning(step.window))
            again = self._attempt(step, self._flow.request(step))
            if again == attempt:
                raise
        self._report(NoticeEvent(model=step.window.about.model, notice="reasoning_left_out"))
        return again, (yield from self._sent(again, send))

    @staticmethod
    def _sent(attempt: Attempt, send: Send) -> Work[Any]:
        """The reply; a server that no longer has what the request goes on from is sent all of it."""
        try:
            return (yield send(attempt))
        except Exception as refusal:
            whole = without_response_ids(attempt.request)
            if not forgets_history(refusal) or whole == attempt.request:
                raise
        return (yield send(replace(attempt, request=whole)))

    def _report_step(self, step: AgentStep, window: Window, answer: AIMessage, *, seconds: float, calls: int) -> None:
        """Report the answered request; nothing is made ready where nobody listens."""
        engine, choices = self._flow.engine, self._flow.choices
        if not engine.reporter.sinks:
            return
        offered = [name_of(tool) for tool in window.about.tools]
        deferred = len(choices.selector.tools) - len(tools_of(step.state)) if choices.selector else 0
        report = window.report
        event = StepEvent.of_answer(
            answer,
            info=engine.info_of(window),
            model=answered_by(answer) or window.about.model,
            regions={name: report[key] for name, key in REGIONS.items()},
            input_limit=report["input_limit"],
            context_window=report["context_window"],
            reserved_tokens=report["reserved_tokens"],
            estimated_tokens=window.total_tokens,
            counted_by=report["counted_by"],
            duration_seconds=round(seconds, 6),
            calls=calls,
            compactions=report["compactions"],
            tools_available=len(offered) + deferred,
            tools_offered=tuple(offered),
        )
        self._report(event)

    def _next(
        self, step: AgentStep, attempt: Attempt, overflow: ContextOverflow, number: int, error: Exception | None
    ) -> Work[Attempt]:
        """What follows an overflow: another candidate, less output where that helps, fewer tools, a smaller request."""
        engine, window, router = self._flow.engine, step.window, self._flow.choices.router
        asked = min(attempt.options.values(), default=None)
        if error is not None and not isinstance(error, RemainingTooSmallError):
            called = self._flow.choices.model_called(step.state) if router else self._call
            options = smaller_output(called, overflow) if called is not None else {}
            if options and (asked is None or max(options.values()) < asked):
                if router is None:
                    learned = engine.learn(window, overflow)
                    step.update({"context_counts": dict(learned.session.counts)}, learned)
                self._report(recovery_event(window, overflow, number, output_tokens=max(options.values())))
                return replace(attempt, options=options)
        if error is not None and router is not None and self._has_moved(step, error):
            self._report(recovery_event(window, overflow, number))
            return self._attempt(step, self._flow.request(step))
        # Whoever of several candidates stated a limit, the router has learned it under that one's name.
        is_stated = error is not None and router is None
        if (yield from self._has_fewer_tools(step, overflow, is_stated=is_stated)):
            self._report(recovery_event(window, overflow, number))
            return self._attempt(step, self._flow.request(step))
        step.update(engine.recover(window, overflow, is_stated=is_stated))
        self._report(recovery_event(window, overflow, number))
        smaller = engine.continued(step.window, window)
        step.update({"context_report": smaller.report}, smaller)
        return self._attempt(step, self._flow.request(step))

    def _has_fewer_tools(self, step: AgentStep, overflow: ContextOverflow, *, is_stated: bool) -> Work[bool]:
        """Choose the tools anew within the limit that was heard; false where the set stays as it is."""
        if self._flow.choices.selector is None:
            return False
        learned = self._flow.engine.learn(step.window, overflow, is_stated=is_stated)
        selection = yield from self._flow.selected(step, learned)
        if selection is None or not selection.removed:
            return False
        update = {"context_counts": dict(learned.session.counts)}
        step.update({**update, **self._flow.choices.tools_update(step.state, selection)})
        self._fit(step)
        step.update({"context_report": step.window.report}, step.window)
        return True

    def _has_moved(self, step: AgentStep, error: Exception) -> bool:
        """Turn to another candidate, or to this one by what was learned; false when that changes nothing."""
        trial, choices = AgentStep(self._flow, step.state, step.call), self._flow.choices
        if left := choices.left_after(error, trial.state):
            trial.update(left)
        else:
            self._flow.choose_model(trial)
        self._fit(trial)
        is_same = known_name(trial.state) == known_name(step.state)
        if is_same and trial.window.priced_view.total_tokens >= step.window.priced_view.total_tokens:
            return False
        step.update({**trial.news, "context_report": trial.window.report}, trial.window)
        return True

    def _attempt(self, step: AgentStep, request: list[AnyMessage]) -> Attempt:
        """A call that asks for no more output than its window leaves."""
        window, route = step.window, self._flow.choices.arguments(step.state)
        if self._flow.engine.reporter.sinks:
            self._flow.engine.info_of(window)  # prices are looked up while the model answers
        size, requested, native = window.limits.context_window, self._requested_output, dict[str, Any]()
        if self._flow.choices.router is None:
            thread = step.place.thread
            native = self._flow.engine.call_options(window, request, conversation=thread, call=self._call)
            if window.request.rules.provider == "gemini" and arguments_of(self._call).get("cached_content"):
                native = {**native, "tools": []}  # the content that somebody stored has the tools
        if size is None or requested is None:
            return Attempt(request, route=route, native=native)
        room = size - window.priced_view.upper_tokens
        options = fitting_output(self._call, requested_tokens=requested, room_tokens=room)
        return Attempt(request, options=options, route=route, native=native)

    def _fit(self, step: AgentStep) -> None:
        """Compact the request when a state edit made it too large since it was checked."""
        window = step.window
        compaction = self._flow.engine.emergency(window)
        if compaction is not None:
            self._flow.compacted(step, window, self._flow.engine.apply(compaction, window))

    def _silent(self, window: Window, attempt: Attempt, reply: Any) -> ContextOverflow | None:
        """An overflow that shows in the answer only; sizes are compared with those of the same model."""
        if not isinstance(reply, AIMessage):
            return None
        extends, least = window.extends, window.priced_view.lower_tokens
        if answered_by(reply) not in {"", window.answering_model} and window.session.counts.get("anchor"):
            extends, least = None, 0
        return silent_overflow(
            reply,
            input_limit=window.budget.input_limit,
            context_window=window.limits.context_window,
            requested_output_tokens=next(iter(attempt.options.values()), self._requested_output),
            least_input_tokens=least,
            previous=(extends.tokens, max(0, least - extends.tokens)) if extends else None,
            small=small_report(window, answered_by(reply) or window.answering_model),
        )

    def _learned(self, window: Window, reply: Any, *, was_cut: bool) -> tuple[AIMessage, dict[str, Any]]:
        """The answer, with an id, and what is known about sizes after it."""
        if not isinstance(reply, AIMessage):
            raise ContextWindowError(
                f"the model node got {type(reply).__name__} instead of an AIMessage: "
                "wrap a chat model, or a callable that returns its answer"
            )
        # The anchor refers to the answer by id, so the id must exist before LangGraph would stamp it.
        answer = reply if reply.id else reply.model_copy(update={"id": str(uuid4())})
        if was_cut:  # its size is that of what the server made of the request
            return answer, dict(window.session.counts)
        lesson = from_answer(window, answer)
        if lesson.accepted_tokens:
            self._flow.engine.accepted(window, lesson.accepted_tokens)
        if lesson.ignored:
            about = {"reason": lesson.ignored}
            self._report(NoticeEvent(model=window.about.model, notice="usage_ignored", about=about))
        return answer, self._validated(window, answer, lesson)

    def _validated(self, window: Window, answer: AIMessage, lesson: Lesson) -> dict[str, Any]:
        """What was learned, or nothing of it when the validator has found that counts of this model are often wrong."""
        validator, model = self._validator, window.about.model
        if validator is None:
            return lesson.counts
        validator.check(
            model=model,
            messages=window.priced_view.messages(),
            tools=window.about.tools,
            expected_tokens=window.total_tokens,
            reported_tokens=sent_tokens(answer),
        )
        resets = validator.resets(model)
        if lesson.counts.get("resets", resets) == resets:
            return {**lesson.counts, "resets": resets}
        self._report(NoticeEvent(model=window.about.model, notice="calibration_reset"))
        return {**without_sizes(lesson.counts), "resets": resets}
