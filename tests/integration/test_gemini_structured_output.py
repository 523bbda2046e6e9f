"""Does an agent with the recall tool give a structured response on Gemini, which may take tools or a schema only?"""

import json

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from langchain_ctxwin.middleware import ContextWindowMiddleware
from support.gemini_policy import declared_functions
from support.gemini_server import GeminiServer

pytestmark = pytest.mark.enable_socket

THREAD = {"configurable": {"thread_id": "structured"}}
TURNS = 12


class Order(BaseModel):
    """Where an order is."""

    number: str
    city: str


FOUND = {"number": "A-17", "city": "Graz"}


def give_order(body):
    """Answer in the form that is asked for: as a schema, or as the call of a function."""
    if body["generationConfig"].get("responseMimeType") == "application/json":
        return [{"text": json.dumps(FOUND)}]
    return [{"functionCall": {"name": "Order", "args": FOUND}}]


def names_of(body):
    return {function["name"] for function in declared_functions(body)}


async def turns_of(model, *, recall, is_async):
    agent = create_agent(
        model,
        middleware=[ContextWindowMiddleware(recall=recall)],
        response_format=Order,
        checkpointer=InMemorySaver(),
    )
    for number in range(TURNS):
        asked = {"messages": [("user", f"{number}: where is A-17? " + "word " * 300)]}
        out = (
            await agent.ainvoke(asked, THREAD)
            if is_async
            else agent.invoke(asked, THREAD)
        )
        assert out["structured_response"] == Order(**FOUND)
    return agent.get_state(THREAD).values


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("name", "recall", "is_by_schema"),
    [
        ("gemini-2.5-flash", True, False),
        ("gemini-2.5-flash", False, True),
        ("gemini-3-flash-preview", True, True),
    ],
)
async def test_a_structured_response_comes_with_and_without_the_recall_tool(
    name, recall, is_by_schema, is_async
):
    """No request asks an older model for both, each fits, and the oldest turns leave."""
    with GeminiServer(model=name, input_limit=3_000, policy=give_order) as server:
        profile = {**server.chat_model().profile, "max_input_tokens": 4_000}
        model = server.chat_model(profile=profile, max_output_tokens=1_000)
        state = await turns_of(model, recall=recall, is_async=is_async)
        bodies = [request.body for request in server.requests]
        assert len(server.generated) == len(server.requests) == TURNS
    schemas = ["responseMimeType" in body["generationConfig"] for body in bodies]
    assert schemas == [is_by_schema] * TURNS
    assert [names_of(body) for body in bodies] == [
        ({"recall"} if recall else set()) | (set() if is_by_schema else {"Order"})
    ] * TURNS
    assert state["context_report"]["compactions"] > 0
