"""One model call of an agent: its request as the session sees it, and what the session learns on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, SystemMessage
from langgraph.types import Command

from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.flow.choices import Choices
from langchain_ctxwin.flow.exchange import Attempt, Exchange, ModelExchange
from langchain_ctxwin.flow.histories import Histories
from langchain_ctxwin.flow.place import place_of
from langchain_ctxwin.flow.state import State, Update, turn_is_finished
from langchain_ctxwin.flow.steps import Flow
from langchain_ctxwin.middleware.agent_state import SESSION_KEYS
from langchain_ctxwin.observe.validation import Validator


class AgentCall:
    """One model call of an agent: its request, and what the session learns on the way."""

    def __init__(
        self,
        engine: ContextEngine,
        request: ModelRequest[Any],
        model: Any,
        format_tools: list[Any],
        *,
        limited_by: Callable[[Any], Any],
        choices: Choices,
        histories: Histories,
    ) -> None:
        self.flow = Flow(engine, self._measure, choices, self._called, histories)
        self.place = place_of(request.runtime, lambda: request.system_message or "")
        stored: State = request.state
        self.state: Update = {key: stored[key] for key in SESSION_KEYS if key in stored}
        self.state["messages"] = request.messages
        self._request = request
        self._model = model
        self._limited_by = limited_by
        self._format_tools = format_tools
        self._answer: ModelResponse[Any] = ModelResponse(result=[])
        self._update: Update = {}

    def note(self, update: Update) -> None:
        """Take up what a step found out; an answer joins the history together with what came with it."""
        news = {key: value for key, value in update.items() if key != "messages"}
        self._update |= news
        self.state |= news
        if "messages" in update:
            self._answer = replace(self._answer, result=_with_answer(self._answer.result, update["messages"][-1]))
            self.state["messages"] = [*self.state["messages"], *self._answer.result]

    def exchange(self, validator: Validator | None) -> Exchange:
        """Return the exchange with the model about this request."""
        return ModelExchange(self.flow, self._model, validator=validator).start(self.state)

    def ask(self, attempt: Attempt) -> ModelRequest[Any]:
        """Return the agent's request with the messages of an attempt."""
        first = attempt.request[0]
        system = first if isinstance(first, SystemMessage) else None
        messages = attempt.request[1:] if system else attempt.request
        settings = {**self._request.model_settings, **attempt.arguments}
        tools = self._tools(self.state)
        return self._request.override(system_message=system, messages=messages, model_settings=settings, tools=tools)

    def hear(self, answer: ModelResponse[Any] | AIMessage) -> AIMessage | None:
        """Keep what the model returned and say which message of it is the answer."""
        self._answer = ModelResponse(result=[answer]) if isinstance(answer, AIMessage) else answer
        return next((m for m in reversed(self._answer.result) if isinstance(m, AIMessage)), None)

    @property
    def ends_turn(self) -> bool:
        """True when the agent has what was asked for: an answer, or the structured response that it was to be."""
        if self._request.response_format is not None:
            return self._answer.structured_response is not None
        return turn_is_finished(self.state)

    def response(self) -> ExtendedModelResponse[Any]:
        """Return what the model returned, together with the update of the session."""
        return ExtendedModelResponse(model_response=self._answer, command=Command(update=self._update))

    def _measure(self, state: State) -> Window:
        return self.flow.engine.measure(
            state["messages"],
            system_prompt=self._request.system_message or "",
            tools=[*self._tools(state), *self._format_tools],
            session=state,
            model=self._limited_by(self.flow.choices.model(state) or self._model),
        )

    def _called(self, state: State) -> Any:
        """What the agent binds for this request; None where that depends on more than model, settings and tools."""
        request, tools, router = self._request, self._tools(state), self.flow.choices.router
        if request.response_format is not None or router is not None or request.tool_choice not in {None, "auto"}:
            return None
        if not tools:
            return self._model
        return request.model.bind_tools(tools, tool_choice=request.tool_choice, **request.model_settings)

    def _tools(self, state: State) -> list[Any]:
        return list(self.flow.choices.tools(state, self._request.tools, only_given=True))


def _with_answer(result: list[Any], answer: AIMessage) -> list[Any]:
    """The messages of a response with its last AI message in the form that the session refers to: with an id."""
    last = max(index for index, message in enumerate(result) if isinstance(message, AIMessage))
    return [*result[:last], answer, *result[last + 1 :]]
