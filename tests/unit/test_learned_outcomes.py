"""Are answers that were no answers counted against their model, and do all others leave its chances alone?"""

from __future__ import annotations

import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from pydantic import Field

from langchain_ctxwin import RoutingConfig
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.routing.fallbacks import AnswerSigns
from support.agents import ADAPTERS, agent_on
from support.fakes import ScriptedChatModel
from support.routing import TableRegistry, answered, every_way, info

ASKED = "What is the capital of France?"


class Ending(ScriptedChatModel):
    """A model whose answers end for a reason."""

    ending: dict[str, Any] = Field(default_factory=dict)

    def _metered(self, answer: AIMessage, tokens: int) -> AIMessage:
        made = super()._metered(answer, tokens)
        return made.model_copy(update={"response_metadata": {**made.response_metadata, **self.ending}})


def routed(
    answer: AIMessage | None = None, ending: dict[str, Any] | None = None, clock: Clock = time.time, **config: Any
) -> RoutedChatModel:
    """Return a routed model over one that always answers so."""
    policy = lambda *_: AIMessage("Paris.") if answer is None else answer  # noqa: E731  # as short as its name
    model = Ending(model_name="one", ending=ending or {}, policy=policy, profile={"max_input_tokens": 8_000})
    registry = TableRegistry({"one": info("one", 8_000, "1")})
    router = ModelRouter([model], registry, RoutingConfig(**config), clock=clock)
    return RoutedChatModel(router)


def chance(model: RoutedChatModel) -> float:
    return model.router.outcomes.of("text/low", "one").chance(1.0)


def asked_in(conversation: int) -> list[AnyMessage]:
    """Ask the question in one of several conversations."""
    return [HumanMessage(f"Hello, I am number {conversation}."), AIMessage("Hello."), HumanMessage(ASKED)]


INVALID = {"name": "f", "args": "{", "id": "1", "error": "no JSON", "type": "invalid_tool_call"}
CUT = {"finish_reason": "length"}
INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
# Whether an answer counts against its model, by its end.
ENDINGS = [
    *((CUT, True), ({"finish_reason": "MAX_TOKENS"}, True), ({"stop_reason": "max_tokens"}, True), (INCOMPLETE, True)),
    *(({"stop_reason": "refusal"}, True), ({"finish_reason": "content_filter"}, True)),
    *(({"finish_reason": "SAFETY"}, True), ({}, False), ({"finish_reason": "stop"}, False)),
    *(({"stop_reason": "end_turn"}, False), ({"finish_reason": "STOP"}, False)),
]


@every_way
@pytest.mark.parametrize(("ending", "failed"), ENDINGS)
def test_an_answer_that_was_cut_or_refused_counts_against_its_model_and_any_other_does_not(how, ending, failed):
    """Of five that failed out of five, the chance becomes what it was times 1 - 5 / 15."""
    model = routed(None, ending)
    before = chance(model)
    for number in range(6 if failed else 50):
        answered(model, asked_in(number), how)
    assert chance(model) < before * 0.85 if failed else chance(model) == pytest.approx(before)


@pytest.mark.parametrize(
    "answer",
    [
        AIMessage(""),
        AIMessage([{"type": "text", "text": ""}]),
        AIMessage([{"type": "refusal", "refusal": "I cannot help with that."}]),
        AIMessage("", invalid_tool_calls=[INVALID]),
    ],
)
def test_nothing_and_calls_that_nobody_can_run_count_against_their_model(answer):
    model = routed(answer)
    before = chance(model)
    for number in range(6):
        model.invoke(asked_in(number))
    assert chance(model) < before * 0.85


@pytest.mark.parametrize("is_joined", [True, False])
def test_one_conversation_moves_nobody_elses_routes(is_joined):
    """Nor does it when another one has failed once, or did so long ago."""
    now = [1_000.0]
    model = routed(None, CUT, clock=lambda: now[0])
    before = chance(model)
    if is_joined:
        model.invoke(asked_in(1))
        now[0] += 3_601
    for _ in range(20):
        model.invoke(asked_in(2))
    assert chance(model) == pytest.approx(before)


@pytest.mark.parametrize(
    ("parts", "failed"), [(['{"a": ', "1}"], False), (["{}"], False), ([""], False), (['{"a": ', "1"], True)]
)
def test_calls_in_chunks_are_judged_as_a_whole(parts, failed):
    """A call of another index between its parts is none of its business."""
    signs = AnswerSigns()
    for part in parts:
        for index, args in ((0, part), (1, "{}" if part is parts[0] else None)):
            signs.note(AIMessageChunk("", tool_call_chunks=[tool_call_chunk(name="f", args=args, index=index)]))
    assert signs.failed is failed


def test_a_request_that_a_thread_sends_again_counts_against_the_answer_before():
    """Without a thread, equal requests are those of different people."""
    model = routed()
    before = chance(model)
    for _ in range(3):
        model.invoke([HumanMessage(ASKED)])
    assert chance(model) == pytest.approx(before)
    for name in "stst":
        thread = {"configurable": {"thread_id": name}}
        model.invoke([HumanMessage(ASKED)], thread)
    assert chance(model) < before
    least = chance(model)
    model.invoke([HumanMessage(ASKED), AIMessage("Paris."), HumanMessage("And of Italy?")], thread)
    assert chance(model) == pytest.approx(least)


def test_what_is_not_to_be_learned_is_not():
    """The setting turns it off, and what somebody records still counts."""
    model = routed(None, CUT, learn_outcomes=False)
    before = chance(model)
    routes = [model.invoke(ASKED).response_metadata["route"] for _ in range(5)]
    assert chance(model) == pytest.approx(before)
    for route in routes:
        model.router.record(route, success=False)
    assert chance(model) < before * 0.85


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_agents_learn_too(adapter):
    """Their calls go through the same model."""
    model = routed(None, CUT)
    before = chance(model)
    for thread in "st":
        agent_on(adapter, model).invoke({"messages": [HumanMessage(ASKED)]}, {"configurable": {"thread_id": thread}})
    assert chance(model) < before
