"""Who competes? Ours and a plain agent here, peers beside it; each builds an agent from the same parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from arena_parts import peers
from arena_parts.parts import Parts
from langchain_ctxwin import ContextConfig, create_context_agent, pin


def nodes(parts: Parts, summarizer: Any = None) -> Any:
    return create_context_agent(
        parts.provider,
        parts.tools,
        system_prompt=parts.system_prompt,
        config=ContextConfig(),
        summarizer=parts.summarizer if summarizer is None else summarizer,
        checkpointer=InMemorySaver(),
    )


def own_model(parts: Parts) -> Any:
    return nodes(parts, parts.provider)


def middleware(parts: Parts) -> Any:
    from langchain.agents import create_agent

    from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware

    return create_agent(
        parts.provider,
        parts.tools,
        system_prompt=parts.system_prompt,
        middleware=[ContextWindowMiddleware(summarizer=parts.summarizer)],
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    build: Callable[[Parts], Any]
    install: str
    setting: str
    ours: bool = False

    def message(self, text: Any, *, rule: bool) -> HumanMessage:
        """The user message; only ours can be told that it states a rule."""
        return pin(HumanMessage(text)) if self.ours and rule else HumanMessage(text)


MANAGERS: dict[str, Manager] = {
    "ours-nodes": Manager(
        build=nodes, install="langchain-ctxwin", setting="defaults; rules marked by pin()", ours=True
    ),
    "ours-own-model": Manager(
        build=own_model, install="langchain-ctxwin", setting="as ours-nodes; the model summarizes itself", ours=True
    ),
    "ours-middleware": Manager(
        build=middleware, install="langchain-ctxwin[agents]", setting="defaults; rules marked by pin()", ours=True
    ),
    "langchain": Manager(
        build=peers.summarization,
        install="langchain",
        setting="SummarizationMiddleware, trigger 0.8 and keep 0.3 of the room, trim_tokens_to_summarize=None",
    ),
    "editing": Manager(
        build=peers.editing,
        install="langchain",
        setting="ContextEditingMiddleware, ClearToolUsesEdit at 0.8 of the room, keep 3",
    ),
    "deepagents": Manager(
        build=peers.deep_agent,
        install="deepagents",
        setting="create_deep_agent with its own tools and its defaults by profile",
    ),
    "deepagents-mw": Manager(
        build=peers.deep_middleware,
        install="deepagents",
        setting="create_summarization_middleware alone in create_agent, defaults by profile, files in a folder",
    ),
    "langmem": Manager(
        build=peers.langmem,
        install="langmem",
        setting="SummarizationNode as pre_model_hook, max_tokens 0.8 of the room",
    ),
    "trim": Manager(
        build=peers.trim,
        install="langchain",
        setting="trim_messages before each call to 0.8 of the room, strategy last, start_on human",
    ),
    "nothing": Manager(build=peers.nothing, install="langchain", setting="create_agent without any management"),
}
