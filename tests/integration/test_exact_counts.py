"""How close are counts to what real servers report: in an agent, and by a probe?"""

from statistics import median

import pytest
from langchain_core.messages import AIMessage

from langchain_ctxwin.models.probing import probe_limit
from langchain_ctxwin.models.sources import OpenAICompatibleSource
from support.desk import TOOLS
from support.graphs import chat_on, engine_for, reports_before_calls

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

WINDOW = 2048
TURNS = 30
# at temperature 0 random weights say nothing but line breaks
WORDY = {"temperature": 1.0, "seed": 1}
CLOSE = 0.01  # of the reported size, for the typical request
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


def test_a_probe_finds_the_window_that_a_real_server_states(start_llama):
    """By its own counts and its own errors."""
    server = start_llama(2048)
    [stated] = OpenAICompatibleSource(server.url).fetch(None)
    assert stated.context_window == 2048
    found = probe_limit(server.chat_model(**WORDY), low=100, high=8_000)
    assert 2048 * 0.95 <= found.limit <= 2048
