"""One model call with recovery: call, and when the request was too large for the provider, compact and call again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.outcome import Lesson, from_answer, without_sizes
from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow, request_texts
from langchain_ctxwin.core.recovery import fitting_output, only_model, silent_overflow, smaller_output
from langchain_ctxwin.core.reported import answered_by
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError, NoModelFitsError
from langchain_ctxwin.flow.choices import known_name
from langchain_ctxwin.flow.events import announce_lesson, announce_recovery, announce_reset
from langchain_ctxwin.flow.state import State, Update
from langchain_ctxwin.flow.steps import Flow
from langchain_ctxwin.observe.validation import Validator
from langchain_ctxwin.planner import settings_of
from langchain_ctxwin.routing import RemainingTooSmallError


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of the model."""

    request: list[AnyMessage]
    options: dict[str, int] = field(default_factory=dict)
    """Arguments that ask for less output than the model was set to."""

    route: dict[str, Any] = field(default_factory=dict)
    """The argument that names the candidate of a routed model."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments for this call alone."""
        return {**self.route, **self.options}


@dataclass(frozen=True, slots=True)
class _Now:
    """Where an exchange stands."""

    attempt: Attempt
    window: Window
    """The request of the attempt, measured with all that is known."""

    update: Update
    """What the state has to learn so far."""


Exchange = Generator[Attempt, Any, Update]


class ModelExchange:
    """The conversation with one model about one request; what calls the model only passes attempts and replies on."""

    def __init__(self, flow: Flow, call: Any, *, validator: Validator | None = None) -> None:
        self._flow = flow
        self._call = call
        self._validator = validator
        # Where a run may choose another model, nobody knows what its answer was asked to be.
        self._requested_output = ModelLimits.of(call).requested_output_tokens if only_model(call) else None

    def start(self, state: State) -> Exchange:
        """Yield attempts, receive the reply or the provider's exception, return the state update."""
        flow = self._flow
        window, update = self._fitting(state)
        most = settings_of(window).max_recoveries
        request = (None if update else flow.built(state)) or flow.request(window)
        now = _Now(self._attempt(window, request, state), window, update)
        for number in count(1):
            error: Exception | None = None
            try:
                reply = yield now.attempt
                overflow = self._silent(now, reply)
            except Exception as refusal:
                error, overflow = refusal, self._overflow(now, refusal)
                if overflow is None or number > most:
                    raise
            if overflow is None or number > most:
                break
            try:
                now = self._next(state, now, overflow, number, error)
            except (BudgetExceededError, NoModelFitsError) as exhausted:
                if error is not None:
                    raise error from exhausted
                now = replace(now, window=flow.engine.learn(now.window, overflow, is_stated=False))
                break  # an answer that was cut off is all there is
        answered = flow.choices.answered({**state, **now.update}, reply)
        return {**now.update, **answered, **self._reply_update(now.window, reply, was_cut=overflow is not None)}

    @staticmethod
    def _overflow(now: _Now, refusal: Exception) -> ContextOverflow | None:
        """What the provider says in its own words; it may quote what a user wrote, or a tool brought."""
        return classify_overflow(refusal, request=request_texts(now.attempt.request, now.window.about.tools))

    def _next(self, state: State, now: _Now, overflow: ContextOverflow, number: int, error: Exception | None) -> _Now:
        """What follows an overflow: another candidate, less output where that helps, else a smaller request."""
        engine, window = self._flow.engine, now.window
        if shorter := self._shorter(state, now, overflow, error):
            announce_recovery(window, overflow, number, output_tokens=max(shorter.attempt.options.values()))
            return shorter
        if error is not None and (moved := self._moved(state, now, error)):
            announce_recovery(window, overflow, number)
            return moved
        options = smaller_output(self._call, overflow) if error is not None and not now.attempt.options else {}
        if options:
            learned = engine.learn(window, overflow)
            update = {**now.update, "context_counts": dict(learned.session.counts)}
            announce_recovery(window, overflow, number, output_tokens=max(options.values()))
            return _Now(replace(now.attempt, options=options), learned, update)
        # Whoever of several candidates stated a limit, the router has learned it under that one's name.
        is_stated = error is not None and self._flow.choices.router is None
        update = {**now.update, **engine.recover(window, overflow, is_stated=is_stated)}
        announce_recovery(window, overflow, number)
        smaller = engine.continued(self._flow.measure({**state, **update}), window)
        attempt = self._attempt(smaller, self._flow.request(smaller), {**state, **update})
        return _Now(attempt, smaller, {**update, "context_report": smaller.report})

    def _shorter(self, state: State, now: _Now, overflow: ContextOverflow, error: Exception | None) -> _Now | None:
        """The same request to a candidate, asking for less output than it was set to; None when that does not help."""
        if error is None or now.attempt.options or isinstance(error, RemainingTooSmallError):
            return None
        called = self._flow.choices.model_called({**state, **now.update})
        options = smaller_output(called, overflow) if called is not None else {}
        return replace(now, attempt=replace(now.attempt, options=options)) if options else None

    def _moved(self, state: State, now: _Now, error: Exception) -> _Now | None:
        """The request for another candidate, or for this one by what was learned; None when that changes nothing."""
        choices, known = self._flow.choices, {**state, **now.update}
        if choices.router is None:
            return None
        chosen = choices.after(error, known, self._flow.measure)
        window, update = self._fitting({**known, **chosen})
        is_same = known_name({**known, **chosen}) == known_name(known)
        if is_same and window.survey.total_tokens >= now.window.survey.total_tokens:
            return None
        update = {**now.update, **chosen, **update, "context_report": window.report}
        return _Now(self._attempt(window, self._flow.request(window), {**state, **update}), window, update)

    def _attempt(self, window: Window, request: list[AnyMessage], state: State) -> Attempt:
        """A call that asks for no more output than its window leaves."""
        route = self._flow.choices.arguments(state)
        size, requested = window.limits.context_window, self._requested_output
        if size is None or requested is None:
            return Attempt(request, route=route)
        room = size - window.survey.upper_tokens
        options = fitting_output(self._call, requested_tokens=requested, room_tokens=room)
        return Attempt(request, options=options, route=route)

    def _silent(self, now: _Now, reply: Any) -> ContextOverflow | None:
        """An overflow that shows in the answer only; sizes are compared with those of the same model."""
        if not isinstance(reply, AIMessage):
            return None
        window = now.window
        extends, least = window.extends, window.survey.lower_tokens
        if answered_by(reply) not in {"", window.speaker} and window.session.counts.get("anchor"):
            extends, least = None, 0
        return silent_overflow(
            reply,
            input_limit=window.budget.input_limit,
            context_window=window.limits.context_window,
            requested_output_tokens=next(iter(now.attempt.options.values()), self._requested_output),
            least_input_tokens=least,
            previous=(extends.tokens, max(0, least - extends.tokens)) if extends else None,
        )

    def _fitting(self, state: State) -> tuple[Window, Update]:
        """Measure the request; when a state edit made it too large since it was checked, compact it now."""
        engine, window = self._flow.engine, self._flow.measure(state)
        compaction = engine.emergency(window)
        if compaction is None:
            return window, {}
        update = engine.apply(compaction, window)
        update = self._flow.compacted(state, window, compaction, update)
        return engine.continued(self._flow.measure({**state, **update}), window), update

    def _reply_update(self, window: Window, reply: Any, *, was_cut: bool) -> Update:
        if not isinstance(reply, AIMessage):
            raise ContextWindowError(
                f"the model node got {type(reply).__name__} instead of an AIMessage: "
                "wrap a chat model, or a callable that returns its answer"
            )
        # The anchor refers to the answer by id, so the id must exist before LangGraph would stamp it.
        answer = reply if reply.id else reply.model_copy(update={"id": str(uuid4())})
        if was_cut:  # its size is that of what the server made of the request
            return {"messages": [answer], "context_counts": dict(window.session.counts)}
        lesson = from_answer(window, answer)
        if lesson.accepted_tokens:
            self._flow.engine.accepted(window, lesson.accepted_tokens)
        announce_lesson(window, lesson)
        return {"messages": [answer], "context_counts": self._validated(window, answer, lesson)}

    def _validated(self, window: Window, answer: AIMessage, lesson: Lesson) -> dict[str, Any]:
        """What was learned, or nothing of it when the validator has found that counts of this model are often wrong."""
        validator, model = self._validator, window.about.model
        if validator is None:
            return lesson.counts
        validator.check(
            model=model,
            messages=window.survey.messages(),
            tools=window.about.tools,
            expected_tokens=window.total_tokens,
            reported_tokens=answer.usage_metadata["input_tokens"] if answer.usage_metadata else None,
        )
        resets = validator.resets(model)
        if lesson.counts.get("resets", resets) == resets:
            return {**lesson.counts, "resets": resets}
        announce_reset(window)
        return {**without_sizes(lesson.counts), "resets": resets}


def run_exchange(exchange: Exchange, send: Callable[[Attempt], Any]) -> Update:
    """Send every attempt and return the state update of the exchange."""
    step: Attempt | Update = next(exchange)
    while isinstance(step, Attempt):
        try:
            reply = send(step)
        except Exception as error:  # noqa: BLE001  # the exchange answers overflows, raises all else again
            step = exchange.throw(error)
        else:
            step = _sent(exchange, reply)
    return step


async def arun_exchange(exchange: Exchange, send: Callable[[Attempt], Awaitable[Any]]) -> Update:
    """Like `run_exchange`, awaiting every reply."""
    step: Attempt | Update = next(exchange)
    while isinstance(step, Attempt):
        try:
            reply = await send(step)
        except Exception as error:  # noqa: BLE001  # see run_exchange
            step = exchange.throw(error)
        else:
            step = _sent(exchange, reply)
    return step


def _sent(exchange: Exchange, reply: Any) -> Attempt | Update:
    """Hand the reply to the exchange; return its next attempt, or the update it ends with."""
    try:
        return exchange.send(reply)
    except StopIteration as finished:
        update: Update = finished.value
        return update
