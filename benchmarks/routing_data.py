"""Reads the routing data: prompts with whether models answered them right, and what the answers cost."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

from langchain_ctxwin.routing.text_weights import CHEAP, DEAR, Sample

WEAK, STRONG = "mixtral-8x7b-instruct", "gpt-4-1106-preview"
ASSUMED_OUTPUT_TOKENS = 120  # where none is recorded
MILLION = 1e6

SMALLER = ("qwen2.5-7b-instruct", "mistral-7b-instruct-v0.3", "llama-3.1-8b-instruct", "gemma-2-9b-it")
LARGER = ("llama-3.1-nemotron-51b-instruct", "llama-3.3-nemotron-super-49b-v1")
"""Of the nine models those that are a cheap and a dear choice; the other three are weak at any price."""


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


def without_known(prompts: list[Prompt], known: list[Prompt]) -> list[Prompt]:
    """Return the prompts whose question does not stand among the known ones."""
    questions = {_question(prompt.text) for prompt in known}
    return [prompt for prompt in prompts if _question(prompt.text) not in questions]


def two_ends(prompts: list[Prompt], weak: tuple[str, ...], strong: tuple[str, ...]) -> list[Sample]:
    """Return the outcomes as those of a cheap and of a dear model: the share of right answers of each group."""
    ends = {CHEAP: weak, DEAR: strong}
    return [
        Sample(text=prompt.text, model=end, success=sum(prompt.correct[model] for model in group) / len(group))
        for prompt in prompts
        for end, group in ends.items()
    ]


def _prompt(row: dict, dollars: dict[str, tuple[float, float]]) -> Prompt:
    cost = {}
    for name, outcome in row["models"].items():
        input_price, output_price = dollars[name]
        output_tokens = outcome.get("out_tokens") or ASSUMED_OUTPUT_TOKENS
        cost[name] = (row["in_tokens"] * input_price + output_tokens * output_price) / MILLION
    correct = {name: float(outcome["correct"]) for name, outcome in row["models"].items()}
    return Prompt(text=row["prompt"], domain=row.get("domain", ""), correct=correct, cost=cost)


def _question(text: str) -> str:
    """The beginning of a question, without its options, spelled plainly."""
    stem = re.split(r"\n\(?A[.):] ", text.removeprefix("Q: "), maxsplit=1)[0]
    return re.sub(r"\W+", " ", stem.lower()).strip()[:120]


def _rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in _read(path).splitlines()]


def _read(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8") if path.suffix == ".gz" else path.read_text("utf-8")
