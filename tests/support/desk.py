"""A small agent with two talkative tools, and what must hold for every request that it sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from langchain_ctxwin import ContextConfig, ModelLimits, create_context_agent
from support.conversations import payload
from support.gemini_policy import is_said
from support.gemini_server import GeminiRequest, GeminiServer

PROMPT = "You look around and report what you find."
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}}
SIZES = "exceeds the maximum number of tokens allowed"  # in the API's overflow text, and in no other
JSON_VALUES = (str, int, float, bool, type(None))


@tool
def look(name: str, depth: int) -> str:
    """Look at something."""
    return f"{name} at {depth}: " + "the quick brown fox jumps over the lazy dog, " * 5


@tool
def listen(name: str) -> str:
    """Listen to something."""
    return f"{name} is silent: " + '{"id": "a1b2", "levels": [1, 22, 333]} ' * 5


TOOLS = [look, listen]


def agent_of(
    model: Any,
    input_limit: int,
    *,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Compile an agent whose engine is told that the model takes `input_limit` tokens.

    Its policies call whatever tool they are given, so it has none but those that are meant.
    """
    options.setdefault("tools", TOOLS)
    options.setdefault("recall", False)
    return create_context_agent(
        model,
        options.pop("tools"),
        system_prompt=PROMPT,
        limits=ModelLimits(max_input_tokens=input_limit),
        config=ContextConfig(**(config or {})),
        **options,
    )


def ask(text: str) -> dict[str, Any]:
    """Return the input of one turn."""
    return {"messages": [("user", text)]}


def state_of(agent: Any, config: dict[str, Any] = CONFIG) -> dict[str, Any]:
    """Return the state of the thread as a checkpointer holds it."""
    values: dict[str, Any] = agent.get_state(config).values
    return values


def refusals(server: GeminiServer) -> list[str]:
    """Return the error texts of a server's 400 replies."""
    return [
        request.reply["error"]["message"]
        for request in server.requests
        if request.status == 400
    ]


def user_texts(request: GeminiRequest) -> list[str]:
    """Return what users said in a request, in order."""
    said = (content for content in request.body["contents"] if is_said(content))
    return [
        "".join(part.get("text", "") for part in content["parts"]) for content in said
    ]


def tool_outputs(request: GeminiRequest) -> list[str]:
    """Return the tool results of a request, in order."""
    parts = (part for content in request.body["contents"] for part in content["parts"])
    return [
        str(part["functionResponse"]["response"]["output"])
        for part in parts
        if "functionResponse" in part
    ]


def payloads(requests: Sequence[Sequence[BaseMessage]]) -> list[list[tuple[Any, ...]]]:
    """Return of each request what reaches the provider."""
    return [[payload(message) for message in request] for request in requests]


def not_json(value: Any, path: str = "state") -> Iterator[str]:
    """Yield the places in a state whose values are neither JSON nor, in `messages`, messages."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"{path}: key {key!r}"
            yield from (
                ()
                if path == "state" and key == "messages"
                else not_json(item, f"{path}.{key}")
            )
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from not_json(item, f"{path}[{index}]")
    elif type(value) not in JSON_VALUES:
        yield f"{path}: {type(value).__name__}"


def answered(agent: Any, config: dict[str, Any] = CONFIG) -> bool:
    """Tell whether the thread ends with an answer and nothing is left to run."""
    last = state_of(agent, config)["messages"][-1]
    return (
        isinstance(last, AIMessage)
        and not last.tool_calls
        and agent.get_state(config).next == ()
    )
