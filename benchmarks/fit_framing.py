"""How far off is the first request of a conversation, and which framing constants would bring it closest?

Compares estimates with the sizes that providers reported for recorded requests. Needs numpy and scipy, which only
scripts use. Constants are written into the code by hand: they are few, and each stands for something.
"""

from __future__ import annotations

import argparse
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.messages import AIMessage, AnyMessage, convert_to_messages

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.core.blocks import Media
from langchain_ctxwin.core.tokens import Call, pieces
from langchain_ctxwin.core.tool_schemas import FRAMING, FieldPrices, Framing, schema_tokens
from transcripts import cleaned
from usage_requests import Recorded, family_of, load

OWN_CLASS = {"openai", "azure", "anthropic", "gemini", "vertex", "deepseek"}
"""Hosts whose LangChain class implies a tokenizer family; models of all others are counted as generic."""

FAMILIES = ("openai", "claude3", "anthropic", "gemini", "llama", "qwen", "deepseek")
ENOUGH_ROWS = 10
PLAIN = ("request", "message", "call", "any_tools", "tool")
FIELDS = tuple(field.name for field in fields(FieldPrices))
PRIOR = 0.02  # tokens of error that one token away from today's constant must save, per row: keeps what data ignore
ONE_SIDED_95 = 1.645  # normal deviations
COVERAGE = 0.95
TOOL_SHARES = (0.05, 0.1, 0.15)
TEXT_SHARES = (0.05, 0.08, 0.1, 0.15)
TRANSCRIPTS = {
    "openhands_claude": "claude3", "pi_sessions": "claude3", "mini_swe_deepseek": "deepseek", "tau2": None,
}  # fmt: skip
COMPACTED = 6_000  # increments above this are new tasks or edits of the history

Row = tuple[Recorded, str]
"""A recorded request and the family that counts it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with usage_truth/ and transcripts/")
    parser.add_argument("--fit", action="store_true", help="fit the constants anew too")
    options = parser.parse_args()
    recorded, left_out = load(options.data)
    print(f"{len(recorded)} requests with reported sizes; {sum(left_out.values())} left out: {dict(left_out)}")
    groups = grouped(recorded)
    errors_of(groups)
    spread_of(groups)
    if options.fit:
        for name, rows in groups.items():
            if len(rows) >= ENOUGH_ROWS:
                fitted(name, rows)
    calls(options.data)


def grouped(recorded: list[Recorded]) -> dict[str, list[Row]]:
    rows = [(row, row.family) for row in recorded]
    found = {name: [row for row in rows if row[1] == name] for name in FAMILIES}
    return found | {"generic": [(row, "generic") for row in recorded if row.provider not in OWN_CLASS]}


def weights_of(rows: list[Row]) -> np.ndarray:
    """Each recording counts once, however many requests it has."""
    seen = Counter(row.source for row, _ in rows)
    return np.array([1 / seen[row.source] for row, _ in rows])


def estimates(rows: list[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reported size, estimate of the messages, and estimate of the tools."""
    true = np.array([row.tokens for row, _ in rows], float)
    text = np.array([TokenEstimator(family)(row.messages) for row, family in rows], float)
    whole = np.array([TokenEstimator(family)(row.messages, tools=row.tools) for row, family in rows], float)
    return true, text, whole - text


def errors_of(groups: dict[str, list[Row]]) -> None:
    print(f"\nWhole requests\n{'':14}{'rows':>5}{'bias':>8}{'mean |e|':>10}{'p95 |e|':>9}{'mean %':>8}{'p95 %':>8}")
    for (name, rows), has_tools in product(groups.items(), (False, True)):
        kept = [row for row in rows if bool(row[0].tools) is has_tools]
        true, text, tools = estimates(kept)
        error, weights = text + tools - true, weights_of(kept)
        size, share = np.abs(error), np.abs(error) / true * 100
        figures = {8: average(error, weights), 10: average(size, weights), 9: np.quantile(size, 0.95)}
        shares = f"{average(share, weights):>8.0f}{np.quantile(share, 0.95):>8.0f}"
        label = f"{name[:8]} {'tools' if has_tools else 'text'}"
        print(f"{label:14}{len(kept):>5}" + "".join(f"{figure:>{w}.0f}" for w, figure in figures.items()) + shares)


def average(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average(values, weights=weights))


def spread_of(groups: dict[str, list[Row]]) -> None:
    """Prints the smallest spread that covers 95 % of the reported sizes on the upper side.

    Sets of tools are small here, so that what a model adds once there are tools looks like a share of the definitions:
    that share is bounded by what larger sets show under an exact tokenizer, and the rest is constant.
    """
    print("\nSpread sqrt((a tools)^2 + (b text)^2 + c^2) that covers 95 % one-sided")
    for name, rows in (groups | {"pooled": [row for group in groups.values() for row in group]}).items():
        for title, has_tools in (("text", False), ("tools", True)):
            kept = [row for row in rows if bool(row[0].tools) is has_tools]
            true, text, tools = estimates(kept)
            grid = product(TOOL_SHARES if has_tools else (0.0,), TEXT_SHARES, np.arange(2, 1_500, 2))
            weights, error = weights_of(kept), true - text - tools
            tight = min((tightness(error, text, tools, weights, *abc), *abc) for abc in grid)
            print(f"{name:14}{title:6} a={tight[1]:.2f} b={tight[2]:.2f} c={tight[3]:.0f}")


def tightness(error: np.ndarray, text: np.ndarray, tools: np.ndarray, weights: np.ndarray, *abc: float) -> float:
    a, b, c = abc
    deviation = np.sqrt((a * tools) ** 2 + (b * text) ** 2 + c**2)
    if average(error <= ONE_SIDED_95 * deviation, weights) < COVERAGE:
        return float("inf")
    return average(np.log(deviation), weights)


def fitted(name: str, rows: list[Row]) -> None:
    """Prints constants fitted to every recording, and what those fitted to one half save on the other."""
    framing = FRAMING[rows[0][1]]
    names = [*PLAIN, *(FIELDS if framing.fields else ())]
    today = np.array([constant(framing, key) for key in names], float)
    columns = np.array([counts(*row, names) for row in rows], float)
    zero = np.array([without_constants(*row) for row in rows])
    true, weights = np.array([row.tokens for row, _ in rows], float), weights_of(rows)
    half = np.array([zlib.crc32(row.source.encode()) % 2 == 0 for row, _ in rows])
    trained = fit(columns[half], (true - zero)[half], today, weights[half])
    errors = [average(np.abs(zero + columns @ c - true)[~half], weights[~half]) for c in (today, trained)]
    best = fit(columns, true - zero, today, weights)
    print(f"\n{name}: {len(rows)} rows; held-out half: {errors[0]:.1f} -> {errors[1]:.1f} tokens of error")
    print("  " + ", ".join(f"{key}={now:.0f}->{new:.1f}" for key, now, new in zip(names, today, best, strict=True)))


def constant(framing: Framing, key: str) -> float:
    return float(getattr(framing if key in PLAIN else framing.fields, key))


def counts(row: Recorded, family: str, names: list[str]) -> list[float]:
    """How often each constant is paid."""
    calls = sum(isinstance(piece, Call) for message in row.messages for piece in pieces(message))
    plain = {"request": 1, "message": len(row.messages), "call": calls}
    return [plain[key] if key in plain else tools_price(row, family, lambda _: 0.0, **{key: 1}) for key in names]


def without_constants(row: Recorded, family: str) -> float:
    price = text_price(family)
    return sum(texts(message, price) for message in row.messages) + tools_price(row, family, price)


def tools_price(row: Recorded, family: str, price: Callable[[str], float], **ones: int) -> float:
    """The price of the tools with all constants at 0 but those given."""
    framing = FRAMING[family]
    prices = framing.fields and FieldPrices(**{key: ones.get(key, 0) for key in FIELDS})
    plain = {key: ones.get(key, 0) for key in ("any_tools", "tool")}
    return schema_tokens(row.tools, replace(framing, fields=prices, **plain), price)


def text_price(family: str) -> Callable[[str], float]:
    return TokenEstimator(family)._text  # noqa: SLF001  # the price before rounding


def texts(message: AnyMessage, price: Callable[[str], float]) -> float:
    found = (
        piece.text if isinstance(piece, Call) else piece for piece in pieces(message) if not isinstance(piece, Media)
    )
    return sum(map(price, found))


def fit(columns: np.ndarray, true: np.ndarray, today: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Non-negative constants with the smallest mean absolute error, drawn to today's where the data are silent."""
    from scipy.optimize import linprog

    pull = np.eye(len(today))
    matrix, target = np.vstack([columns, pull]), np.concatenate([true, today])
    cost = np.concatenate([np.zeros(len(today)), weights, np.full(len(today), PRIOR * weights.sum() / 10)])
    slack = np.eye(len(target))
    above, below = np.hstack([matrix, -slack]), np.hstack([-matrix, -slack])
    solved = linprog(cost, np.vstack([above, below]), np.concatenate([target, -target]), method="highs")
    return solved.x[: len(today)]


def calls(data: Path) -> None:
    """Prints what a call with its result costs beyond its text, from the growth of recorded conversations."""
    print("\nGrowth between two responses: true size = slope * estimate + residual per call")
    for name, found in increments(data).items():
        values = np.array(found)
        if len(values) < 50 or not values[:, 2].any():
            continue
        slope, residual = fit(values[:, 1:], values[:, 0], np.array([1.0, 0.0]), np.ones(len(values)))
        bias = (values[:, 0] - values[:, 1]).mean()
        print(f"{name:44}{len(values):>5} slope {slope:.2f}, {residual:+5.1f} a call; bias {bias:+.1f} a response")


def increments(data: Path) -> dict[str, list[tuple[float, float, float]]]:
    found: dict[str, list[tuple[float, float, float]]] = {}
    for name, family in TRANSCRIPTS.items():
        with gzip.open(data / "transcripts" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                model = (row.get("meta") or {}).get("model") or ""
                counted_as = family or family_of(model)
                if counted_as != "generic":
                    found.setdefault(f"{name} {model}"[-43:], []).extend(growth(row, counted_as))
    return found


def growth(row: dict[str, Any], family: str) -> Iterator[tuple[float, float, float]]:
    """Reported growth, estimated growth, and the number of calls between two responses."""
    framing, price = FRAMING[family], text_price(family)
    messages = convert_to_messages([cleaned(message) for message in row["messages"]])
    usage = {point["i"]: point["prompt_tokens"] for point in row.get("usage") or () if point.get("prompt_tokens")}
    costs = [
        framing.message + texts(message, price) + framing.call * sum(isinstance(p, Call) for p in pieces(message))
        for message in messages
    ]
    made = [len(message.tool_calls) if isinstance(message, AIMessage) else 0 for message in messages]
    for start, end in pairwise(sorted(usage)):
        if 0 < usage[end] - usage[start] < COMPACTED:
            yield usage[end] - usage[start], sum(costs[start:end]), sum(made[start:end])


if __name__ == "__main__":
    main()
