"""Does an agent on the real Gemini client stay within a strict server's limit, and recover when it does not?"""

from itertools import pairwise

import pytest
from google.genai.errors import ServerError
from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from support.desk import (
    CONFIG,
    SIZES,
    TOOLS,
    agent_of,
    ask,
    refusals,
    state_of,
    user_texts,
)
from support.gemini_policy import tool_loop
from support.gemini_server import (
    RATE_LIMIT,
    RATE_LIMIT_NAMING_TOKENS,
    UNAVAILABLE,
    Fault,
    GeminiServer,
)
from support.oracle import exact_count

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

QUESTIONS = [
    f"Question {number}: what is behind door {number}?" for number in range(14)
]
STEPS = 4  # every second one calls two tools at once
RESULTS = 6  # of a turn


def gemini(limit, *, model="gemini-test", **options):
    """Return a strict server whose model calls tools in each turn."""
    return GeminiServer(
        input_limit=limit, policy=tool_loop(steps=STEPS), model=model, **options
    )


def requests_of_turns(server):
    """Return the answered requests of each turn, by the last thing the user said."""
    turns = {}
    for request in server.generated:
        turns.setdefault(user_texts(request)[-1], []).append(request)
    return turns


def assert_all_answered(messages, questions):
    """Check that each answer quotes its question and saw results of all steps; recovery may cut one, once."""
    answers = [
        message.text
        for message in messages
        if isinstance(message, AIMessage) and message.text
    ]
    assert [
        question in answer for question, answer in zip(questions, answers, strict=True)
    ] == [True] * len(questions)
    seen = [
        int(answer.partition("| results ")[2].partition(",")[0]) for answer in answers
    ]
    assert min(seen) >= STEPS
    assert seen.count(RESULTS) >= len(seen) - 1


@pytest.mark.parametrize(
    ("model", "limit"), [("gemini-test", 3000), ("gemini-3-test", 6000)]
)
def test_a_conversation_larger_than_the_window_is_never_refused_for_its_form(
    limit, model
):
    """At most one request is refused, for its size; each turn sees its question and all of its results."""
    with gemini(limit, model=model) as server:
        agent = agent_of(server.chat_model(), limit, checkpointer=InMemorySaver())
        questions = QUESTIONS * (limit // 3000)
        for number, question in enumerate(questions):
            agent.invoke(ask(f"{number}: {question}"), CONFIG)
        state = state_of(agent)
    assert exact_count(state["messages"], TOOLS) > 3 * limit
    assert [text for text in refusals(server) if SIZES not in text] == []
    assert len(refusals(server)) <= 1
    turns = requests_of_turns(server)
    assert list(turns) == [
        f"{number}: {question}" for number, question in enumerate(questions)
    ]
    # a step that is lost is made again
    assert {len(requests) for requests in turns.values()} == {STEPS + 1}
    assert_all_answered(state["messages"], list(turns))
    breaks = sum(
        later.cached_tokens < earlier.tokens
        for earlier, later in pairwise(server.generated)
    )
    assert (
        1
        <= breaks
        <= state["context_report"]["compactions"] + len(refusals(server))
        < len(server.generated) / 8
    )
    assert state["context_report"]["counted_by"] == "usage"


def test_an_overflow_that_no_retry_cures_leaves_the_node_and_a_resume_works():
    """After `max_recoveries` smaller requests the provider's own exception arrives, and the thread is whole."""
    lie = Fault(status=400, message=f"The input token count (8100) {SIZES} (8000).")
    with gemini(8000) as server:
        agent = agent_of(server.chat_model(), 8000, checkpointer=InMemorySaver())
        for question in QUESTIONS[:4]:
            agent.invoke(ask(question), CONFIG)
        before = len(server.requests)
        server.fail_next(lie, times=3)
        with pytest.raises(ContextOverflowError, match="8100"):
            agent.invoke(ask("Still there?"), CONFIG)
        sizes = [request.tokens for request in server.requests[before:]]
        agent.invoke(None, CONFIG)
        state = state_of(agent)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes) == 3
    assert [m.text for m in state["messages"] if m.type == "human"] == [
        *QUESTIONS[:4],
        "Still there?",
    ]
    assert "Still there?" in state["messages"][-1].text


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (RATE_LIMIT, ModelRateLimitError),
        (
            RATE_LIMIT_NAMING_TOKENS,
            ContextOverflowError,
        ),  # the client's own mistake; it is still a rate limit
        (UNAVAILABLE, ServerError),
    ],
)
async def test_a_fault_leaves_the_node_as_it_came_and_a_resume_repeats_the_request(
    fault, error
):
    """Nothing is compacted and nothing is sent twice; resuming sends the very same bytes, sync and async."""
    with gemini(3000) as server:
        agent = agent_of(server.chat_model(), 3000, checkpointer=InMemorySaver())
        agent.invoke(ask(QUESTIONS[0]), CONFIG)
        before = len(server.requests)
        server.fail_next(fault)
        with pytest.raises(error):
            agent.invoke(ask(QUESTIONS[1]), CONFIG)
        assert (len(server.requests), agent.get_state(CONFIG).next) == (
            before + 1,
            ("agent",),
        )
        server.fail_next(fault)
        with pytest.raises(error):
            await agent.ainvoke(None, CONFIG)
        agent.invoke(None, CONFIG)
        state = state_of(agent)
    bodies = [request.body for request in server.requests[before : before + 3]]
    assert bodies == [bodies[0]] * 3
    assert f"results {RESULTS}," in state["messages"][-1].text
    assert state["context_report"]["compactions"] == 0
    assert "limits" not in state["context_counts"]
