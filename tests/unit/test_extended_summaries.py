"""Does the agent's own model summarize after its last request, so that the provider reads the prefix from its cache?"""

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from langchain_ctxwin import ContextConfig
from langchain_ctxwin.core.plan import LastRequest
from langchain_ctxwin.summarize import ModelSummarizer, SummaryJobs
from support.agents import THREAD, agent_on, on_both
from support.fakes import core_overflow, exact_count

WORDS = "lorem ipsum dolor sit amet " * 36
SUMMARY = "The user counts questions."
WINDOW = 12_000
MARK = "Pause here"


class Provider(BaseChatModel):
    """Answers questions, and asked for a summary writes one; it keeps every payload as it came over the wire."""

    sent: list[Any] = []  # noqa: RUF012  # pydantic copies it per instance
    provider: str = "fake"
    calls_a_tool: bool = False
    refuses_longer: bool = False

    @property
    def _llm_type(self):
        return "fake"

    def bind_tools(self, tools, **kwargs):
        given = {name: value for name, value in kwargs.items() if value is not None}
        return self.bind(tools=[tool.name for tool in tools], **given)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.sent.append(([(m.type, m.content) for m in messages], kwargs))
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _answer(self, messages):
        if MARK not in messages[-1].text:
            return AIMessage(
                SUMMARY
                if "<transcript" in messages[-1].text
                else f"answer {len(messages)}. {WORDS}"
            )
        if self.refuses_longer:
            raise core_overflow(13_000, WINDOW)
        return AIMessage(SUMMARY, tool_calls=_CALL if self.calls_a_tool else [])

    @property
    def summaries(self):
        return [
            number for number, (messages, _) in enumerate(self.sent) if _asks(messages)
        ]


def provider(kind=None, **options):
    return (kind or Provider)(sent=[], profile={"max_input_tokens": WINDOW}, **options)


_CALL = [{"name": "search", "args": {}, "id": "1"}]


def _asks(messages):
    return MARK in messages[-1][1] or "<transcript" in messages[-1][1]


@tool
def search(query: str) -> str:
    """Search."""
    return query


def talk(
    model, adapter="nodes", *, summarizer=None, summarize="background", questions=40
):
    """Ask until the agent has summarized, each background summary finished before the next question."""
    jobs = SummaryJobs()
    config = ContextConfig(output_reserve=0, summarize=summarize, pin_first_user=False)
    options = {
        "counter": exact_count,
        "summarizer": summarizer or model,
        "config": config,
        "jobs": jobs,
    }
    agent = agent_on(adapter, model, [search], system_prompt="You are kind.", **options)
    for number in range(questions):
        agent.invoke({"messages": [HumanMessage(f"question {number} {WORDS}")]}, THREAD)
        jobs.drain(10)
        if model.summaries:
            agent.invoke({"messages": [HumanMessage("one more")]}, THREAD)
            break
    return agent.get_state(THREAD).values


@on_both
@pytest.mark.parametrize("summarize", ["background", "inline"])
def test_the_own_model_is_asked_by_one_message_after_the_last_request(
    adapter, summarize
):
    """System message, tools and messages are those of the request before; the provider finds its prefix unchanged."""
    talk(model := provider(), adapter, summarize=summarize)
    [number, *_] = model.summaries
    asked, settings = model.sent[number]
    requests = [messages for messages, _ in model.sent if not _asks(messages)]
    assert any(
        asked[: len(request)] == request and len(asked) - len(request) <= 2
        for request in requests
    )
    assert all(used == settings == {"tools": ["search"]} for _, used in model.sent)


def test_a_tool_call_instead_of_a_summary_is_a_failure():
    model = provider(calls_a_tool=True)
    state = talk(model)
    assert state["messages"][-1].text.startswith("answer")
    assert (
        "called search instead of writing a summary" in state["context_guard"]["reason"]
    )


def test_a_request_refused_as_too_large_is_replaced_by_the_transcript():
    model = provider(refuses_longer=True)
    state = talk(model)
    first, *others = [
        MARK in messages[-1][1] for messages, _ in model.sent if _asks(messages)
    ]
    assert (first, {*others}) == (True, {False})
    assert state["context_pending"]["text"] == SUMMARY


@pytest.mark.parametrize(("room_tokens", "is_extended"), [(2_000, True), (20, False)])
def test_a_request_without_room_for_the_question_is_not_extended(
    room_tokens, is_extended
):
    model, request = (
        provider(),
        [HumanMessage("hi"), AIMessage("hello"), HumanMessage("and now?")],
    )
    summarizer = ModelSummarizer(model, counter=exact_count).extending(
        model, LastRequest(messages=tuple(request), room_tokens=room_tokens)
    )
    assert summarizer.summarize(request, previous="", max_tokens=100) == SUMMARY
    assert [MARK in messages[-1][1] for messages, _ in model.sent] == [is_extended]
