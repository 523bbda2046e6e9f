"""Which tool calls a message states, and which results, in whatever form; and the message in LangChain's own form.

LangChain's form is `tool_calls` answered by one `ToolMessage` each. Histories state the same in blocks of the content
(Anthropic's `tool_use` and `tool_result`, items of OpenAI's Responses API, LangChain's standard blocks), and old ones
in `additional_kwargs` with a `FunctionMessage`. What an integration sends as a call is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    FunctionMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call

from langchain_ctxwin.core.provider_blocks import (
    RESULT_KEYS,
    RESULT_TYPES,
    block_text,
    kind_of,
    media_count,
    spoken,
    text_of,
    with_fields,
    without_blocks,
)

# where `additional_kwargs` keep calls in OpenAI's own form
KEPT_CALLS = frozenset({"tool_calls", "function_call"})
UNSENT_TYPES = frozenset({"tool_call", "invalid_tool_call", "tool_call_chunk"})
"""Standard blocks, which integrations send only as `tool_calls`, or where the message says that its content is v1."""

SCREEN_CALL = (
    "computer_call"  # has no twin in `tool_calls`: the integration would send both
)
# where blocks keep the arguments of a call
ARGUMENT_KEYS = ("input", "args", "arguments", "action", "partial_json")
TEXT_ARGUMENT = (
    "__arg1"  # what LangChain calls the argument of a tool that takes one text
)

AnyCall = ToolCall | InvalidToolCall

# Asked of each message of a history: a look at what a class inherits takes longer than all else.
PLAIN_KINDS = frozenset({HumanMessage, AIMessage, SystemMessage})
NO_ANSWERS = frozenset({HumanMessage, ToolMessage, SystemMessage})


def calls_of(message: AnyMessage) -> tuple[AnyCall, ...]:
    """Return the calls that a message states, in order; malformed ones last, because providers want them answered."""
    if type(message) in NO_ANSWERS or not isinstance(message, AIMessage):
        return ()
    calls: list[AnyCall] = [*message.tool_calls, *message.invalid_tool_calls]
    if type(message.content) is list:
        calls = [*calls, *_calls_in_blocks(message.content, calls)]
    if not calls and not KEPT_CALLS.isdisjoint(message.additional_kwargs):
        calls += _kept_calls(message.additional_kwargs)
    return tuple(calls)


def call_ids(message: AnyMessage) -> tuple[str, ...]:
    """Ids of the calls that a message states, in order; empty texts for calls without one."""
    if type(message) in NO_ANSWERS:
        return ()
    return tuple([call["id"] or "" for call in calls_of(message)])


def result_ids(message: AnyMessage) -> tuple[str, ...]:
    """Ids of the calls whose results a message states; empty texts for results without one."""
    if type(message.content) is str:
        if type(message) is ToolMessage:
            return (message.tool_call_id or "",)
        if type(message) in PLAIN_KINDS:
            return ()
    if isinstance(message, FunctionMessage):
        return ("",)
    block_ids = tuple(map(_result_id, _result_blocks(message)))
    if isinstance(message, ToolMessage):
        return block_ids or (message.tool_call_id or "",)
    return block_ids


def is_result(message: AnyMessage) -> bool:
    """True for a message of results alone, such as a user message with nothing but Anthropic's `tool_result` blocks."""
    if isinstance(message, HumanMessage):
        return bool(_result_blocks(message)) and not _beside_results(message.content)
    return isinstance(message, ToolMessage | FunctionMessage)


def is_user(message: AnyMessage) -> bool:
    """True for a user message that says something: one of tool results alone does not."""
    return isinstance(message, HumanMessage) and not is_result(message)


def is_empty(message: AnyMessage) -> bool:
    """True when a message has neither content nor calls, nor was spoken."""
    return not (
        text_of(message.content).strip()
        or media_count(message)
        or call_ids(message)
        or spoken(message)
    )


def standard(message: AnyMessage) -> tuple[AnyMessage, ...]:
    """Return a message in LangChain's own form: calls as `tool_calls`, each result as a `ToolMessage`.

    What a user message says beside results follows them. A message in that form already is returned as it is.

    Examples:
        >>> asked = AIMessage(
        ...     [
        ...         {
        ...             "type": "tool_use",
        ...             "id": "a",
        ...             "name": "look",
        ...             "input": {"at": "door"},
        ...         }
        ...     ]
        ... )
        >>> standard(asked)[0].tool_calls[0]["args"]
        {'at': 'door'}
        >>> [
        ...     m.type
        ...     for m in standard(
        ...         HumanMessage(
        ...             [{"type": "tool_result", "tool_use_id": "a", "content": "shut"}]
        ...         )
        ...     )
        ... ]
        ['tool']
    """
    if isinstance(message, AIMessage):
        return (_with_tool_calls(message),)
    if isinstance(message, FunctionMessage):
        return (
            ToolMessage(
                message.content, tool_call_id="", name=message.name, id=message.id
            ),
        )
    blocks = _result_blocks(message)
    if not blocks:
        return (message,)
    beside = _beside_results(message.content)
    is_alone = len(blocks) == 1 and not beside
    results = [
        _tool_message(
            block, message, message.id if is_alone else f"{message.id}:{number}"
        )
        for number, block in enumerate(blocks)
    ]
    return (
        (*results, message.model_copy(update={"content": beside}))
        if beside
        else tuple(results)
    )


def _calls_in_blocks(
    content: Sequence[Any], listed_calls: Sequence[AnyCall]
) -> Iterator[AnyCall]:
    """The calls in blocks that `tool_calls` do not state, too; a block without an id belongs to those."""
    stated_ids = {call["id"] for call in listed_calls}
    for block in content:
        if not is_call_block(block):
            continue
        ids = {
            block_id
            for key in ("call_id", "id")
            if isinstance(block_id := block.get(key), str) and block_id
        }
        is_stated = bool(ids & stated_ids) if ids else bool(listed_calls)
        if not is_stated:
            yield _call_in(block)


def _call_in(block: Mapping[str, Any]) -> AnyCall:
    arguments: Any = next((block[key] for key in ARGUMENT_KEYS if block.get(key)), {})
    if block["type"] == "custom_tool_call":
        arguments = {TEXT_ARGUMENT: arguments}
    name = block.get("name") or block["type"]
    return _call(name, arguments, block.get("call_id") or block.get("id"))


def _kept_calls(additional_kwargs: Mapping[str, Any]) -> Iterator[AnyCall]:
    """The calls in OpenAI's own form that integrations send where the message states no others."""
    raw = additional_kwargs.get("tool_calls")
    calls = (
        [call for call in raw if isinstance(call, Mapping)]
        if isinstance(raw, list)
        else []
    )
    for call in calls or [{"function": additional_kwargs.get("function_call")}]:
        function = call.get("function")
        if isinstance(function, Mapping):
            yield _call(
                function.get("name") or "",
                function.get("arguments") or {},
                call.get("id"),
            )


def _call(name: Any, raw_arguments: Any, call_id: Any) -> AnyCall:
    """A call with arguments that may be JSON; malformed where they are no object."""
    call_id = call_id if isinstance(call_id, str) else None  # recordings hold anything
    arguments = raw_arguments
    if isinstance(raw_arguments, str):
        try:
            arguments = json.loads(raw_arguments)
        except (ValueError, RecursionError):
            arguments = None
    if isinstance(arguments, dict):
        return tool_call(name=str(name), args=arguments, id=call_id)
    return invalid_tool_call(
        name=str(name),
        args=str(raw_arguments),
        id=call_id,
        error="the arguments are no JSON object",
    )


def _with_tool_calls(message: AIMessage) -> AIMessage:
    """The message with all its calls in `tool_calls` and `invalid_tool_calls`."""
    num_listed = len(message.tool_calls) + len(message.invalid_tool_calls)
    added = [
        call for call in calls_of(message)[num_listed:] if call["name"] != SCREEN_CALL
    ]
    content: Any = message.content
    if message.response_metadata.get("output_version") != "v1":
        content = without_blocks(content, _is_unsent)
    if not added:
        return with_fields(message, content=content)
    return with_fields(
        message,
        content=content,
        tool_calls=[
            *message.tool_calls,
            *(call for call in added if call["type"] == "tool_call"),
        ],
        invalid_tool_calls=[
            *message.invalid_tool_calls,
            *(call for call in added if call["type"] != "tool_call"),
        ],
        additional_kwargs=without_kept_calls(message),
    )


def without_kept_calls(message: AIMessage) -> dict[str, Any]:
    """Return the `additional_kwargs` without the provider's raw copy of the calls: `tool_calls` hold what is sent."""
    return {
        key: value
        for key, value in message.additional_kwargs.items()
        if key not in KEPT_CALLS
    }


def is_call_block(block: Any) -> bool:
    """Return whether a block of content states a call."""
    return kind_of(block) == "call"


def _is_unsent(block: Any) -> bool:
    return is_call_block(block) and block["type"] in UNSENT_TYPES


def _tool_message(
    block: Mapping[str, Any], message: AnyMessage, message_id: str | None
) -> ToolMessage:
    returned = next(
        (block[key] for key in RESULT_KEYS if block.get(key) is not None), ""
    )
    if not isinstance(returned, str | list):
        returned = json.dumps(returned, ensure_ascii=False, default=str)
    return ToolMessage(
        returned,
        tool_call_id=_result_id(block),
        name=block.get("name"),
        status="error"
        if block.get("is_error")
        else getattr(message, "status", "success"),
        id=message_id,
    )


def _result_blocks(message: AnyMessage) -> list[Mapping[str, Any]]:
    """The blocks of results of a user message; of a `ToolMessage` only where it holds nothing else."""
    content: Any = message.content
    if type(content) is not list or not isinstance(message, HumanMessage | ToolMessage):
        return []
    results = [block for block in content if kind_of(block) == "result"]
    is_whole = isinstance(message, HumanMessage) or len(results) == len(content)
    return results if is_whole else []


def _beside_results(content: Any) -> list[Any]:
    """The content beside results; empty where there is none."""
    rest = [block for block in content if kind_of(block) != "result"]
    is_said = any(text is None or text.strip() for text in map(block_text, rest))
    return rest if is_said else []


def _result_id(block: Mapping[str, Any]) -> str:
    return str(block.get(RESULT_TYPES[block["type"]]) or "")
