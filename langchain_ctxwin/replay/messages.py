"""Recorded messages in the forms of OpenAI, Anthropic and LangChain, each judged by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.exceptions import OutputParserException
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
from langchain_core.messages.tool import tool_call
from langchain_core.output_parsers.openai_tools import (
    make_invalid_tool_call,
    parse_tool_call,
)
from pydantic import ValidationError

from langchain_ctxwin.errors import ConfigError

ROLES = {"human", "user", "ai", "assistant", "system", "developer", "tool", "function"}
# what the blocks of OpenAI's Responses API call a text
TEXT_BLOCKS = {"input_text", "output_text"}


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
        read = [*_of_role(said)]
    for message in read:
        if not isinstance(message, BaseMessage) or isinstance(message, RemoveMessage):
            raise ConfigError(
                f"{type(message).__name__} is no message of a conversation"
            )
    return [
        message_chunk_to_message(one) if isinstance(one, BaseMessageChunk) else one
        for one in read
    ]


def _of_role(said: Mapping[str, Any]) -> Iterator[BaseMessage]:
    """The messages of an object with `role` or `type`, whose other fields stand beside it."""
    role = str(said.get("role") or said.get("type"))
    # LangChain's types of streamed messages, `AIMessageChunk`
    if role.endswith("MessageChunk"):
        role = role.removesuffix("MessageChunk").lower()
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}")
    # ids are given anew, null is what a message does not say
    fields = {
        key: value
        for key, value in said.items()
        if value is not None and key not in {"id", "role", "type"}
    }
    content = fields["content"] = _content(
        fields, is_answer=role in {"ai", "assistant"}
    )
    blocks = [block for block in content if isinstance(block, Mapping)]
    if role in {"ai", "assistant"}:
        yield _answer(
            fields, [block for block in blocks if block.get("type") == "tool_use"]
        )
        return
    # Anthropic's results are blocks of what the user says
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        yield ToolMessage(
            block.get("content") or "",
            tool_call_id=block["tool_use_id"],
            status="error" if block.get("is_error") else "success",
        )
    if results:
        fields["content"] = [block for block in content if block not in results]
    if fields["content"] or not results:
        yield from convert_to_messages([{**fields, "role": role}])


def _content(fields: dict[str, Any], *, is_answer: bool) -> Any:
    """The content of a message; a `ConfigError` where it may stand in a field that is not read."""
    content = fields.pop("content", None) or fields.pop("text", None) or ""
    if not isinstance(content, str | list):
        raise ConfigError(
            f"its content is {type(content).__name__}, neither text nor a list"
        )
    if fields.get("parts") or (
        not content and not is_answer and "tool_call_id" not in fields
    ):
        raise ConfigError(
            f"it says nothing that is understood: it has {', '.join(sorted(fields)) or 'no content'}"
        )
    if isinstance(content, str):
        return content
    return [
        {**block, "type": "text"}
        if isinstance(block, Mapping) and block.get("type") in TEXT_BLOCKS
        else block
        for block in content
    ]


def _answer(fields: dict[str, Any], uses: list[Any]) -> AIMessage:
    """An answer with its calls in OpenAI's, LangChain's or Anthropic's form, valid or not."""
    calls, invalid = [], list(fields.pop("invalid_tool_calls", ()))
    for raw in fields.pop("tool_calls", None) or uses:
        try:
            calls.append(_call(raw))
        except (OutputParserException, ValidationError) as error:
            invalid.append(make_invalid_tool_call(raw, str(error)))
    return AIMessage(
        **{
            **convert_to_messages([{**fields, "role": "assistant"}])[0].model_dump(),
            "tool_calls": calls,
            "invalid_tool_calls": invalid,
        }
    )


def _call(raw: Any) -> Any:
    if "function" in raw:
        call = parse_tool_call(raw, return_id=True)
        if call is None or not isinstance(call["args"], dict):
            raise OutputParserException("its arguments are no JSON object")
        return call
    arguments = raw.get("args", raw.get("input"))
    return tool_call(name=raw["name"], args=arguments or {}, id=raw.get("id"))


def short(error: BaseException) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]
