"""How close are counts to what real servers report: with count endpoints, without usage, with bad counters?"""

from statistics import median

import pytest
from langchain_core.messages import AIMessage

from langchain_ctxwin import ContextConfig
from langchain_ctxwin.counting import GeminiCounter
from langchain_ctxwin.models.probing import probe_limit
from support.desk import CONFIG, TOOLS, ask, refusals, state_of
from support.gemini_policy import answer, tool_loop
from support.gemini_server import GeminiServer
from support.graphs import chat_on, engine_for, reports_before_calls

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

WINDOW = 2048
TURNS = 30
STORY = "The river ran past the mill, and the miller's daughter counted the boats. " * 8
# at temperature 0 random weights say nothing but line breaks
WORDY = {"temperature": 1.0, "seed": 1}
CLOSE = 0.01  # of the reported size, for the typical request
FEW = 4  # counts of a conversation that is several windows long
FARTHEST = 0.05  # of the input limit, for every request after the first: a record is denser than what was reported
EMPTIEST = (
    0.25  # of the input limit: what a compaction keeps of the history and the prompt
)


def questions(turns=TURNS):
    return [
        f"Question {number}: what is behind door {number}?" for number in range(turns)
    ]


def assert_close(pairs):
    """Check all counts after the first answer, and that compactions leave the window neither empty nor full."""
    sizes = [
        (report, reply.usage_metadata["input_tokens"]) for report, reply in pairs[1:]
    ]
    assert (
        median(abs(report["total_tokens"] / size - 1) for report, size in sizes)
        <= CLOSE
    )
    assert (
        max(
            abs(report["total_tokens"] - size) / report["input_limit"]
            for report, size in sizes
        )
        <= FARTHEST
    )
    used = [report["utilization"] for report, _ in pairs if report["compactions"]]
    assert EMPTIEST < min(used) <= max(used) <= 1


def scripted(chat):
    """Return a model call whose wish to look is scripted; the sizes are the server's."""

    def decide(messages):
        reply = chat.invoke(messages)
        if messages[-1].type != "human":
            return reply
        wish = {"name": "look", "args": {"name": "door", "depth": 1}, "id": "call_1"}
        return AIMessage("", tool_calls=[wish], usage_metadata=reply.usage_metadata)

    return decide


def test_llama_counts_are_close_and_nothing_is_refused(start_llama):
    """In a window that is stated right, by the estimator for models of unknown tokenizers."""
    server = start_llama(WINDOW)
    engine = engine_for("tiny", WINDOW, info={"max_output_tokens": 64})
    agent = chat_on(
        engine, scripted(server.chat_model(**WORDY).bind_tools(TOOLS)), tools=TOOLS
    )
    pairs = [
        pair
        for question in questions()
        for pair in reports_before_calls(agent, question)
    ]
    assert len(pairs) == len(server.sent) == 2 * TURNS
    assert_close(pairs)


def test_a_probe_finds_the_window_of_a_real_server(start_llama):
    """By its own counts and its own errors."""
    server = start_llama(2048)
    found = probe_limit(server.chat_model(**WORDY), low=100, high=8_000)
    assert 2048 * 0.95 <= found.limit <= 2048


def counted_agent(server, limit, *, counter=None):
    """Return an agent that may ask the server, or another counter, for the size of a request."""
    model = server.chat_model()
    # This server limits the input alone; and a summary would be due before the window is full.
    config = ContextConfig(output_reserve=0, summarize="off")
    engine = engine_for(
        "gemini-test", limit, counter=counter or GeminiCounter(model), config=config
    )
    return chat_on(engine, model.bind_tools(TOOLS), tools=TOOLS)


def asked(server):
    return [
        request.tokens for request in server.requests if request.method == "countTokens"
    ]


def test_the_provider_is_asked_only_where_the_estimate_leaves_a_doubt():
    """A conversation of many requests needs a handful of counts, and none is refused."""
    with GeminiServer(input_limit=1500, policy=tool_loop(steps=1)) as server:
        agent = counted_agent(server, 1500)
        for question in questions(20):
            agent.invoke(ask(question), CONFIG)
    assert refusals(server) == []
    assert len(server.generated) == 2 * 20
    assert len(asked(server)) <= FEW


def told():
    """Return a history whose size an estimate knows within a third."""
    lines = (f"Part {number}. {STORY}" for number in range(6))
    return {
        "messages": [
            message
            for line in lines
            for message in (("user", line), ("assistant", "I see."))
        ][:-1]
    }


def size_of_told():
    """Return the true size of the first request with that history."""
    with GeminiServer(policy=answer("Noted.")) as server:
        chat_on(
            engine_for("any", 100_000),
            server.chat_model().bind_tools(TOOLS),
            tools=TOOLS,
        ).invoke(told(), CONFIG)
    return server.requests[0].tokens


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("over", [0, 1])
async def test_the_providers_count_decides_about_a_first_request(way, over):
    """One that fits exactly is sent as it is; one token too large, it is compacted before it is sent."""
    size = size_of_told()
    with GeminiServer(input_limit=size - over, policy=answer("Noted.")) as server:
        agent = counted_agent(server, size - over)
        await run(agent, way)
    assert asked(server)[0] == size
    assert [
        request.status for request in server.requests if request.method != "countTokens"
    ] == [200]
    assert (server.largest_tokens == size, server.largest_tokens <= size - over) == (
        not over,
        True,
    )
    assert state_of(agent)["context_report"]["compactions"] == over


async def run(agent, way, given=None):
    if way == "ainvoke":
        await agent.ainvoke(given or told(), CONFIG)
    else:
        agent.invoke(given or told(), CONFIG)
