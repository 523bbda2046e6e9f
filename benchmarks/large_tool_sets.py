"""Is a request with forty tools refused although it fits, or sent although it is too large? A table for calibration.py.

No recording has that many tools, so the true sizes are simulated: every model of a family explains tools at another
length, and texts are counted by an exact tokenizer instead of by the estimator.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import quicktok
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

import exact
from langchain_ctxwin import BudgetExceededError, ContextEngine, ModelLimits, TokenEstimator, Window
from langchain_ctxwin.core.tool_schemas import FRAMING
from transcripts import generate

TOOLS, DRAWS = 40, 24
FITTING = (0.60, 0.70, 0.80, 0.90, 0.95, 0.99)
TOO_LARGE = (1.01, 1.05, 1.10, 1.20, 1.30, 1.40)
RESERVE = 1_000
GENERATED_SETS = 7  # of six tools each
PROMPT = (
    "You are the assistant of a travel agency. Look up what you need before you answer, never guess a price or a date, "
    "ask when a request is ambiguous, and repeat every change to a booking in one line before you make it. "
) * 6
QUESTION = "Which of my bookings can still be changed, and what would it cost to move each of them by a day?"

ENCODINGS = {"cl100k": "cl100k_base", "llama": "llama3", "qwen": "qwen3"}
"""Families whose vocabulary is at hand; the others are counted in that of `exact`, and scaled."""

SCALES = {"anthropic": 1.52, "claude3": 1.23, "gemini": 1.17, "deepseek": 1.03}
"""Tokens in a family's vocabulary over those in `exact`'s, of exactly counted JSON that has few digits, as tools do."""

TEXT_ALONE = ("openai", "cl100k")
"""Families whose recorded requests have no constant per definition beside the text of its signature."""

ANY_TOOLS = {
    "openai": (16, 96), "cl100k": (16, 96), "anthropic": (290, 354, 675), "claude3": (313, 346, 497), "gemini": (0, 18),
    "llama": (49, 200, 620), "qwen": (0, 208), "deepseek": (100, 143), "generic": (0, 150, 1_400),
}  # fmt: skip
"""What models of a family say about tools once there are any: published, or seen in recorded requests."""


def report(data: Path | None) -> None:
    tools = f"{DRAWS} draws of {TOOLS} {'real' if data else 'made-up'} tools"
    print(f"\nLarge tool sets: {tools}, a system prompt and a short question as the first request, simulated sizes")
    print(f"{'':12}{'requests':>9}{'refused although it fits (goal 0)':>36}{'shortened':>11}{'error %':>9}", end="")
    print("".join(f"{f'sent at {share:.0%}':>14}" for share in TOO_LARGE))
    draws = list(tool_sets(data))
    for family in ANY_TOOLS:
        found, errors = outcomes(draws, family)
        requests = sum(found[share, verdict] for share in FITTING for verdict in ("sent", "shortened", "refused"))
        refused, shortened = (sum(found[share, v] for share in FITTING) for v in ("refused", "shortened"))
        over = (f"{found[s, 'sent'] + found[s, 'shortened']} of {found[s, 'all']}" for s in TOO_LARGE)
        print(f"{family:12}{requests:>9}{refused:>36}{shortened:>11}{mean(errors):>+9.1f}", end="")
        print("".join(f"{text:>14}" for text in over))


def outcomes(draws: list[list[dict[str, Any]]], family: str) -> tuple[Counter[tuple[float, str]], list[float]]:
    """How many requests of which share of their limit were sent, shortened or refused, and the errors in %."""
    found, errors = Counter[tuple[float, str]](), list[float]()
    engine = ContextEngine(ModelLimits(RESERVE + 1), counter=TokenEstimator(family))
    messages: list[AnyMessage] = [SystemMessage(PROMPT), HumanMessage(QUESTION, id="question")]
    for tools in draws:
        for true in true_sizes(messages, tools, family):
            for share in (*FITTING, *TOO_LARGE):
                window = round(true / share) + RESERVE
                limits = ModelLimits(window, requested_output_tokens=RESERVE)
                measured = engine.measure(messages, tools=tools, model=limits)
                found[share, verdict(engine, measured)] += 1
                found[share, "all"] += 1
            errors.append((measured.total_tokens / true - 1) * 100)
    return found, errors


def verdict(engine: ContextEngine, measured: Window) -> str:
    try:
        return "shortened" if engine.emergency(measured) else "sent"
    except BudgetExceededError:
        return "refused"


def tool_sets(data: Path | None) -> Iterator[list[dict[str, Any]]]:
    """Draws of tools, each from one collection."""
    rng = random.Random(40)  # noqa: S311  # reproducible draws, not secrets
    found = list(collections(data))
    for number in range(DRAWS):
        yield rng.sample(found[number % len(found)], TOOLS)


def collections(data: Path | None) -> Iterator[list[dict[str, Any]]]:
    if data is None:
        sets = (generate(seed).tools for seed in range(GENERATED_SETS))
        yield [named(tool, f"set_{i}_tool_{j}") for i, tools in enumerate(sets) for j, tool in enumerate(tools)]
        return
    for path in sorted((data / "tool_selection").glob("*.tools.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield [named(tool, key) for key, tool in sorted(json.load(file)["tools"].items())]


def named(tool: dict[str, Any], name: str) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "name": name}}


def true_sizes(messages: Sequence[AnyMessage], tools: Sequence[dict[str, Any]], family: str) -> list[int]:
    """Simulated sizes of a request, one for each way in which models of the family explain tools.

    Families that show signatures get signatures: recorded requests with many tools are near them, and well below JSON.
    The others get JSON.
    """
    framing = FRAMING[family]
    texts = [exact.payload(message) for message in messages]
    constants = framing.request + framing.message * len(messages)
    if framing.fields:
        texts += [signature(tool["function"]) for tool in tools]
    else:
        texts += [json.dumps(tool["function"]) for tool in tools]
    if family not in TEXT_ALONE:
        constants += framing.tool * len(tools)
    return [round(counted(texts, family) + constants + told) for told in ANY_TOOLS[family]]


def signature(function: dict[str, Any]) -> str:
    """A definition as models are shown it: a typed signature with comments, nested objects included."""
    schema = function.get("parameters") or {}
    argument = f"_: {shape(schema)}" if schema.get("properties") else ""
    return f"// {function.get('description', '')}\ntype {function['name']} = ({argument}) => any;\n\n"


def shape(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if fields := schema.get("properties"):
        return "{\n" + "".join(field(name, part, schema.get("required") or ()) for name, part in fields.items()) + "}"
    if schema.get("enum"):
        return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in schema["enum"])
    return f"{shape(schema.get('items'))}[]" if schema.get("type") == "array" else str(schema.get("type", "any"))


def field(name: str, part: Any, required: Sequence[str]) -> str:
    description = part.get("description") if isinstance(part, dict) else None
    comment = f"// {description}\n" if description else ""
    return f"{comment}{name}{'' if name in required else '?'}: {shape(part)},\n"


def counted(texts: list[str], family: str) -> float:
    if family in ENCODINGS:
        encoding = quicktok.get_encoding(ENCODINGS[family])
        return float(sum(encoding.count(text) for text in texts))
    return SCALES.get(family, 1.0) * sum(map(exact.text_tokens, texts))
