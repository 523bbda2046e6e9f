"""Recorded messages in the forms of OpenAI, Anthropic and LangChain, each of them judged by itself."""

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
from langchain_core.messages.tool import invalid_tool_call, tool_call
from pydantic import ValidationError

from langchain_ctxwin.errors import ConfigError

HALF = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON escapes half of a character outside the first plane
ROLES = {"human", "user", "ai", "assistant", "system", "developer", "tool", "function"}


def loads(text: str) -> Any:
    """Return what a JSON text holds; halves of characters, which no other text can have, become U+FFFD."""
    value = json.loads(text, strict=False)
    return _whole(value) if HALF.search(text) else value


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
    return isinstance(said, list | tuple) and len(said) == 2 and isinstance(said[0], str) and said[0] in ROLES  # noqa: PLR2004  # a pair


def read_message(said: Any) -> list[BaseMessage]:
    """Return one recorded message; of Anthropic's user messages each tool result is a message of its own.

    Tool calls whose arguments are no JSON object become `invalid_tool_calls`, as LangChain's own parsers make them.
    What is no message raises whatever its reader raises.
    """
    if isinstance(said, BaseMessage):
        read = [said]
    elif isinstance(said, str) or is_pair(said):
        read = convert_to_messages([said])
    elif not isinstance(said, Mapping):
        raise ConfigError(f"a message is {type(said).__name__}, not an object")
    elif "lc" in said:
        read = [load_object(dict(said), allowed_objects="messages")]
    elif isinstance(said.get("data"), Mapping):
        read = messages_from_dict([dict(said)])
    else:
        read = [*_of_role(said)]
    for message in read:
        if not isinstance(message, BaseMessage) or isinstance(message, RemoveMessage):
            raise ConfigError(f"{type(message).__name__} is no message of a conversation")
    return [message_chunk_to_message(one) if isinstance(one, BaseMessageChunk) else one for one in read]


def _of_role(said: Mapping[str, Any]) -> Iterator[BaseMessage]:
    """The messages of an object with `role` or `type`, whose other fields stand beside it."""
    role = said.get("role") or said.get("type")
    if not isinstance(role, str):
        raise ConfigError("it has no `role`")
    if role.endswith("MessageChunk"):  # LangChain's types of streamed messages, `AIMessageChunk`
        role = role.removesuffix("MessageChunk").lower()
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}")
    # ids are given anew, null is what a message does not say
    fields = {key: value for key, value in said.items() if value is not None and key not in {"id", "role", "type"}}
    content = fields.setdefault("content", "")
    if not isinstance(content, str | list):
        raise ConfigError(f"its content is {type(content).__name__}, neither text nor a list")
    if role == "tool" and "tool_call_id" not in fields:
        raise ConfigError("it is a tool result without `tool_call_id`")
    # Anthropic's calls and results are blocks of the content
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    calls, invalid = fields.pop("tool_calls", None), fields.pop("invalid_tool_calls", [])
    if role in {"ai", "assistant"}:
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        yield _answer(fields, uses if calls is None else calls, invalid)
        return
    for block in blocks if role in {"human", "user"} else ():
        if block.get("type") == "tool_result":
            status = "error" if block.get("is_error") else "success"
            yield ToolMessage(block.get("content") or "", tool_call_id=block["tool_use_id"], status=status)
            fields["content"] = [one for one in fields["content"] if one is not block]
    if fields["content"] or not content:
        yield from convert_to_messages([{**fields, "role": role}])


def _answer(fields: dict[str, Any], calls: Any, invalid: Any) -> BaseMessage:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise ConfigError(f"its tool_calls are {type(calls).__name__}, not a list")
    read = [_call(call) for call in calls]
    valid = [call for call in read if call["type"] == "tool_call"]
    invalid = [*(call for call in read if call["type"] != "tool_call"), *invalid]
    (message,) = convert_to_messages([{**fields, "role": "assistant", "tool_calls": valid}])
    return AIMessage(**{**message.model_dump(), "invalid_tool_calls": invalid}) if invalid else message


def _call(call: Any) -> Any:
    """A call in OpenAI's, LangChain's or Anthropic's form, valid or not."""
    if not isinstance(call, Mapping):
        raise ConfigError(f"a tool call is {type(call).__name__}, not an object")
    inner = call.get("function")
    inner = inner if isinstance(inner, Mapping) else call
    given = next((inner[key] for key in ("arguments", "args", "input") if key in inner), None)
    name, key = inner.get("name"), call.get("id")
    key = None if key is None else str(key)
    try:
        arguments = (loads(given) if given and isinstance(given, str) else given) or {}
        if isinstance(name, str) and isinstance(arguments, Mapping):
            return tool_call(name=name, args=dict(arguments), id=key)
        error = "its arguments are no object" if isinstance(name, str) else "it has no name"
    except (ValueError, RecursionError) as fault:
        error = f"its arguments are no JSON: {fault}"
    text = given if isinstance(given, str) else json.dumps(given)
    return invalid_tool_call(name=name if isinstance(name, str) else None, args=text, id=key, error=error)


def short(error: BaseException) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]
