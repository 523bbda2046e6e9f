"""What providers manage themselves, on servers that keep their rules: nothing is refused, lost or counted twice."""

import statistics
from functools import partial

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig, ModelLimits, create_context_agent
from langchain_ctxwin.middleware import ContextWindowMiddleware
from support.anthropic_server import AnthropicServer
from support.gemini_policy import tool_loop
from support.gemini_server import GeminiServer
from support.openai_server import OpenAIServer
from support.provider_talks import EDIT_BETAS, TALKS, composed, look, play, responding, speaking

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

LARGEST_ERROR = 0.02
"""By how much the count of the next request is off at most, in the middle of a talk's errors."""

MAX_BREAKPOINTS = 4
TURNS = 28  # enough for each window to be full once


@pytest.mark.parametrize("name", TALKS)
def test_a_long_talk_keeps_the_providers_rules(name):
    outcome = TALKS[name](partial(play, turns=TURNS))
    assert outcome.refused == []
    assert all(outcome.kept)
    assert outcome.compactions > 0
    assert statistics.median(outcome.errors) <= LARGEST_ERROR
    assert max(outcome.breakpoints) <= MAX_BREAKPOINTS
    assert ("native compaction" in name) is bool(outcome.kept)
    assert outcome.cached_share > (0.3 if "explicit" in name else 0.5)  # of what is stored, nothing else is read


@pytest.mark.parametrize("ours_first", [True, False])
def test_another_middleware_may_mark_the_cache_too(ours_first):
    outcome = composed(create_agent, ours_first=ours_first)
    assert (outcome.refused, outcome.failed_turns) == ([], 0)
    assert max(outcome.breakpoints) == MAX_BREAKPOINTS


def named(model):
    """What an agent's answers are made by, as the conversation says."""
    return model.response_metadata.get("model_provider")


def test_a_conversation_moves_between_providers_and_back(start_llama):
    """Nobody refuses what another one made, each says what it can read, and who comes back finds its own blocks."""
    anthropic = AnthropicServer(context_window=8_000, policy=speaking(thinks=True), min_compaction_trigger=1_000)
    openai, gemini = OpenAIServer(context_window=8_000, policy=responding), GeminiServer(policy=tool_loop(steps=1))
    with anthropic, openai, gemini:
        llama = start_llama(n_ctx=4_096)
        compact = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1_500}}
        managed = {"edits": [compact]}
        think = {"type": "enabled", "budget_tokens": 1_024}
        stateless = {"store": False, "include": ["reasoning.encrypted_content"], "output_version": "responses/v1"}
        models = [
            gemini.chat_model(),
            anthropic.chat_model(context_management=managed, betas=EDIT_BETAS, thinking=think, max_tokens=1_280),
            openai.chat_model(**stateless, context_management=[{"type": "compaction", "compact_threshold": 1_500}]),
            llama.chat_model(),
        ]
        saver, thread = InMemorySaver(), {"configurable": {"thread_id": "one"}}
        for number in range(12):
            model = models[number % len(models)]
            limits = ModelLimits(context_window=4_096 if model is models[-1] else 8_000, max_output_tokens=256)
            agent = create_context_agent(model, [look], system_prompt="Be good.", limits=limits, checkpointer=saver)
            agent.invoke({"messages": [HumanMessage(f"Question {number}? " + "The river ran on. " * 20)]}, thread)
        state = agent.get_state(thread).values
    for server in (anthropic, openai, gemini):
        assert [request.status for request in server.requests if request.status != 200] == []
    makers = [named(message) for message in state["messages"] if isinstance(message, AIMessage)]
    assert makers.count("anthropic") >= 6
    assert makers.count("google_genai") >= 6
    last = anthropic.requests[-1].body["messages"]
    blocks = [block for message in last for block in message["content"] if isinstance(block, dict)]
    assert any(block["type"] == "compaction" for block in blocks)
    assert "Question 9" in str(last)
    told = str([message.get("content") for message in llama.sent[-1]["messages"]])
    assert "Summary that the provider before wrote" in told
    assert "encrypted" not in told


LONG_PROMPT = "Answer in French, and mind the gap. " * 200
TTL_SECONDS = 600.0


class Watch:
    """A clock that somebody moves."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


def on_gemini(server, adapter, **options):
    model, config = server.chat_model(), ContextConfig(gemini_cache_seconds=TTL_SECONDS)
    limits = ModelLimits(context_window=8_000, max_output_tokens=256)
    if adapter == "nodes":
        return create_context_agent(
            model, [look], system_prompt=LONG_PROMPT, limits=limits, config=config, checkpointer=InMemorySaver()
        )
    middleware = ContextWindowMiddleware(limits=limits, config=config)
    return create_agent(model, [look], system_prompt=LONG_PROMPT, middleware=[middleware], checkpointer=InMemorySaver())


@pytest.mark.parametrize("adapter", ["nodes", "middleware"])
async def test_gemini_stores_prompt_and_tools_once(adapter):
    """Each request names them, in sync and async runs; they count as what they are, and an expired one is replaced."""
    watch, thread = Watch(), {"configurable": {"thread_id": "one"}}
    with GeminiServer(policy=tool_loop(steps=1), clock=watch) as server:
        agent = on_gemini(server, adapter)
        for number in range(4):
            agent.invoke({"messages": [HumanMessage(f"Question {number}?")]}, thread)
            await agent.ainvoke({"messages": [HumanMessage(f"Question {number}b?")]}, thread)
        watch.now += 2 * TTL_SECONDS  # our own clock does not move: the server says that it is gone
        state = agent.invoke({"messages": [HumanMessage("And now?")]}, thread)
        report = agent.get_state(thread).values["context_report"]
    asked = [request for request in server.generated if request.status == 200]
    names = [request.body.get("cachedContent") for request in asked]
    assert state["messages"][-1].type == "ai"
    assert names == ["cachedContents/1"] * 16 + [None, "cachedContents/2"]
    assert not any("systemInstruction" in r.body or "tools" in r.body for r in asked if "cachedContent" in r.body)
    assert report["system_tokens"] + report["tool_tokens"] > 1_000
    usage = next(message.usage_metadata for message in reversed(state["messages"]) if message.type == "ai")
    assert abs(report["total_tokens"] - usage["input_tokens"]) < LARGEST_ERROR * usage["input_tokens"]
