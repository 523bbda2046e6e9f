"""Recorded messages in the forms of OpenAI, Anthropic, LangChain and user interfaces, each judged by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.load.load import load as load_object
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
    messages_from_dict,
)
from langchain_core.messages.content import KNOWN_BLOCK_TYPES
from langchain_core.messages.tool import invalid_tool_call, tool_call
from pydantic import ValidationError

from langchain_ctxwin.core.blocks import (
    CALL_TYPES,
    MEDIA_TYPES,
    REASONING_TYPES,
    RESULT_TYPES,
)
from langchain_ctxwin.errors import ConfigError

# how JSON escapes half of a character outside the first plane
HALF = re.compile(r"\\u[dD][89a-fA-F]")
ROLES = {"human", "user", "ai", "assistant", "system", "developer", "tool", "function"}
# where a message may say something; the first that does is read
TEXTS = ("content", "text", "refusal")
# what the blocks of OpenAI's Responses API call a text
TEXT_BLOCKS = {"input_text", "output_text"}

SILENT = {
    "role", "type", "id", "uuid", "name", "content", "timestamp", "created_at", "createdAt", "metadata", "model",
    "status", "annotations", "example", "usage", "additional_kwargs", "response_metadata", "usage_metadata",
    "tool_call_id", "provider_specific_fields", "finish_reason", "stop_reason", "stop_sequence",
}  # fmt: skip
"""Fields in which a message says nothing."""

SAYING = {
    "reasoning_content",
    "reasoning",
    "thinking",
    "audio",
    "function_call",
    "tool_calls",
}
"""Fields, kept beside the content, in which a message says something that integrations send again."""

BLOCKS = (
    KNOWN_BLOCK_TYPES
    | CALL_TYPES
    | RESULT_TYPES.keys()
    | MEDIA_TYPES.keys()
    | REASONING_TYPES
)
"""Types of blocks that say something without a text."""

MAX_DEPTH = 100  # lists and objects inside each other: more than any schema of a tool has, less than ends a program


def loads(text: str) -> Any:
    """Return what a JSON text holds; halves of characters, which no other text can have, become U+FFFD.

    Raises:
        ValueError: it is no JSON, or lists and objects stand inside each other too deeply.
    """
    try:
        value = json.loads(text, strict=False)
        is_deep = _is_deep(value)
    except RecursionError:
        is_deep = True
    if is_deep:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return _whole(value) if HALF.search(text) else value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        lists = (
            one.values() if isinstance(one, dict) else one
            for one in level
            if isinstance(one, dict | list)
        )
        level = [inner for one in lists for inner in one]
        if not level:
            return False
    return True


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(one) for key, one in value.items()}
    return value


def is_pair(said: Any) -> bool:
    """True for a message as LangChain's users write it, `("human", "Hello")`."""
    return (
        isinstance(said, list | tuple)
        and len(said) == 2  # noqa: PLR2004  # a pair
        and isinstance(said[0], str)
        and said[0] in ROLES
    )


def read_message(said: Any) -> list[BaseMessage]:
    """Return one recorded message; of Anthropic's user messages each tool result is a message of its own.

    Tool calls whose arguments are no JSON object become `invalid_tool_calls`, as LangChain's own parsers make them.
    What is no message, or says nothing that is understood, raises whatever its reader raises.
    """
    if isinstance(said, BaseMessage):
        read = [said]
    elif isinstance(said, str) or is_pair(said):
        read = convert_to_messages([said])
    elif not isinstance(said, Mapping):
        raise ConfigError(f"a message is {type(said).__name__}, not an object")
    elif "lc" in said:
        read = [load_object(dict(said), allowed_objects="messages")]
    elif isinstance(said.get("message"), Mapping):  # an event that tells of a message
        return read_message({"role": said.get("type"), **said["message"]})
    elif isinstance(said.get("data"), Mapping):
        read = messages_from_dict([dict(said)])
    else:
        has_parts = isinstance(said.get("parts"), list) and said["parts"]
        read = [*(_of_parts(said) if has_parts else _of_role(said))]
        _require_saying(read, said)
    for message in read:
        if not isinstance(message, BaseMessage) or isinstance(message, RemoveMessage):
            raise ConfigError(
                f"{type(message).__name__} is no message of a conversation"
            )
    return [
        message_chunk_to_message(one) if isinstance(one, BaseMessageChunk) else one
        for one in read
    ]


def _require_saying(read: Sequence[BaseMessage], said: Mapping[str, Any]) -> None:
    """Refuse a message that says nothing only because what says it is not understood."""
    if any(map(_says_something, read)):
        return
    unread = {kind for message in read for kind in _kinds(message)} - {"text"}
    unread |= {
        name
        for name, value in said.items()
        if isinstance(value, str | list | Mapping) and value
    } - SILENT
    if unread or said.keys().isdisjoint({*TEXTS, "tool_calls"}):
        raise ConfigError(
            f"it says nothing that is understood: it has {', '.join(sorted(unread)) or 'no content'}"
        )


def _says_something(message: BaseMessage) -> bool:
    calls = isinstance(message, AIMessage) and (
        message.tool_calls or message.invalid_tool_calls
    )
    is_said = (
        message.text
        or calls
        or message.additional_kwargs.keys() & SAYING
        or _kinds(message) & BLOCKS
    )
    return bool(is_said) or isinstance(message, ToolMessage)


def _kinds(message: BaseMessage) -> set[str]:
    content = message.content if isinstance(message.content, list) else []
    return {str(block.get("type")) for block in content if isinstance(block, Mapping)}


def _of_parts(said: Mapping[str, Any]) -> Iterator[BaseMessage]:
    """The messages in the parts of a user interface (AI SDK): of an answer each step, followed by its results."""
    content, calls, results = list[Any](), list[Any](), list[Any]()
    for part in said["parts"]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise ConfigError("it has a part without `type`")
        # shown to people, and sent to no model
        if kind.startswith(("data-", "source")):
            continue
        about = part.get("toolInvocation", part)
        if "toolCallId" in about:
            name = about.get("toolName") or kind.removeprefix("tool-")
            calls.append(
                {
                    "id": about["toolCallId"],
                    "name": name,
                    "input": about.get("input", about.get("args")),
                }
            )
            results += _result_of(about)
            continue
        if calls:  # what follows them belongs to the next step
            yield from (
                *_of_role({**said, "content": content, "tool_calls": calls}),
                *results,
            )
            content, calls, results = [], [], []
        if kind in {"text", "reasoning"}:
            content.append({"type": kind, kind: part["text"]})
        elif kind == "file" and str(
            part.get("mediaType") or part.get("mimeType")
        ).startswith("image/"):
            content.append(
                {
                    "type": "image_url",
                    "image_url": {"url": part.get("url") or part["data"]},
                }
            )
        elif kind != "step-start":
            raise ConfigError(f"it has a part {kind!r}, which is not read")
    if content or calls:
        yield from (
            *_of_role({**said, "content": content, "tool_calls": calls}),
            *results,
        )


def _result_of(call: Mapping[str, Any]) -> Iterator[ToolMessage]:
    """The result that stands in the part of its call; none while it is waited for."""
    for name, status in (
        ("output", "success"),
        ("result", "success"),
        ("errorText", "error"),
    ):
        if call.get(name) is not None:
            made = (
                call[name]
                if isinstance(call[name], str)
                else json.dumps(call[name], ensure_ascii=False)
            )
            yield ToolMessage(made, tool_call_id=str(call["toolCallId"]), status=status)
            return


def _of_role(said: Mapping[str, Any]) -> Iterator[BaseMessage]:
    """The messages of an object with `role` or `type`, whose other fields stand beside it."""
    role = said.get("role") or said.get("type")
    if not isinstance(role, str):
        raise ConfigError("it has no `role`")
    # LangChain's types of streamed messages, `AIMessageChunk`
    if role.endswith("MessageChunk"):
        role = role.removesuffix("MessageChunk").lower()
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}")
    # ids are given anew, null is what a message does not say
    given = {"id", "role", "type", "parts"}
    fields = {
        key: value
        for key, value in said.items()
        if value is not None and key not in given
    }
    content = fields["content"] = _content(fields)
    if role == "tool" and "tool_call_id" not in fields:
        raise ConfigError("it is a tool result without `tool_call_id`")
    # Anthropic's calls and results are blocks of the content
    blocks = (
        [block for block in content if isinstance(block, Mapping)]
        if isinstance(content, list)
        else []
    )
    calls, invalid = (
        fields.pop("tool_calls", None),
        fields.pop("invalid_tool_calls", []),
    )
    if role in {"ai", "assistant"}:
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        yield _answer(fields, uses if calls is None else calls, invalid)
        return
    results = set[int]()
    for block in blocks if role in {"human", "user"} else ():
        if block.get("type") == "tool_result":
            status = "error" if block.get("is_error") else "success"
            yield ToolMessage(
                block.get("content") or "",
                tool_call_id=block["tool_use_id"],
                status=status,
            )
            results.add(id(block))
    if results:
        fields["content"] = [one for one in content if id(one) not in results]
    if fields["content"] or not content:
        yield from convert_to_messages([{**fields, "role": role}])


def _content(fields: dict[str, Any]) -> Any:
    """Take what a message says out of its fields."""
    name = next((name for name in TEXTS if fields.get(name)), "content")
    content = fields.pop(name, "")
    if not isinstance(content, str | list):
        raise ConfigError(
            f"its {name} is {type(content).__name__}, neither text nor a list"
        )
    if isinstance(content, str):
        return content
    is_text = [
        isinstance(one, Mapping) and one.get("type") in TEXT_BLOCKS for one in content
    ]
    return [
        {**one, "type": "text"} if is_it else one
        for one, is_it in zip(content, is_text, strict=True)
    ]


def _answer(fields: dict[str, Any], calls: Any, invalid: Any) -> BaseMessage:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise ConfigError(f"its tool_calls are {type(calls).__name__}, not a list")
    read = [_call(call) for call in calls]
    valid = [call for call in read if call["type"] == "tool_call"]
    invalid = [*(call for call in read if call["type"] != "tool_call"), *invalid]
    (message,) = convert_to_messages(
        [{**fields, "role": "assistant", "tool_calls": valid}]
    )
    return (
        AIMessage(**{**message.model_dump(), "invalid_tool_calls": invalid})
        if invalid
        else message
    )


def _call(call: Any) -> Any:
    """A call in OpenAI's, LangChain's or Anthropic's form, valid or not."""
    if not isinstance(call, Mapping):
        raise ConfigError(f"a tool call is {type(call).__name__}, not an object")
    inner = call.get("function")
    inner = inner if isinstance(inner, Mapping) else call
    given = next(
        (inner[key] for key in ("arguments", "args", "input") if key in inner), None
    )
    name, key = inner.get("name"), call.get("id")
    key = None if key is None else str(key)
    try:
        arguments = (loads(given) if given and isinstance(given, str) else given) or {}
        if isinstance(name, str) and isinstance(arguments, Mapping):
            return tool_call(name=name, args=dict(arguments), id=key)
        error = (
            "its arguments are no object" if isinstance(name, str) else "it has no name"
        )
    except (ValueError, RecursionError) as fault:
        error = f"its arguments are no JSON: {fault}"
    text = given if isinstance(given, str) else json.dumps(given)
    return invalid_tool_call(
        name=name if isinstance(name, str) else None, args=text, id=key, error=error
    )


def short(error: BaseException) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]
