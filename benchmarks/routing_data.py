"""Reads the routing data: prompts with whether models answered them right, and what the answers cost."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

WEAK, STRONG = "mixtral-8x7b-instruct", "gpt-4-1106-preview"
ASSUMED_OUTPUT_TOKENS = 120  # where none is recorded
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt and what each model made of it."""

    text: str
    domain: str
    correct: dict[str, float]
    cost: dict[str, float]
    """US dollars per model."""


def two_models(data: Path) -> list[Prompt]:
    """Return the prompts that a weak and a strong model answered, with their domains."""
    prices = json.loads(_read(data / "routing" / "routellm.prices.json.gz"))
    dollars = {name: (price["input_per_mtok"], price["output_per_mtok"]) for name, price in prices.items()}
    return [_prompt(row, dollars) for row in _rows(data / "routing" / "routellm.jsonl.gz")]


def nine_models(data: Path) -> list[Prompt]:
    """Return the prompts that nine models answered; without domains."""
    prices = json.loads(_read(data / "routing" / "llmrouter_9models.prices.json.gz"))
    dollars = {name: (price["input_price"], price["output_price"]) for name, price in prices.items()}
    return [_prompt(row, dollars) for row in _rows(data / "routing" / "llmrouter_9models.jsonl.gz")]


def _prompt(row: dict, dollars: dict[str, tuple[float, float]]) -> Prompt:
    cost = {}
    for name, outcome in row["models"].items():
        input_price, output_price = dollars[name]
        output_tokens = outcome.get("out_tokens") or ASSUMED_OUTPUT_TOKENS
        cost[name] = (row["in_tokens"] * input_price + output_tokens * output_price) / MILLION
    correct = {name: float(outcome["correct"]) for name, outcome in row["models"].items()}
    return Prompt(text=row["prompt"], domain=row.get("domain", ""), correct=correct, cost=cost)


def _rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in _read(path).splitlines()]


def _read(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8") if path.suffix == ".gz" else path.read_text("utf-8")
