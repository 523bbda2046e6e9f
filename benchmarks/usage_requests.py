"""Recorded provider requests as LangChain messages and tools, beside the size that the provider reported.

Only requests that a LangChain chat model would send are kept: what a provider adds on its side (searches, stored
prompts, files, output schemas) is part of the reported size, and no counter can see it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

UNSEEN = {
    "refers to what the provider stores": (
        "previous_response_id",
        "conversation",
        "container",
        "cachedContent",
    ),
    "edited by the provider": ("context_management", "transforms", "models"),
    "provider-side tools": ("mcp_servers", "web_search_options", "search_settings"),
    "moderated by the provider": ("moderation", "modelArmorConfig", "guardrailConfig"),
    "no chat request": ("requests", "encoding_format"),
}
"""Keys of a request whose effect on its size is not in the request."""

MAKERS = {
    "claude": "anthropic", "gpt": "openai", "o3": "openai", "o4": "openai", "gemini": "gemini", "llama": "llama",
    "deepseek": "deepseek", "qwen": "qwen",
}  # fmt: skip
"""Words in the name of a model, with its tokenizer family; models of other makers are counted as generic."""

FIRST_CLAUDES = ("claude-3", "-4-0", "-4-2", "-4-5", "-4.5", "-4-6", "-4.6")
"""Generations of Claude that have the older vocabulary."""

LONG_SIGNATURE = re.compile(r'"thought_?[sS]ignature": "[^"]{100}')
"""Thoughts that some models count again, a token in five characters; no counter reads them."""

TEXTS = frozenset({"text", "input_text", "output_text"})


class LeftOutError(Exception):
    """A request that cannot be stated as messages and tools, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    family: str
    provider: str
    model: str
    source: str
    messages: list[AnyMessage]
    tools: list[dict[str, Any]]
    tokens: int
    """Input tokens as the provider reported them, cached ones included."""


def load(data: Path) -> tuple[list[Recorded], Counter[str]]:
    """The requests that can be stated faithfully, and how many were left out for which reason."""
    kept, left_out = [], Counter[str]()
    with gzip.open(
        data / "usage_truth" / "cassettes.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        for line in lines:
            try:
                kept.append(recorded(json.loads(line)))
            except LeftOutError as reason:
                left_out[str(reason)] += 1
    return kept, left_out


def recorded(row: dict[str, Any]) -> Recorded:
    request = row["request"]
    for reason, keys in UNSEEN.items():
        _require(not any(request.get(key) for key in keys), reason)
    _require(not row["path"].endswith(("/compact", "/embeddings")), "no chat request")
    _require(not _has_output_schema(request), "output schema")
    _require(
        not _hides_tools(request, row["model"]), "choice of tools changes the prompt"
    )
    sent = json.dumps(request)
    hides_thoughts = "gemini-3" in row["model"] and LONG_SIGNATURE.search(sent)
    _require(not hides_thoughts, "encrypted thoughts")
    _require('"<think>' not in sent, "reasoning that the provider removes")
    messages = list(_reader_of(row["path"], request)(request))
    _require(any(message.type == "human" for message in messages), "no user message")
    return Recorded(
        family=family_of(row["model"]), provider=row["provider"], model=row["model"], source=row["source"],
        messages=messages, tools=[_tool(tool) for tool in _stated_tools(request)], tokens=row["usage"]["input_tokens"],
    )  # fmt: skip


def family_of(model: str) -> str:
    name = model.lower()
    found = next((family for word, family in MAKERS.items() if word in name), "generic")
    return (
        "claude3"
        if found == "anthropic" and any(part in name for part in FIRST_CLAUDES)
        else found
    )


def _require(fact: bool, reason: str) -> None:
    if not fact:
        raise LeftOutError(reason)


def _has_output_schema(request: dict[str, Any]) -> bool:
    """Providers add the schema of a structured output to the prompt; the tools of a request do not state it."""
    forms = [request.get("response_format")]
    forms += [
        (request.get(key) or {}).get("format") for key in ("text", "output_config")
    ]
    asked = any(isinstance(form, dict) and form.get("type") != "text" for form in forms)
    generation = request.get("generationConfig") or {}
    return (
        asked
        or bool(request.get("outputConfig"))
        or any("schema" in key.lower() for key in generation)
    )


def _hides_tools(request: dict[str, Any], model: str) -> bool:
    """Say whether a choice of tools changes the prompt: `none` hides them, and Claude is told when it must call one."""
    config = request.get("toolConfig") or {}
    choice = request.get("tool_choice") or config.get("toolChoice") or {}
    mode = (config.get("functionCallingConfig") or {}).get("mode")
    kind = (
        choice
        if isinstance(choice, str)
        else choice.get("type") or next(iter(choice), "auto")
    )
    return "none" in {kind, (mode or "").lower()} or (
        kind != "auto" and "claude" in model
    )


def _reader_of(
    path: str, request: dict[str, Any]
) -> Callable[[dict[str, Any]], Iterator[AnyMessage]]:
    if "contents" in request:
        return _gemini
    if "input" in request:
        return _responses
    _require("converse" not in path, "Bedrock's own form")
    return _anthropic if path.endswith(("/messages", "/invoke")) else _chat


def _chat(request: dict[str, Any]) -> Iterator[AnyMessage]:
    for message in request["messages"]:
        text = _text(message.get("content"))
        if message["role"] == "tool":
            yield ToolMessage(text, tool_call_id=message["tool_call_id"])
        elif message["role"] == "assistant":
            calls = [
                _call(call["id"], call["function"])
                for call in message.get("tool_calls") or ()
            ]
            yield AIMessage(text, tool_calls=calls)
        else:
            yield _said(message["role"], text, message.get("name"))


def _responses(request: dict[str, Any]) -> Iterator[AnyMessage]:
    if request.get("instructions"):
        yield SystemMessage(request["instructions"])
    items = request["input"]
    if isinstance(items, str):
        yield HumanMessage(items)
        return
    calls: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            _require("namespace" not in item, "provider-side tools")
            calls.append(_call(item["call_id"], item))
            continue
        if calls:
            yield AIMessage("", tool_calls=calls)
            calls = []
        _require(kind in {"message", "function_call_output"}, f"item {kind}")
        if kind == "message":
            yield _said(item["role"], _text(item["content"]))
        else:
            yield ToolMessage(_text(item["output"]), tool_call_id=item["call_id"])


def _anthropic(request: dict[str, Any]) -> Iterator[AnyMessage]:
    _require(not request.get("thinking"), "thinking is on")
    if request.get("system"):
        yield SystemMessage(_text(request["system"]))
    for message in request["messages"]:
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        results = [block for block in blocks if block["type"] == "tool_result"]
        calls = [
            _call(block["id"], block) for block in blocks if block["type"] == "tool_use"
        ]
        text = _text(
            [
                block
                for block in blocks
                if block["type"] not in {"tool_result", "tool_use"}
            ]
        )
        for result in results:
            yield ToolMessage(
                _text(result.get("content")), tool_call_id=result["tool_use_id"]
            )
        if message["role"] == "assistant":
            yield AIMessage(text, tool_calls=calls)
        elif text or not results:
            yield _said(message["role"], text)


def _gemini(request: dict[str, Any]) -> Iterator[AnyMessage]:
    if request.get("systemInstruction"):
        yield SystemMessage(
            "".join(part["text"] for part in request["systemInstruction"]["parts"])
        )
    for number, content in enumerate(request["contents"]):
        parts = content["parts"]
        calls, said = [], []
        for part in parts:
            if call := part.get("functionCall") or part.get("function_call"):
                calls.append(_call(f"{number}-{len(calls)}", call))
            elif result := part.get("functionResponse") or part.get(
                "function_response"
            ):
                _require(not result.get("parts"), "media in a result")
                yield ToolMessage(
                    json.dumps(result["response"]),
                    tool_call_id="?",
                    name=result["name"],
                )
            else:
                _require(
                    set(part) <= {"text", "thoughtSignature", "thought"},
                    f"part {next(iter(part))}",
                )
                said.append(part.get("text", ""))
        if content.get("role") == "model":
            yield AIMessage("".join(said), tool_calls=calls)
        elif said:
            yield HumanMessage("".join(said))


def _said(role: str, text: str, name: str | None = None) -> AnyMessage:
    if role in {"system", "developer"}:
        return SystemMessage(text, name=name)
    return (
        AIMessage(text, name=name)
        if role == "assistant"
        else HumanMessage(text, name=name)
    )


def _text(content: Any) -> str:
    """The text of a string or of blocks; anything else has a size that the request does not state."""
    if content is None or isinstance(content, str):
        return content or ""
    for block in content:
        _require(block.get("type") in TEXTS, f"block {block.get('type')}")
    return "".join(block["text"] for block in content)


def _call(name: str, function: dict[str, Any]) -> dict[str, Any]:
    arguments = next(
        (
            found
            for key in ("arguments", "input", "args")
            if (found := function.get(key)) is not None
        ),
        {},
    )
    if isinstance(arguments, str):
        arguments = json.loads(arguments or "{}")
    return {
        "name": function["name"],
        "args": arguments,
        "id": name,
        "type": "tool_call",
    }


def _stated_tools(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for tool in request.get("tools") or ():
        if declared := tool.get("functionDeclarations") or tool.get(
            "function_declarations"
        ):
            yield from declared
        else:
            yield tool


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Any provider's definition in OpenAI's form, with its schema as it was sent."""
    _require(not tool.get("defer_loading"), "provider-side tools")
    function = tool.get("function") or tool
    keys = (
        "parameters",
        "input_schema",
        "inputSchema",
        "parametersJsonSchema",
        "parameters_json_schema",
    )
    schema = next((function[key] for key in keys if key in function), None)
    _require(
        "name" in function and (schema is not None or "description" in function),
        "provider-side tools",
    )
    named = {
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": schema or {},
    }
    return {"type": "function", "function": named}
