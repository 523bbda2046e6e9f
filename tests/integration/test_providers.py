"""What providers manage themselves, on servers that keep their rules: nothing is refused, lost or counted twice."""

import statistics
from functools import partial

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_google_genai import create_context_cache
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig, ModelLimits, create_context_agent
from langchain_ctxwin.observe import CacheMissEvent, MemorySink
from support.agents import agent_on, on_both
from support.anthropic_server import AnthropicServer
from support.gemini_policy import tool_loop
from support.gemini_server import GeminiServer
from support.llama_server import LlamaServer
from support.openai_server import OpenAIServer
from support.oracle import text_tokens
from support.prompt_cache import STEP_TOKENS
from support.provider_talks import (
    LOCAL_WINDOW,
    TALKS,
    WINDOW,
    composed,
    look,
    moving,
    ours_on,
    play,
    responding,
    speaking,
)

pytestmark = pytest.mark.enable_socket

THREAD = {"configurable": {"thread_id": "a"}}
LARGEST_ERROR = 0.02
"""By how much the count of the next request is off at most, in the middle of a talk's errors."""

MAX_BREAKPOINTS = 4
TURNS = 28  # enough for each window to be full once
LIMITS = ModelLimits(context_window=8_000, max_output_tokens=256)


@pytest.mark.parametrize("name", TALKS)
def test_a_long_talk_keeps_the_providers_rules(name):
    outcome = TALKS[name](partial(play, turns=TURNS))
    assert (outcome.refused, outcome.failed_turns) == ([], 0)
    assert all(outcome.kept)
    assert outcome.compactions > 0
    assert statistics.median(outcome.errors) <= LARGEST_ERROR
    assert max(outcome.breakpoints) <= MAX_BREAKPOINTS
    assert ("native compaction" in name) is bool(outcome.kept)
    assert outcome.cached_share > 0.46


@pytest.mark.parametrize("ours_first", [True, False])
def test_another_middleware_may_mark_the_cache_too(ours_first):
    outcome = composed(create_agent, ours_first=ours_first, turns=12)
    assert (outcome.refused, outcome.failed_turns) == ([], 0)
    assert 0 < max(outcome.breakpoints) <= MAX_BREAKPOINTS


@on_both
@pytest.mark.parametrize(
    "thinking", [None, {"type": "adaptive"}], ids=["by default", "as the model is set"]
)
async def test_thinking_that_an_edit_made_stale_is_refused_once(adapter, thinking):
    """The API's own refusal is recovered, sync and async; the request without it, and all after it, are taken."""
    with AnthropicServer(policy=speaking(thinks=True), binds=True) as server:
        model, thread = server.chat_model(thinking=thinking), THREAD
        agent = agent_on(
            adapter, model, [look], system_prompt="Be good.", limits=LIMITS
        )
        for is_later in (False, True):
            if is_later:
                asked = agent.get_state(thread).values["messages"][0]
                edited = HumanMessage("What was to be seen?", id=asked.id)
                agent.update_state(thread, {"messages": [edited]})
            agent.invoke({"messages": [HumanMessage("What is to be seen?")]}, thread)
            await agent.ainvoke({"messages": [HumanMessage("And now?")]}, thread)
    assert [request.status for request in server.requests] == [200] * 4 + [400] + [
        200
    ] * 4
    asked = [
        (request.body.get("thinking") or {}).get("block_binding")
        for request in server.requests
    ]
    drops = {"prefix_mismatch_behavior": "drop_block"}
    assert asked == [None] * 5 + [None if thinking else drops] * 4


LARGE_PROMPT = "Answer in French, and mind the gap. " * 1_100  # 10,000 tokens
NEW_OPENAI = {"release_date": "2026-10-26"}
"""Profile of a model whose prompt cache matches at breakpoints only."""


SERVERS = {
    "OpenAI, at breakpoints only": (
        partial(OpenAIServer, policy=responding, cache="breakpoints"),
        {"profile": NEW_OPENAI},
    ),
    "OpenAI, any prefix": (partial(OpenAIServer, policy=responding), {}),
    "Anthropic": (partial(AnthropicServer, policy=speaking(thinks=False)), {}),
    "Gemini": (
        lambda context_window: GeminiServer(
            input_limit=context_window, policy=tool_loop(steps=1)
        ),
        {},
    ),
}


def read_from_cache(reply):
    """The tokens that a provider says it read from its cache."""
    usage = reply.get("usageMetadata") or reply["usage"]
    details = usage.get("input_tokens_details") or {}
    known = (
        usage.get("cachedContentTokenCount"),
        usage.get("cache_read_input_tokens"),
        details.get("cached_tokens"),
    )
    return next((tokens for tokens in known if tokens), 0)


@pytest.mark.parametrize("name", SERVERS)
def test_a_large_prompt_is_written_once(name):
    """Each request after the first reads it from the cache, those after a compaction too."""
    serve, options = SERVERS[name]
    with serve(context_window=13_000) as server:
        model = server.chat_model(
            **{
                "max_output_tokens" if name == "Gemini" else "max_tokens": 256,
                **options,
            }
        )
        limits = ModelLimits(context_window=13_000, max_output_tokens=256)
        # so that nothing but the prompt is the same after a compaction
        config = ContextConfig(pin_first_user=False)
        outcome = play(
            server,
            model,
            turns=TURNS,
            prompt=LARGE_PROMPT,
            limits=limits,
            config=config,
        )
    assert (outcome.refused, outcome.compactions > 1) == ([], True)
    cached = [read_from_cache(request.reply) for request in server.requests]
    assert cached[0] == 0
    # OpenAI reads whole steps of a prefix
    assert min(cached[1:]) > text_tokens(LARGE_PROMPT) - STEP_TOKENS


def test_one_conversation_moves_through_five_servers_and_back(llama_gguf):
    """None refuses what the others made, none of them cuts a prompt, and every question is answered."""
    outcome = moving(ours_on, LlamaServer(llama_gguf, n_ctx=LOCAL_WINDOW), turns=1)
    assert (outcome.refused, outcome.failed_turns) == ([], 0)
    assert outcome.cut == 0
    assert outcome.compactions > 0


LONG_PROMPT = "Answer in French, and mind the gap. " * 200


@on_both
def test_a_request_beside_stored_content_of_gemini_names_no_tools(adapter):
    """What somebody stored in Gemini's explicit cache has them, and saying them again is refused."""
    with GeminiServer(policy=tool_loop(steps=1)) as server:
        model = server.chat_model()
        name = create_context_cache(
            model, [SystemMessage(LONG_PROMPT), HumanMessage("Look!")], tools=[look]
        )
        model = model.model_copy(update={"cached_content": name})
        agent = agent_on(adapter, model, [look], limits=LIMITS)
        agent.invoke(
            {"messages": [AIMessage("Yes?"), HumanMessage("And now?")]}, THREAD
        )
    asked = [
        (request.status, request.body["cachedContent"], "tools" in request.body)
        for request in server.generated
    ]
    assert asked == [(200, name, False)] * 2


def test_a_summary_by_the_agents_own_model_reads_what_was_sent_from_the_cache():
    """Anthropic looks into its cache where a request has breakpoints."""
    with AnthropicServer(
        context_window=WINDOW, policy=speaking(thinks=False)
    ) as server:
        model = server.chat_model(max_tokens=512)
        play(server, model, turns=12, summarizer=model)
        asked = [
            request.reply["usage"]
            for request in server.requests
            if "Pause here" in str(request.body["messages"][-1])
        ]
    assert asked
    assert all(
        usage["cache_read_input_tokens"] > WINDOW // 3 and usage["input_tokens"] == 0
        for usage in asked
    )


def test_anthropic_says_why_its_cache_missed():
    """Asked for with each request, by the id of the answer before; its word counts, not our comparison."""
    sink = MemorySink()
    with AnthropicServer(policy=speaking(thinks=False)) as server:
        model = server.chat_model(model_kwargs={"diagnostics": {}})
        saver = InMemorySaver()
        for prompt in ("Be good. ", "Be good. ", "Be quick. "):
            made = {
                "system_prompt": prompt * 1_000,
                "checkpointer": saver,
                "sinks": [sink],
            }
            agent = create_context_agent(
                model, [look], limits=ModelLimits(100_000), **made
            )
            agent.invoke(
                {"messages": [HumanMessage("Who?")]},
                {"configurable": {"thread_id": "a"}},
            )
        first, *others = (
            request.body["diagnostics"]["previous_message_id"]
            for request in server.requests
        )
    assert (first, all(others)) == (None, True)
    assert [event.changed for event in sink.of(CacheMissEvent)] == ["system"]
