"""The exact size of a request under a real tokenizer."""

import json
from functools import cache

import quicktok
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

ENCODING = "o200k_base"
# role and separators around each message in the OpenAI chat format
MESSAGE_FRAME_TOKENS = 4
REPLY_PRIMER_TOKENS = 3  # the opening of the answer, once per request
TOOL_FRAME_TOKENS = 8  # what wraps one function definition beside its JSON
# what Gemini bills for a small image; never the length of its base64 text
MEDIA_TOKENS = 258
MEDIA_KEYS = frozenset(
    {
        "image_url",
        "source",
        "data",
        "base64",
        "inline_data",
        "input_audio",
        "file",
        "url",
    }
)


def exact_count(messages, tools=None):
    """Return the input tokens of a chat request: text, tool calls, results, framing, and tools as compact JSON."""
    framed = sum(MESSAGE_FRAME_TOKENS + message_tokens(message) for message in messages)
    return framed + REPLY_PRIMER_TOKENS + tool_tokens(tools or ())


def text_tokens(text):
    """Return the tokens of `text`; a lone surrogate counts as the replacement character."""
    return _encoding().count(text.encode("utf-8", "replace").decode("utf-8"))


def json_tokens(value):
    """Return the tokens of a JSON value in its compact form."""
    return text_tokens(compact_json(value))


def compact_json(value):
    """Write JSON without spaces, Unicode as it is, keys in the given order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def tool_tokens(tools):
    """Return the tokens of tool definitions (LangChain tools, functions, or OpenAI dicts)."""
    return sum(TOOL_FRAME_TOKENS + json_tokens(_definition(tool)) for tool in tools)


def message_tokens(message):
    """Return the tokens of one message without its frame."""
    tokens = sum(_block_tokens(block) for block in _blocks(message.content))
    if isinstance(message, AIMessage):
        tokens += sum(
            text_tokens(call["name"]) + json_tokens(call["args"])
            for call in message.tool_calls
        )
    if isinstance(message, ToolMessage):
        tokens += text_tokens(message.tool_call_id)
    return tokens


def _definition(tool):
    converted = convert_to_openai_tool(tool)
    return converted.get("function", converted)


def _blocks(content):
    return content if isinstance(content, list) else [content]


def _block_tokens(block):
    if isinstance(block, str):
        return text_tokens(block)
    if not isinstance(block, dict) or block.get("type") in {
        "tool_use",
        "tool_call",
        "function_call",
    }:
        return 0  # counted once, from `tool_calls`
    if isinstance(block.get("text"), str):
        return text_tokens(block["text"])
    if MEDIA_KEYS & block.keys():
        return MEDIA_TOKENS
    return json_tokens(block)


@cache
def _encoding():
    return quicktok.get_encoding(ENCODING)
