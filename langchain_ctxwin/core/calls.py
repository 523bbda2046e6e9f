"""Which tool calls a message states, and which results, in whatever form; and the message in LangChain's own form.

LangChain's form is `tool_calls` answered by one `ToolMessage` each. Histories state the same in blocks of the content
(Anthropic's `tool_use` and `tool_result`, items of OpenAI's Responses API, LangChain's standard blocks), and old ones
in `additional_kwargs` with a `FunctionMessage`. What an integration sends as a call is one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    FunctionMessage,
    HumanMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call

# Blocks that state a call for the application; calls that a server answers itself bring their results along.
CALL_BLOCKS = frozenset(
    {"tool_use", "tool_call", "invalid_tool_call", "function_call", "custom_tool_call", "computer_call", "part_call"}
)
KEPT_CALLS = frozenset({"tool_calls", "function_call"})  # where `additional_kwargs` keep calls in OpenAI's own form
UNSENT_BLOCKS = frozenset({"tool_call", "invalid_tool_call", "tool_call_chunk", "part_call"})
"""Standard blocks, which integrations send only as `tool_calls`, or where the message says that its content is v1."""

# Blocks that state a result, with the key that names its call.
RESULT_BLOCKS = {
    "tool_result": "tool_use_id", "function_call_output": "call_id", "custom_tool_call_output": "call_id",
    "computer_call_output": "call_id", "part_result": "id",
}  # fmt: skip
PARTS = {"part_call": "function_call", "part_result": "function_response"}
"""Parts in Gemini's own form, which have a key in the place of a type."""
SCREEN_CALL = "computer_call"  # has no twin in `tool_calls`: the integration would send both
_ARGUMENTS = ("input", "args", "arguments", "action")  # where blocks keep the arguments of a call
TEXT_ARGUMENT = "__arg1"  # what LangChain calls the argument of a tool that takes one text

AnyCall = ToolCall | InvalidToolCall


def calls_of(message: AnyMessage) -> tuple[AnyCall, ...]:
    """Return the calls that a message states, in order; malformed ones last, because providers want them answered."""
    if not isinstance(message, AIMessage):
        return ()
    calls: list[AnyCall] = [*message.tool_calls, *message.invalid_tool_calls]
    content: Any = message.content
    if type(content) is list:
        stated = {call["id"] for call in calls}
        has_calls = bool(calls)
        for block in content:
            if kind_of(block) in CALL_BLOCKS:
                names = {name for name in (block.get("call_id"), block.get("id")) if name and isinstance(name, str)}
                if not (names & stated or (has_calls and not names)):
                    calls.append(_call_in(block))
    if not calls and not KEPT_CALLS.isdisjoint(message.additional_kwargs):
        calls += kept_calls(message.additional_kwargs)
    return tuple(calls)


def call_ids(message: AnyMessage) -> tuple[str, ...]:
    """Ids of the calls that a message states, in order; empty texts for calls without one."""
    return tuple(call["id"] or "" for call in calls_of(message))


def result_ids(message: AnyMessage) -> tuple[str, ...]:
    """Ids of the calls whose results a message states; empty texts for results without one."""
    if isinstance(message, FunctionMessage):
        return ("",)
    if isinstance(message, ToolMessage):
        return tuple(_id_in(block) for block in _result_blocks(message)) or (message.tool_call_id or "",)
    return tuple(_id_in(block) for block in _result_blocks(message)) if isinstance(message, HumanMessage) else ()


def is_result(message: AnyMessage) -> bool:
    """True for a message of results alone, such as a user message with nothing but Anthropic's `tool_result` blocks."""
    if not isinstance(message, HumanMessage):
        return isinstance(message, ToolMessage | FunctionMessage)
    return type(message.content) is list and bool(_result_blocks(message)) and not _beside_results(message)


def is_user(message: AnyMessage) -> bool:
    """True for a user message that says something: one of tool results alone does not."""
    return isinstance(message, HumanMessage) and not is_result(message)


def standard(message: AnyMessage) -> tuple[AnyMessage, ...]:
    """Return a message in LangChain's own form: calls as `tool_calls`, each result as a `ToolMessage`.

    What a user message says beside results follows them. A message in that form already is returned as it is.

    Examples:
        >>> asked = AIMessage([{"type": "tool_use", "id": "a", "name": "look", "input": {"at": "door"}}])
        >>> standard(asked)[0].tool_calls[0]["args"]
        {'at': 'door'}
        >>> [m.type for m in standard(HumanMessage([{"type": "tool_result", "tool_use_id": "a", "content": "shut"}]))]
        ['tool']
    """
    if isinstance(message, AIMessage):
        return (_calling(message),)
    if isinstance(message, FunctionMessage):
        return (ToolMessage(message.content, tool_call_id="", name=message.name, id=message.id),)
    blocks = _result_blocks(message) if isinstance(message, HumanMessage | ToolMessage) else []
    if not blocks:
        return (message,)
    beside = _beside_results(message)
    results = list[AnyMessage]()
    for number, block in enumerate(blocks):
        inner = _inner(block)
        content = next((inner[key] for key in ("content", "output", "response") if inner.get(key) is not None), "")
        shown = content if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False, default=str)
        status = "error" if block.get("is_error") else getattr(message, "status", "success")
        key = message.id if len(blocks) == 1 and not beside else f"{message.id}:{number}"
        name = inner.get("name")
        results.append(ToolMessage(shown, tool_call_id=_id_in(block), name=name, status=status, id=key))
    return (*results, message.model_copy(update={"content": beside})) if beside else tuple(results)


def kind_of(block: Any) -> str:
    """Return the type of a block; the parts of Gemini's own form are named by their key."""
    if not isinstance(block, Mapping):
        return ""
    kind = block.get("type")
    if kind is None:
        return next((kind for kind, key in PARTS.items() if isinstance(block.get(key), Mapping)), "")
    return kind if isinstance(kind, str) else ""


def kinds_in(message: AnyMessage) -> set[str]:
    """Return the types of the blocks of a message."""
    return {kind_of(block) for block in message.content} if isinstance(message.content, list) else set()


def without_call_blocks(content: Any, kinds: Collection[str] = CALL_BLOCKS) -> Any:
    """Return a content without its blocks that state calls; the same object where there are none."""
    if not isinstance(content, list):
        return content
    kept = [block for block in content if kind_of(block) not in kinds]
    return content if len(kept) == len(content) else kept or ""


def _calling(message: AIMessage) -> AIMessage:
    """The message with all its calls in `tool_calls` and `invalid_tool_calls`."""
    known, content = len(message.tool_calls) + len(message.invalid_tool_calls), message.content
    added = [call for call in calls_of(message)[known:] if call["name"] != SCREEN_CALL]
    if message.response_metadata.get("output_version") != "v1":
        content = without_call_blocks(content, UNSENT_BLOCKS)
    if not added and content is message.content:
        return message
    raw = KEPT_CALLS if added else frozenset[str]()
    return message.model_copy(
        update={
            "content": content,
            "tool_calls": [*message.tool_calls, *(call for call in added if call["type"] == "tool_call")],
            "invalid_tool_calls": [*message.invalid_tool_calls, *(c for c in added if c["type"] != "tool_call")],
            "additional_kwargs": {key: kept for key, kept in message.additional_kwargs.items() if key not in raw},
        }
    )


def _call_in(block: Mapping[str, Any]) -> AnyCall:
    block = _inner(block)
    given = next((block[key] for key in _ARGUMENTS if block.get(key)), block.get("partial_json") or {})
    if block.get("type") == "custom_tool_call":
        given = {TEXT_ARGUMENT: given}
    return _made(block.get("name") or block.get("type") or "", given, block.get("call_id") or block.get("id"))


def kept_calls(kept: Mapping[str, Any]) -> Iterator[AnyCall]:
    """The calls in OpenAI's own form that integrations send where the message states no others."""
    raw = kept.get("tool_calls")
    stated = [call for call in raw if isinstance(call, Mapping)] if isinstance(raw, list) else []
    if not stated:
        stated = [{"function": kept.get("function_call")}]
    for call in stated:
        if isinstance(function := call.get("function"), Mapping):
            yield _made(function.get("name") or "", function.get("arguments") or {}, call.get("id"))


def _made(name: Any, given: Any, call_id: Any) -> AnyCall:
    """A call with arguments that may be JSON; malformed where they are no object."""
    call_id = call_id if isinstance(call_id, str) else None  # recordings hold anything
    arguments = given
    if isinstance(given, str):
        try:
            arguments = json.loads(given)
        except (ValueError, RecursionError):
            arguments = None
    if isinstance(arguments, dict):
        return tool_call(name=str(name), args=arguments, id=call_id)
    return invalid_tool_call(name=str(name), args=str(given), id=call_id, error="the arguments are no JSON object")


def _result_blocks(message: AnyMessage) -> list[Mapping[str, Any]]:
    """The blocks of results of a user message; of a `ToolMessage` only where it holds nothing else."""
    content: Any = message.content
    if type(content) is not list:
        return []
    found = [block for block in content if kind_of(block) in RESULT_BLOCKS]
    return found if isinstance(message, HumanMessage) or len(found) == len(content) else []


def _beside_results(message: AnyMessage) -> list[Any]:
    """What the content holds beside results, if it says anything."""
    rest = [block for block in message.content if kind_of(block) not in RESULT_BLOCKS]
    is_said = any(str(block.get("text", "...") if isinstance(block, Mapping) else block).strip() for block in rest)
    return rest if is_said else []


def _inner(block: Mapping[str, Any]) -> Mapping[str, Any]:
    inner: Mapping[str, Any] = block[PARTS[kind]] if (kind := kind_of(block)) in PARTS else block
    return inner


def _id_in(block: Mapping[str, Any]) -> str:
    inner = _inner(block)
    return str(inner.get(RESULT_BLOCKS[kind_of(block)]) or "")
