"""How close are counts to what real servers report: in an agent, and by a probe?"""

from statistics import median

import pytest
from langchain_core.messages import AIMessage

from langchain_ctxwin.models.probing import probe_limit
from langchain_ctxwin.models.sources import OpenAICompatibleSource
from langchain_ctxwin.observe import MemorySink, StepEvent
from support.desk import CONFIG, TOOLS, ask
from support.graphs import chat_on, engine_for

pytestmark = pytest.mark.enable_socket

WINDOW = 2048
TURNS = 30
# at temperature 0 random weights say nothing but line breaks
WORDY = {"temperature": 1.0, "seed": 1}
CLOSE = 0.01  # of the reported size, for the typical request
FARTHEST = 0.05  # of the input limit, for every request after the first: a record is denser than what was reported
# of the input limit: what a compaction keeps of the history and the prompt
EMPTIEST = 0.25


def assert_close(steps):
    """Check all counts after the first answer, and that compactions leave the window neither empty nor full."""
    missed = [abs(step.estimated_tokens - step.reported_tokens) for step in steps[1:]]
    shares = [
        tokens / step.reported_tokens
        for tokens, step in zip(missed, steps[1:], strict=True)
    ]
    assert median(shares) <= CLOSE
    assert max(missed) <= FARTHEST * steps[0].input_limit
    used = [step.utilization for step in steps if step.compactions]
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
    sink, info = MemorySink(), {"max_output_tokens": 64}
    engine = engine_for("tiny", WINDOW, info=info, sinks=[sink])
    chat = scripted(server.chat_model(**WORDY).bind_tools(TOOLS))
    agent = chat_on(engine, chat, tools=TOOLS)
    for number in range(TURNS):
        agent.invoke(ask(f"Question {number}: what is behind door {number}?"), CONFIG)
    steps = sink.of(StepEvent)
    assert len(steps) == len(server.sent) == 2 * TURNS
    assert_close(steps)


def test_a_probe_finds_the_window_that_a_real_server_states(start_llama):
    """By its own counts and its own errors."""
    server = start_llama(2048)
    [stated] = OpenAICompatibleSource(server.url).fetch(None)
    assert stated.context_window == 2048
    found = probe_limit(server.chat_model(**WORDY), high=8_000)
    assert 2048 * 0.95 <= found.limit <= 2048
