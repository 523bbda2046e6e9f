"""Who competes in the arena? Each manager builds an agent from the same parts; peers are set up as they document.

Where a peer counts messages alone, it is told sizes that leave room for the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import SystemMessage
from langchain_core.messages.utils import trim_messages
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver

from arena_provider import FakeModel, parts_of, total_tokens
from arena_scenarios import SYSTEM_PROMPT
from langchain_ctxwin import create_context_agent
from plain_tails import Dropped

TRIGGER_SHARE = 0.8  # SummarizationMiddleware's documented example
KEEP_SHARE = 0.3  # same


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    provider: FakeModel
    summarizer: FakeModel
    tools: list[BaseTool]
    folder: str
    """Where a manager may write files; it is removed after the scenario."""

    @property
    def room_tokens(self) -> int:
        """Tokens left for messages, exactly: a careful user sets them for a peer that does not know them itself."""
        tools = [convert_to_openai_tool(tool) for tool in self.tools]
        fixed = total_tokens(parts_of([SystemMessage(SYSTEM_PROMPT)], tools))
        return self.provider.window - self.provider.max_tokens - fixed


def nodes(parts: Parts, summarizer: Any = None) -> Any:
    return create_context_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        recall=False,
        summarizer=parts.summarizer if summarizer is None else summarizer,
        checkpointer=InMemorySaver(),
    )


def own_model(parts: Parts) -> Any:
    return nodes(parts, parts.provider)


def middleware(parts: Parts) -> Any:
    from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware

    own = ContextWindowMiddleware(summarizer=parts.summarizer, recall=False)
    return _agent(parts, own, state_schema=ContextAgentState)


def summarization(parts: Parts) -> Any:
    from langchain.agents.middleware import SummarizationMiddleware

    middleware = SummarizationMiddleware(
        parts.provider,
        trigger=("fraction", TRIGGER_SHARE),
        keep=("fraction", KEEP_SHARE),
        trim_tokens_to_summarize=None,
        summarizer=parts.summarizer,
    )
    return _agent(parts, middleware)


def editing(parts: Parts) -> Any:
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware

    edit = ClearToolUsesEdit(trigger=int(TRIGGER_SHARE * parts.room_tokens))
    return _agent(parts, ContextEditingMiddleware(edits=[edit]))


def deep_agent(parts: Parts) -> Any:
    from deepagents import create_deep_agent
    from deepagents.backends import StateBackend
    from deepagents.middleware.summarization import create_summarization_middleware

    backend = StateBackend()
    own = create_summarization_middleware(
        parts.provider, backend, summarizer=parts.summarizer
    )
    return create_deep_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        backend=backend,
        middleware=[own],
        checkpointer=InMemorySaver(),
    )


def deep_middleware(parts: Parts) -> Any:
    from deepagents.backends import FilesystemBackend
    from deepagents.middleware.summarization import create_summarization_middleware

    backend = FilesystemBackend(root_dir=parts.folder, virtual_mode=True)
    return _agent(
        parts,
        create_summarization_middleware(
            parts.provider, backend, summarizer=parts.summarizer
        ),
    )


def langmem(parts: Parts) -> Any:
    from langgraph.prebuilt import create_react_agent
    from langgraph.prebuilt.chat_agent_executor import AgentState
    from langmem.short_term import SummarizationNode

    class State(AgentState):
        context: dict[str, Any]

    node = SummarizationNode(
        model=parts.summarizer,
        max_tokens=int(TRIGGER_SHARE * parts.room_tokens),
        max_summary_tokens=parts.summarizer.max_tokens,
        output_messages_key="llm_input_messages",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still what langmem documents
        return create_react_agent(
            parts.provider,
            parts.tools,
            prompt=SYSTEM_PROMPT,
            pre_model_hook=node,
            state_schema=State,
            checkpointer=InMemorySaver(),
        )


def trim(parts: Parts) -> Any:
    from langchain.agents.middleware import wrap_model_call

    max_tokens = int(TRIGGER_SHARE * parts.room_tokens)

    @wrap_model_call
    def trimmed(request: Any, handler: Any) -> Any:
        messages = trim_messages(
            request.messages,
            max_tokens=max_tokens,
            token_counter="approximate",  # noqa: S106  # the name of a counter
            strategy="last",
            start_on="human",
            end_on=("human", "tool"),
            include_system=True,
        )
        return handler(request.override(messages=messages))

    return _agent(parts, trimmed)


def listed_tail(parts: Parts) -> Any:
    """The strongest plain way: a tail that drops to .3 of the room when it is full, and lists identifiers that left."""
    from langchain.agents.middleware import wrap_model_call

    def size(message: Any) -> int:
        return parts_of([message], [])[1].tokens

    policy = Dropped(parts.room_tokens, size)

    @wrap_model_call
    def shortened(request: Any, handler: Any) -> Any:
        return handler(request.override(messages=policy.view(request.messages)))

    return _agent(parts, shortened)


def nothing(parts: Parts) -> Any:
    return _agent(parts)


def _agent(parts: Parts, *middleware: Any, **options: Any) -> Any:
    from langchain.agents import create_agent

    return create_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        middleware=list(middleware),
        checkpointer=InMemorySaver(),
        **options,
    )


Build = Callable[[Parts], Any]
MANAGERS: dict[str, tuple[Build, str]] = {
    "ours-nodes": (
        nodes,
        "defaults without the recall tool, which no script calls; rules marked by pin()",
    ),
    "ours-own-model": (
        own_model,
        "as ours-nodes; the model summarizes itself",
    ),
    "ours-middleware": (
        middleware,
        "defaults without the recall tool, which no script calls; rules marked by pin()",
    ),
    "langchain": (
        summarization,
        "SummarizationMiddleware, fraction 0.8 and keep 0.3 by profile, trim_tokens_to_summarize=None",
    ),
    "editing": (
        editing,
        "ContextEditingMiddleware, ClearToolUsesEdit at 0.8 of the room, keep 3",
    ),
    "deepagents": (
        deep_agent,
        "create_deep_agent with its own tools and its defaults by profile",
    ),
    "deepagents-mw": (
        deep_middleware,
        "create_summarization_middleware alone in create_agent, defaults by profile, files in a folder",
    ),
    "langmem": (
        langmem,
        "SummarizationNode as pre_model_hook, max_tokens 0.8 of the room",
    ),
    "trim": (
        trim,
        "trim_messages before each call to 0.8 of the room, strategy last, start_on human",
    ),
    "tail-and-list": (
        listed_tail,
        "the newest messages, dropped to 0.3 of the room when full, and a bare list of identifiers",
    ),
    "nothing": (
        nothing,
        "create_agent without any management",
    ),
}
"""How each builds an agent, and what it is set to; ours are named so."""
