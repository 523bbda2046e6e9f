"""Long conversations with each provider's own context management switched on, and what became of them.

Each talk runs a ready agent on a loopback server that keeps the provider's rules, with the real integration in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig, ModelLimits, TokenEstimator, create_context_agent
from langchain_ctxwin.observe import MemorySink, StepEvent
from support.anthropic_server import AnthropicServer
from support.loopback import Loopback
from support.openai_server import OpenAIServer

WINDOW = 6_000
LEARNING_STEPS = 3  # sizes are learned from the first answers
CLEAR_EDIT = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "input_tokens", "value": 2_000},
    "keep": {"type": "tool_uses", "value": 1},
}
COMPACT_TRIGGER_TOKENS = 3_000
COMPACT_EDIT = {
    "type": "compact_20260112",
    "trigger": {"type": "input_tokens", "value": COMPACT_TRIGGER_TOKENS},
}
SEARCH_TOOL = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
EDIT_BETAS = ["context-management-2025-06-27", "compact-2026-01-12"]
THREAD = {"configurable": {"thread_id": "talk"}}


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"At {place}: " + "a boat, a mill and a heron. " * 12


def many_tools(number: int) -> list[StructuredTool]:
    """Tools that are deferred, far more of them than the window holds."""
    return [
        StructuredTool.from_function(
            lambda what: what,
            name=f"tool{n}",
            description="Does one of many things. " * 20,
            extras={"defer_loading": True},
            args_schema={"type": "object", "properties": {"what": {"type": "string"}}},
        )
        for n in range(number)
    ]


@dataclass(kw_only=True)
class Outcome:
    """What became of a talk."""

    requests: int
    refused: list[str]
    """Messages of the refusals: what broke a rule, or was too large."""

    errors: list[float]
    """Shares by which our count missed the size of each request that was sent, once sizes were learned."""

    breakpoints: list[int]
    """Cache breakpoints of each request."""

    kept: list[bool]
    """For each request after the provider's first own compaction: whether its newest block came back to it."""

    cached_share: float
    """Part of all input that was read from the prompt cache."""

    compactions: int
    """Of our own, begun by the provider or by us."""

    texts: list[str] = field(default_factory=list)
    """Every request, as JSON."""


def speaking(*, thinks: bool) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Anthropic's side: look at what the user names, then say something about it."""

    def blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
        last = body["messages"][-1]["content"]
        answered = isinstance(last, list) and any(block.get("type") == "tool_result" for block in last)
        thought = [{"type": "thinking", "thinking": "Let me see."}] if thinks else []
        if answered:
            return [*thought, {"type": "text", "text": "There is a boat. " * 10}]
        return [*thought, {"type": "tool_use", "name": "look", "input": {"place": f"pier {len(body['messages'])}"}}]

    return blocks


def responding(body: dict[str, Any]) -> list[dict[str, Any]]:
    """OpenAI's side of the same."""
    last = body["input"][-1]
    thought = {"type": "reasoning", "text": "Let me see. " * 4}
    if last.get("type") == "function_call_output":
        return [thought, {"type": "text", "text": "There is a boat. " * 10}]
    place = f"pier {len(body['input'])}"
    return [thought, {"type": "function_call", "name": "look", "arguments": json.dumps({"place": place})}]


def play(server: Loopback, model: Any, *, turns: int = 40, tools: Sequence[Any] = (look,), **options: Any) -> Outcome:
    """Hold a talk of so many turns, and say what became of it."""
    sink = MemorySink()
    limits = ModelLimits(context_window=WINDOW, max_output_tokens=model.max_tokens)
    # The servers count with one tokenizer, OpenAI's: what is off then is what a provider manages, not the tokenizer.
    options = {"limits": limits, "counter": TokenEstimator("openai"), **options}
    agent = create_context_agent(
        model,
        list(tools),
        system_prompt="Answer in French. " * 60,
        checkpointer=InMemorySaver(),
        sinks=[sink],
        **options,
    )
    for number in range(turns):
        text = f"Question {number}: what is to be seen? " + "The river ran past the mill. " * 8
        agent.invoke({"messages": [HumanMessage(text)]}, THREAD)
    state = agent.get_state(THREAD).values
    return outcome_of(server, [event for event in sink.events if isinstance(event, StepEvent)], state)


def outcome_of(server: Loopback, steps: Sequence[StepEvent], state: dict[str, Any]) -> Outcome:
    """Read what became of a talk off the server's requests and our events."""
    known = [step for step in steps if step.estimated_tokens and step.reported_tokens][LEARNING_STEPS:]
    usages = [message.usage_metadata for message in state["messages"] if isinstance(message, AIMessage)]
    read = sum((usage or {}).get("input_token_details", {}).get("cache_read", 0) for usage in usages)
    sent = [exchange for exchange in server.requests if exchange.body and "/cachedContents" not in exchange.path]
    return Outcome(
        requests=len(sent),
        refused=[str(exchange.reply.get("error")) for exchange in sent if exchange.status >= 400],
        errors=[abs(step.estimated_tokens - step.reported_tokens) / step.reported_tokens for step in known],
        breakpoints=[breakpoints(exchange.body) for exchange in sent],
        kept=list(_kept(sent)),
        cached_share=read / max(1, sum((usage or {}).get("input_tokens", 0) for usage in usages)),
        compactions=int((state.get("context_guard") or {}).get("compactions", 0)),
        texts=[json.dumps(exchange.body) for exchange in sent],
    )


def breakpoints(value: Any) -> int:
    """How many cache breakpoints a request has."""
    if isinstance(value, dict):
        here = isinstance(value.get("cache_control"), dict)
        return here + sum(breakpoints(part) for key, part in value.items() if key != "cache_control")
    return sum(map(breakpoints, value)) if isinstance(value, list) else 0


def _kept(sent: Sequence[Any]) -> Iterator[bool]:
    """Whether the newest compaction of the provider is in each request that follows it."""
    newest = ""
    for exchange in sent:
        text = json.dumps(exchange.body)
        if newest:
            yield newest in text or bool(exchange.body.get("previous_response_id"))
        parts = exchange.reply.get("content") or exchange.reply.get("output") or []
        blocks = [part for part in parts if isinstance(part, dict) and part.get("type") == "compaction"]
        newest = json.dumps(blocks[-1].get("content") or blocks[-1].get("encrypted_content")) if blocks else newest


def anthropic_compaction() -> Outcome:
    """The server compacts, as the model was set to."""
    with AnthropicServer(context_window=WINDOW, policy=speaking(thinks=True), min_compaction_trigger=1_000) as server:
        management = {"edits": [COMPACT_EDIT]}
        thinking = {"type": "enabled", "budget_tokens": 1_024}
        options = {"context_management": management, "betas": EDIT_BETAS, "thinking": thinking, "max_tokens": 1_280}
        return play(server, server.chat_model(**options))


def anthropic_editing() -> Outcome:
    """The server clears old tool results."""
    with AnthropicServer(context_window=WINDOW, policy=speaking(thinks=False)) as server:
        model = server.chat_model(context_management={"edits": [CLEAR_EDIT]}, betas=EDIT_BETAS)
        return play(server, model)


def anthropic_thinking() -> Outcome:
    """We compact; thinking stays as it was signed."""
    with AnthropicServer(context_window=WINDOW, policy=speaking(thinks=True)) as server:
        model = server.chat_model(thinking={"type": "enabled", "budget_tokens": 1_024}, max_tokens=1_280)
        return play(server, model)


def anthropic_deferred() -> Outcome:
    """A hundred deferred tools, far more than the window holds."""
    with AnthropicServer(context_window=WINDOW, policy=speaking(thinks=False)) as server:
        return play(server, server.chat_model(), tools=[look, *many_tools(100)])


def openai_chain() -> Outcome:
    """The server keeps the history."""
    with OpenAIServer(context_window=WINDOW, policy=responding) as server:
        return play(server, server.chat_model(use_previous_response_id=True, max_tokens=256))


def openai_forgetting() -> Outcome:
    """The server forgets what it kept, now and then."""
    with OpenAIServer(context_window=WINDOW, policy=responding) as server:
        policy, calls = server.policy, iter(range(1_000))

        def forgetting(body: dict[str, Any]) -> Any:
            if next(calls) % 7 == 5:
                server.stored.clear()
            return policy(body)

        server.policy = forgetting
        outcome = play(server, server.chat_model(use_previous_response_id=True, max_tokens=256))
    outcome.refused = [text for text in outcome.refused if "previous_response_not_found" not in text]
    return outcome


def openai_compaction() -> Outcome:
    """The server compacts, as the model was set to."""
    with OpenAIServer(context_window=WINDOW, policy=responding) as server:
        management = [{"type": "compaction", "compact_threshold": COMPACT_TRIGGER_TOKENS}]
        return play(server, server.chat_model(context_management=management, max_tokens=256))


def openai_stateless() -> Outcome:
    """Nothing is stored; encrypted reasoning goes back and forth."""
    with OpenAIServer(context_window=WINDOW, policy=responding) as server:
        options = {"store": False, "include": ["reasoning.encrypted_content"], "output_version": "responses/v1"}
        return play(server, server.chat_model(max_tokens=256, **options))


def native() -> Outcome:
    """Our engine lets Anthropic compact where it can: past 50,000 tokens."""
    long = StructuredTool.from_function(look_long, name="look", description="Look.")
    with AnthropicServer(context_window=70_000, policy=speaking(thinks=False)) as server:
        options = {"config": ContextConfig(trigger=52_000), "summarizer": "native"}
        limits = ModelLimits(context_window=70_000, max_output_tokens=256)
        return play(server, server.chat_model(), tools=[long], turns=24, limits=limits, **options)


def look_long(place: str) -> str:
    """Look at a place for long."""
    return f"At {place}: " + "a heron. " * 1_200


TALKS: dict[str, Callable[[], Outcome]] = {
    "anthropic: native compaction": anthropic_compaction,
    "anthropic: context editing": anthropic_editing,
    "anthropic: thinking": anthropic_thinking,
    "anthropic: 100 deferred tools": anthropic_deferred,
    "anthropic: native compaction asked for": native,
    "openai: server-side history": openai_chain,
    "openai: history that is forgotten": openai_forgetting,
    "openai: native compaction": openai_compaction,
    "openai: stateless, encrypted reasoning": openai_stateless,
}
"""Every talk, by provider and what it manages."""
