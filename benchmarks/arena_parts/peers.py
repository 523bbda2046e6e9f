"""How are the peers set up? As documented, with sizes that leave room for what they do not count themselves."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_core.messages.utils import trim_messages
from langgraph.checkpoint.memory import InMemorySaver

from arena_parts.parts import Parts

TRIGGER_SHARE = 0.8  # SummarizationMiddleware's documented example
KEEP_SHARE = 0.3  # same


def summarization(parts: Parts) -> Any:
    from langchain.agents.middleware import SummarizationMiddleware

    middleware = SummarizationMiddleware(
        parts.provider,
        trigger=("tokens", int(TRIGGER_SHARE * parts.room_tokens)),
        keep=("tokens", int(KEEP_SHARE * parts.room_tokens)),
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
    own = create_summarization_middleware(parts.provider, backend, summarizer=parts.summarizer)
    return create_deep_agent(
        parts.provider,
        parts.tools,
        system_prompt=parts.system_prompt,
        backend=backend,
        middleware=[own],
        checkpointer=InMemorySaver(),
    )


def deep_middleware(parts: Parts) -> Any:
    from deepagents.backends import FilesystemBackend
    from deepagents.middleware.summarization import create_summarization_middleware

    backend = FilesystemBackend(root_dir=parts.folder, virtual_mode=True)
    return _agent(parts, create_summarization_middleware(parts.provider, backend, summarizer=parts.summarizer))


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
            prompt=parts.system_prompt,
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


def nothing(parts: Parts) -> Any:
    return _agent(parts)


def _agent(parts: Parts, *middleware: Any) -> Any:
    from langchain.agents import create_agent

    return create_agent(
        parts.provider,
        parts.tools,
        system_prompt=parts.system_prompt,
        middleware=list(middleware),
        checkpointer=InMemorySaver(),
    )
