"""The scenario: of forty tools a request shows those that it needs, and of two models the cheaper answers if it can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.demo.explore import SYSTEM_PROMPT, Interview
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.offline_model import OfflineChatModel, request_tokens
from langchain_ctxwin.demo.story import Promise, Screen, StoryThread, input_limit, limits_of
from langchain_ctxwin.demo.tools import FolderTools
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.registry import ModelRegistry
from langchain_ctxwin.models.sources import ExplicitSource
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.tools import ToolSelector

PRICES = {"offline-small": "1", "offline-large": "10"}
"""Made-up USD per million tokens: the offline models cost nothing, but a router weighs prices."""

CHEAPEST_FIRST = RoutingConfig(complexity="low", when_full="move")
"""What is shown is how a conversation moves on; which model is worth its price is another story."""

TOOL_TOKENS = 800
VERBS = ("book", "cancel", "change", "confirm", "pay", "print")
THINGS = ("flight", "hotel", "invoice", "parcel", "subscription", "ticket")


def play(
    screen: Screen, folder: Folder, *, window_tokens: int, larger_tokens: int, steps: int = 20, seed: int = 0
) -> list[Promise]:
    """Explore a folder with both choices."""
    if larger_tokens <= window_tokens:
        raise ConfigError(f"--larger-window {larger_tokens:,} is not above --window {window_tokens:,}: raise it")
    limits, models, facts = {}, [], {}
    for (name, price), tokens in zip(PRICES.items(), (window_tokens, larger_tokens), strict=True):
        limits[name] = limits_of(tokens)
        facts[name] = {"context_window": tokens, "input_price": price, "output_price": price}
        models.append(OfflineChatModel(model=name, context_window=tokens, max_tokens=limits[name].output_reserve()))
    described = [(f"{verb}_{thing}", f"{verb.title()} a {thing} of a customer.") for verb in VERBS for thing in THINGS]
    others = [StructuredTool.from_function(_act, name=name, description=text) for name, text in described]
    tools = [*FolderTools(folder).tools(), *others]
    selector = ToolSelector(tools, TOOL_TOKENS, counter=_count)
    graph = create_context_agent(
        RoutedChatModel(ModelRouter(models, ModelRegistry([ExplicitSource(facts)]), CHEAPEST_FIRST)),
        [],
        system_prompt=SYSTEM_PROMPT,
        tool_selector=selector,
        checkpointer=InMemorySaver(),
    )
    talk = StoryThread(graph=graph, screen=screen, limits=limits["offline-large"])
    screen.opening(f"Choices: the same agent has {len(tools)} tools and two models", talk.limits)
    Interview(folder, window_tokens=window_tokens, seed=seed).hold(talk, steps=steps)
    sent = talk.recorder
    fits = [tokens <= input_limit(limits[name]) for tokens, name in zip(sent.sizes, sent.models, strict=True)]
    shown, whole = max(_count([], tools=tools) for tools in sent.tools), _count([], tools=tools)
    few = shown <= TOOL_TOKENS + selector.search_tokens
    answered = ", then ".join(f"{name} {sent.models.count(name)}" for name in dict.fromkeys(sent.models))
    return [
        Promise("tools that a request shows", f"up to {shown:,} of {whole:,} tokens", few),
        Promise("each request fits the model it went to", answered, all(fits) and sent.models[0] == "offline-small"),
        *talk.claims(),
        *talk.savings(),
    ]


def _act(reference: str, remark: str = "") -> str:
    return f"{reference}: done. {remark}"


def _count(messages: Sequence[BaseMessage], *, tools: Sequence[Any] | None = None) -> int:
    """Count as the offline models do."""
    return request_tokens(messages, [convert_to_openai_tool(tool) for tool in tools or ()])
