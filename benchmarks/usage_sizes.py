"""Conversations with the sizes that providers reported for their requests, or generated ones with simulated sizes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

import exact
from langchain_ctxwin.core.turns import call_ids, split_steps
from transcripts import Transcript, generate
from transcripts import _read as read
from usage_requests import family_of

SOURCES = ("mini_swe_deepseek", "openhands_claude", "pi_sessions", "tau2")
"""Recordings with reported sizes. Those of tau2 that name no model are left out: their sizes are not comparable."""

WHOLE = frozenset({"openhands_claude", "generated"})
"""Sources whose requests are recorded whole. Elsewhere a constant part is missing, which has to be learned."""

GENERATED_CONVERSATIONS = 24
HIDDEN_TOKENS = (16, 96, 350)
"""What simulated providers add to every request: two OpenAI models and a long preamble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One conversation; its AI messages carry the reported sizes as `usage_metadata`, the way LangChain states them."""

    source: str
    model: str
    family: str
    tools: list[Any]
    messages: list[AnyMessage]
    points: list[int]
    """Positions of the answers whose request has a reported size."""

    def true_tokens(self, point: int) -> int:
        """Reported size of tools and `messages[:point]`."""
        answer = self.messages[point]
        assert isinstance(answer, AIMessage)
        assert answer.usage_metadata
        return answer.usage_metadata["input_tokens"]


def load(data: Path | None) -> Iterator[Sized]:
    if data is None:
        yield from map(simulated, range(GENERATED_CONVERSATIONS))
        return
    for source in SOURCES:
        with gzip.open(data / "transcripts" / f"{source}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                model = (row.get("meta") or {}).get("model")
                if model and row.get("usage"):
                    yield recorded(row, source, model)


def recorded(row: dict[str, Any], source: str, model: str) -> Sized:
    sizes: dict[int, tuple[int, int]] = {}
    for point in row["usage"]:
        if point["prompt_tokens"] and point["i"] > max(sizes, default=0):
            sizes[point["i"]] = (point["prompt_tokens"], point.get("completion_tokens") or 0)
    return sized(read(row, source), sizes, model=model, family=family_of(model))


def simulated(seed: int) -> Sized:
    """A generated conversation with a provider that counts exactly and adds a constant that nobody sees."""
    transcript = generate(seed)
    messages, hidden = transcript.messages, HIDDEN_TOKENS[seed % len(HIDDEN_TOKENS)]
    sizes = {
        i: (exact.request_tokens(messages[:i], transcript.tools) + hidden, exact.message_tokens(message))
        for i, message in enumerate(messages)
        if isinstance(message, AIMessage)
    }
    return sized(transcript, sizes, model="simulated", family="openai")


def sized(transcript: Transcript, sizes: dict[int, tuple[int, int]], *, model: str, family: str) -> Sized:
    sent = without_interrupted(transcript.messages)
    messages = [answered(m, sizes.get(i), model) for i, m in enumerate(sent)]
    points = [i for i in sizes if i < len(messages) and isinstance(messages[i], AIMessage)]
    return Sized(
        source=transcript.source, model=model, family=family, tools=transcript.tools, messages=messages, points=points
    )


def without_interrupted(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Empty the answers whose calls the user interrupted: the recorded applications did not send them again."""
    kept = list(messages)
    for step in split_steps(messages):
        asked = {call_id for message in step.messages for call_id in call_ids(message)}
        if asked.difference(m.tool_call_id for m in step.messages if isinstance(m, ToolMessage)):
            kept[step.index] = step.messages[0].model_copy(update={"content": "", "tool_calls": []})
    return kept


def answered(message: AnyMessage, size: tuple[int, int] | None, model: str) -> AnyMessage:
    """The message as a chat model returns it; a provider named on every answer is what LangChain's scaling asks for."""
    if not isinstance(message, AIMessage):
        return message
    stated: dict[str, Any] = {"response_metadata": {"model_provider": "recorded", "model_name": model}}
    if size:
        stated["usage_metadata"] = {"input_tokens": size[0], "output_tokens": size[1], "total_tokens": sum(size)}
    return message.model_copy(update=stated)
