"""Conversations to measure on: recorded ones from a data folder, or generated ones when there is none."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from common import rows_of

WORDS = (
    "order", "flight", "refund", "ticket", "booking", "invoice", "customer", "status", "update", "error", "retry",
    "cache", "index", "parser",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    name: str
    source: str
    tools: list[dict[str, Any]]
    messages: list[AnyMessage]


def load(
    data: Path | None, *, limit: int | None = None, names: Collection[str] | None = None
) -> Iterator[Transcript]:
    """Yield recorded conversations (OpenAI chat dicts, one gzipped JSON per line), or generated ones without `data`.

    Args:
        data: folder that has `transcripts`.
        limit: conversations per file.
        names: files without their suffix; None for all.
    """
    if data is None:
        yield from (generate(seed) for seed in range(limit or 12))
        return
    for path in sorted((data / "transcripts").glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        if names is None or name in names:
            for row in itertools.islice(rows_of(path), limit):
                yield transcript_of(row, name)


def generate(seed: int) -> Transcript:
    """Return a made-up support conversation: turns of a few tool calls with results of very different sizes."""
    rng = random.Random(seed)  # noqa: S311  # reproducible conversations, not secrets
    messages: list[AnyMessage] = [SystemMessage(prose(rng, 200))]
    for step in range(36):
        if step % 3 == 0:
            messages.append(HumanMessage(f"Question {step}: {prose(rng, 30)}"))
        calls = [
            {"name": f"tool_{step % 6}", "args": {"id": step}, "id": f"{step}-{i}"}
            for i in range(rng.choice((1, 1, 3)))
        ]
        messages.append(AIMessage(prose(rng, 12), tool_calls=calls))
        for call in calls:
            said = json.dumps({"rows": [prose(rng, rng.choice((20, 80, 400)))]})
            messages.append(ToolMessage(said, tool_call_id=call["id"]))
        if step % 3 == 2:
            messages.append(AIMessage(prose(rng, 60)))
    tools = [_tool(rng, number) for number in range(6)]
    return _named(
        Transcript(
            name=f"generated-{seed}", source="generated", tools=tools, messages=messages
        )
    )


def transcript_of(row: dict[str, Any], source: str) -> Transcript:
    messages = convert_to_messages([cleaned(message) for message in row["messages"]])
    return _named(
        Transcript(
            name=row["id"],
            source=source,
            tools=row.get("tools") or [],
            messages=list(messages),
        )
    )


def cleaned(message: dict[str, Any]) -> dict[str, Any]:
    return {
        key: "" if value is None and key == "content" else value
        for key, value in message.items()
    }


def _named(transcript: Transcript) -> Transcript:
    for index, message in enumerate(transcript.messages):
        message.id = f"{transcript.name}-{index}"
    return transcript


def prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def _tool(rng: random.Random, number: int) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"id": {"type": "integer", "description": prose(rng, 8)}},
    }
    function = {
        "name": f"tool_{number}",
        "description": prose(rng, 20),
        "parameters": parameters,
    }
    return {"type": "function", "function": function}
