"""What providers would refuse of the payloads that their integrations make."""

import re

from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

MODELS = {
    "anthropic": ChatAnthropic(model="claude-sonnet-4-5", api_key="x", max_tokens=500),
    "chat": ChatOpenAI(model="gpt-4o", api_key="x"),
    "responses": ChatOpenAI(
        model="gpt-5",
        api_key="x",
        use_responses_api=True,
        output_version="responses/v1",
    ),
    "gemini": ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key="x"),
}


def text(said):
    return {"type": "text", "text": said}


def refused_by_anthropic(model, messages):
    waiting = []
    for message in model._get_request_payload(messages)["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else [text(content)]
        inner = [
            part
            for block in blocks
            if isinstance(block.get("content"), list)
            for part in block["content"]
        ]
        said = [block["text"] for block in (*blocks, *inner) if block["type"] == "text"]
        if "" in said or not blocks:
            yield "empty"
        if len(said) == len(blocks) and not any(one.strip() for one in said):
            yield "blank"
        done = [block["tool_use_id"] for block in blocks if "tool_use_id" in block]
        if sorted(waiting) != sorted(done):
            yield f"calls {waiting}, results {done}"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if not all(re.fullmatch(r"[\w-]+", key) for key in waiting):
            yield f"ids {waiting}"
        kinds = {block["type"] for block in (*blocks, *inner)}
        if more := kinds - {"text", "image", "tool_use", "tool_result"}:
            yield f"blocks {more}"
        if "@@@" in str(content):
            yield "no base64"


def refused_by_chat(model, messages):
    waiting = []
    for message in model._get_request_payload(messages)["messages"]:
        content = message.get("content")
        if message["role"] == "function":
            yield "a function of old"
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            parts = content if isinstance(content, list) else [text(content)]
            if {part["type"] for part in parts} != {"text"}:
                yield "content of a result"
            continue
        if waiting:
            yield f"calls {waiting}"
        waiting = [one["id"] for one in message.get("tool_calls") or ()]
        if not (content or waiting or message.get("audio")):
            yield "empty"
        parts = content if isinstance(content, list) else []
        if more := {part["type"] for part in parts} - {"text", "image_url", *CUSTOM}:
            yield f"parts {more}"
        if "@@@" in str(content):
            yield "no base64"


# Chat Completions has no such calls: who calls a model that makes them uses the Responses API.
CUSTOM = ["custom_tool_call"]


def refused_by_responses(model, messages):
    items = model._get_request_payload(messages)["input"]
    kinds = [item.get("type") or item.get("role") for item in items]
    calls = [one["call_id"] for one in items if str(one.get("type")).endswith("_call")]
    done = [one["call_id"] for one in items if str(one.get("type")).endswith("_output")]
    if sorted({*calls}) != sorted(done) or not all(calls):
        yield f"calls {calls}, results {done}"
    follows = zip(kinds, [*kinds[1:], ""], strict=True)
    if any(one == "reasoning" and two in {"user", ""} for one, two in follows):
        yield "loose reasoning"
    if "@@@" in str(items):
        yield "no base64"


def refused_by_gemini(model, messages):
    asked = 0
    for content in model._prepare_request(messages)["contents"]:
        if not content.parts or any(part.text == "" for part in content.parts):
            yield "empty"
        done = sum(part.function_response is not None for part in content.parts)
        if asked != done:
            yield f"{asked} calls, {done} results"
        asked = sum(part.function_call is not None for part in content.parts)


REFUSED = {
    "anthropic": refused_by_anthropic,
    "chat": refused_by_chat,
    "responses": refused_by_responses,
    "gemini": refused_by_gemini,
}
