"""One model call with recovery: call, and when the request was too large for the provider, compact and call again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.errors import GraphBubbleUp

from langchain_ctxwin.agent.step import AgentStep
from langchain_ctxwin.agent.storage import count_spent
from langchain_ctxwin.core.events import SentRequest, StepEvent, cache_miss
from langchain_ctxwin.core.limits import (
    LEAST_OUTPUT_SHARE,
    REGIONS,
    ModelLimits,
    fitting_output,
    only_model,
)
from langchain_ctxwin.core.measuring import (
    from_answer,
    silent_overflow,
    without_reasoning,
)
from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow
from langchain_ctxwin.core.provider_call import (
    dropped_reasoning,
    refused_part,
    without_response_ids,
)
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.sizing import answered_by
from langchain_ctxwin.core.tool_schemas import name_of
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ContextWindowError,
    NoModelFitsError,
)
from langchain_ctxwin.util.work import Work


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of the model."""

    request: list[AnyMessage]
    arguments: dict[str, Any]
    """For this call alone: for the provider's prompt cache and its own compaction, for the candidate of a routed model,
    or for less output than the model was set to."""

    output_tokens: int | None
    """The output that is asked for; None when that is unknown."""


Send = Callable[[Attempt], Work[Any]]
"""Calls the model with an attempt; an adapter's own way to do so."""


@dataclass(slots=True)
class ModelCall:
    """The calls of one model about one request, until it answers or nothing can be done."""

    step: AgentStep
    """The conversation's step; it takes up what the answer taught."""

    call: Any
    """What is called; with the tools in it, unless those of each request are bound when it is sent."""

    send: Send
    """Calls it."""

    number: int = 0
    """Of calls so far, those apart that were only mended."""

    cuts: int = 0
    """How often a refusal made the request smaller."""

    def answer(self) -> Work[AIMessage]:
        """Return the model's answer.

        Raises:
            BudgetExceededError: the history was edited since it was checked, and nothing that may leave makes it fit.
            Exception: the provider's own, when it is no overflow, or recovery came to its end.
        """
        step, began = self.step, perf_counter()
        yield from step.compressing()
        attempt: Attempt | None = self._attempt()
        paid = list[AIMessage]()
        while attempt:
            reply, error = yield from self._sent(attempt)
            overflow = error and classify_overflow(error)
            if error and attempt != (mended := self._mended(attempt, error)):
                attempt = mended
                continue
            if error and not overflow:
                raise error
            if isinstance(reply, AIMessage):
                paid.append(reply)
                # an overflow that shows in the answer only
                overflow = silent_overflow(step.window, reply, attempt.output_tokens)
            self.number += 1
            attempt = (
                (yield from self._next(attempt, overflow, error)) if overflow else None
            )
        if why := dropped_reasoning(reply):  # the model saw the request without it
            step.anew(without_reasoning(step.window))
            model = step.window.model
            step.engine.reporter.notice("reasoning_left_out", model, reason=why)
        window = step.window
        step.take_answerer(reply)
        # a candidate that took over is told of with its own limits and prices
        answered_window = step.window
        answer, counts = self._learned(window, reply, was_cut=overflow is not None)
        count_spent(step, answered_window, paid)
        if window.settings.compact_when_idle:
            counts = {**counts, "answered_seconds": float(step.engine.clock())}
        step.anew(replace(step.window.session, counts=counts))
        self._report_step(answered_window, answer, seconds=perf_counter() - began)
        return answer

    def _sent(self, attempt: Attempt) -> Work[tuple[Any, Exception | None]]:
        """Send an attempt; the reply, or the error that it met."""
        try:
            return (yield from self.send(attempt)), None
        except GraphBubbleUp:  # an interrupt or a command, whatever it quotes
            raise
        except Exception as error:  # noqa: BLE001  # recovered from, or raised again
            return None, error

    def _next(
        self, attempt: Attempt, overflow: ContextOverflow, error: Exception | None
    ) -> Work[Attempt | None]:
        """The attempt after an overflow; None where an answer that was cut off is all there is.

        Raises:
            Exception: the provider's own, where there is no answer.
        """
        step, reason = self.step, error
        if self.number <= step.window.settings.max_recoveries:
            try:
                return (yield from self._recovered(attempt, overflow, error))
            except (BudgetExceededError, NoModelFitsError) as exhausted:
                reason = exhausted
        if reason is not None:
            step.report_refusal(reason)
        if error is None:
            step.take(step.engine.learn(step.window, overflow, is_stated=False))
            return None
        if reason is not error:
            error.add_note(str(reason))
        raise error

    def _mended(self, attempt: Attempt, refusal: Exception) -> Attempt:
        """The attempt without the parts that the provider refused; the same one where they are unknown or absent.

        A server that no longer has what the request goes on from is sent all of it. Reasoning that is refused, because
        it is tied to another prefix, is left out, and so is all that a provider signed and cannot read any more.
        """
        part, step = refused_part(refusal), self.step
        if not part:
            return attempt
        if part == "history":
            return replace(attempt, request=without_response_ids(attempt.request))
        refused = "unsealed" if part == "sealed" else "unbound"
        before = self._attempt()
        step.anew(without_reasoning(step.window, refused))
        step.fit()
        mended = self._attempt()
        if mended == before:
            return attempt
        step.engine.reporter.notice("reasoning_left_out", step.window.model)
        return mended

    def _recovered(
        self, attempt: Attempt, overflow: ContextOverflow, error: Exception | None
    ) -> Work[Attempt]:
        """The attempt after an overflow: less output where that helps, another candidate, fewer tools, less history."""
        step, window = self.step, self.step.window
        report = partial(
            step.report_overflow,
            window,
            attempt=self.number,
            stated_tokens=overflow.actual,
            stated_limit=overflow.limit,
        )
        # Whoever of several candidates stated a limit, the router has learned it under that one's name.
        is_stated = error is not None and step.router is None
        if error is None or not self._fits_anew():
            window = step.window
            learned = step.engine.learn(window, overflow, is_stated=is_stated)
            step.take(learned)
            asked = attempt.output_tokens or 0
            if error and asked and overflow.kind != "input":
                less = self._attempt()
                if LEAST_OUTPUT_SHARE * asked <= (less.output_tokens or 0) < asked:
                    report(output_tokens=less.output_tokens)
                    return less
            yield from step.choose_tools()
            self.cuts += 1
            step.take(step.engine.shrunk(step.window, window, number=self.cuts))
        report()
        return self._attempt()

    def _fits_anew(self) -> bool:
        """Choose a candidate by the limits that each has stated, and make the request fit; false if nothing leaves."""
        step, before = self.step, self.step.window
        if step.router is None:
            return False
        step.anew()
        step.choose_model()
        step.fit()
        return step.window.total_tokens < before.total_tokens

    def _attempt(self) -> Attempt:
        """A call that asks for no more output than its window leaves."""
        step, window, request = self.step, self.step.window, self.step.request()
        if step.router is not None:
            # with which a `RoutedChatModel` begins, and why
            arguments: dict[str, Any] = {"route": dict(step.choice)}
        else:
            arguments = step.engine.call_options(window, request, call=self.call)
        size, requested = window.limits.context_window, None
        # Where a run may choose another model, nobody knows what its answer was asked to be.
        if only_model(self.call):
            requested = ModelLimits.of(self.call).requested_output_tokens
        if size is not None and requested is not None:
            options = fitting_output(
                self.call,
                requested_tokens=requested,
                room_tokens=size - window.upper_tokens,
            )
            arguments |= options
            requested = min(options.values(), default=requested)
        return Attempt(request, arguments, requested)

    def _learned(
        self, window: Window, reply: Any, *, was_cut: bool
    ) -> tuple[AIMessage, dict[str, Any]]:
        """The answer, with an id, and what is known about sizes after it."""
        if not isinstance(reply, AIMessage):
            raise ContextWindowError(
                f"the model node got {type(reply).__name__} instead of an AIMessage: "
                "wrap a chat model, or a callable that returns its answer"
            )
        # Views refer to the answer by id, so the id must exist before LangGraph would stamp it.
        about = {**reply.response_metadata, "ctxwin": dict(window.report)}
        answer = reply.model_copy(
            update={"id": reply.id or str(uuid4()), "response_metadata": about}
        )
        if was_cut:  # its size is that of what the server made of the request
            return answer, dict(window.session.counts)
        counts, ignored = from_answer(window, answer)
        if ignored:
            reporter = self.step.engine.reporter
            reporter.notice("usage_ignored", window.model, reason=ignored)
        return answer, counts

    def _report_step(
        self, window: Window, answer: AIMessage, *, seconds: float
    ) -> None:
        """Report the answered request; nothing is computed where no sink takes it."""
        step, reporter = self.step, self.step.engine.reporter
        if not reporter.sinks:
            return
        report = window.report
        event = StepEvent.of_answer(
            answer,
            info=step.engine.info_of(window),
            model=answered_by(answer) or window.model,
            regions={name: report[key] for name, key in REGIONS.items()},
            estimated_tokens=window.total_tokens,
            duration_seconds=round(seconds, 6),
            calls=self.number,
            tools_offered=tuple(map(name_of, window.tools)),
            input_limit=report["input_limit"],
            context_window=report["context_window"],
            reserved_tokens=report["reserved_tokens"],
            compactions=report["compactions"],
        )
        reporter.emit(event)
        thread = step.place.thread
        if not thread or not event.reported_tokens:
            return
        sent = SentRequest(event, window.tools_digest, window.assembled())
        if missed := cache_miss(sent, reporter.requests.get(thread), answer):
            reporter.emit(missed)
        reporter.requests.put(thread, sent)
