"""Fits the weights of the token estimator to exact counts and writes the generated module of families.

Needs numpy and scipy, which only this script uses (`pip install scipy`); the package itself needs neither.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path

import numpy as np

from langchain_ctxwin.core.tokens import FEATURES, features

FAMILIES = {
    "openai": "o200k", "cl100k": "cl100k", "anthropic": "claude47", "claude3": "claude3", "gemini": "gemma3",
    "llama": "llama3", "qwen": "qwen3", "deepseek": "deepseek",
}  # fmt: skip
AGENT_LIKE = {
    "agent_obs", "chat", "tool_json", "tool_calls", "json", "jsonmin", "log", "py", "js", "ts", "java", "diff", "sh",
    "md", "mdtable", "yaml", "sql", "html", "csv", "trace", "prose_en", "c", "rust", "css",
}  # fmt: skip
PER_LINE = 12  # figures on a line of the written module
EVERY = 4  # one text of so many is kept for the optimistic error

# No class of characters is ever free. What ordinary texts lack is priced by what its characters cost on their own,
# less a quarter for those that share a token: tokens per character of random and of typical strings of the class,
# counted with four tokenizers whose vocabularies are public.
FLOOR = 0.02
FLOORS = {
    "characters": 1 / 64, "letters": 0.002, "long_words": 2.0, "latin1_runs": 2.0, "ipa_diacritics": 0.15,
    "latin_extended": 0.15, "vietnamese": 0.25, "private": 2.5, "table_rules": 0.8,
}  # fmt: skip
MEASURED = ("openai", "cl100k", "llama", "qwen")
MEASURED_FLOORS = {
    "symbols_e2": (0.9, 1.3, 1.1, 0.9), "box": (0.6, 0.8, 0.7, 0.6), "braille": (2.5, 2.5, 2.5, 2.2),
    "typography": (0.5, 0.6, 0.6, 0.5), "fullwidth": (0.6, 0.75, 0.7, 0.7), "other_scripts": (1.8, 2.2, 2.2, 1.6),
    "rare_cjk": (2.5, 2.5, 2.5, 2.2), "rare_astral": (2.8, 2.8, 2.8, 2.0), "oriya": (1.2, 2.4, 2.4, 1.5),
    "latin1_symbols": (0.4, 0.5, 0.5, 0.4),
}  # fmt: skip
LIKE = {"anthropic": "cl100k", "claude3": "cl100k", "gemini": "openai", "deepseek": "openai", "generic": "llama"}
"""Families without a public vocabulary borrow the floors of one with a vocabulary of like size."""

TARGET = Path(__file__).parent.parent / "langchain_ctxwin" / "core" / "families.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with tokens/fit.jsonl.gz")
    parser.add_argument("--write", action="store_true", help="write the generated module, fitted to all texts")
    options = parser.parse_args()
    rows = load(options.data)
    counts = matrix([row["text"] for row in rows])
    agent = np.array([row["cat"] in AGENT_LIKE for row in rows])
    exact = {name: np.array([row["tokens"][key] for row in rows], dtype=float) for name, key in FAMILIES.items()}
    exact["generic"] = np.median(np.stack(list(exact.values())), axis=0)
    sources = whole_sources(rows)
    report("Held out: one whole source of every category that has several", counts, exact, sources, agent)
    every = np.arange(len(rows)) % EVERY == 0
    report("Optimistic: one text of four, from sources that were fitted too", counts, exact, every, agent)
    if options.write:
        fitted = {name: fit(counts, true, name) for name, true in exact.items()}
        bounds = {name: bounds_of(counts[agent] @ fitted[name], name, exact, agent) for name in exact}
        TARGET.write_text(module(fitted, bounds), encoding="utf-8")
        print(f"wrote {TARGET}")


def load(data: Path) -> list[dict]:
    with gzip.open(data / "tokens" / "fit.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def matrix(texts: list[str]) -> np.ndarray:
    """One row of counts per text; texts in ASCII have no counts of scripts."""
    columns = zip_longest(*map(features, texts), [0] * len(FEATURES), fillvalue=0)
    return np.array(list(columns), dtype=float).T[:-1]


def whole_sources(rows: list[dict]) -> np.ndarray:
    """The texts of the last source of every category that has more than one."""
    found = defaultdict(set)
    for row in rows:
        found[row["cat"]].add(row["src"])
    kept = {(category, max(sources)) for category, sources in found.items() if len(sources) > 1}
    return np.array([(row["cat"], row["src"]) in kept for row in rows])


def report(title: str, counts: np.ndarray, exact: dict, held: np.ndarray, agent: np.ndarray) -> None:
    print(f"\n{title} ({held.sum()} texts, {(held & agent).sum()} agent-like)")
    print(f"{'family':12}{'all %':>8}{'p95':>8}{'agent %':>9}{'p95':>8}{'within 20 %':>13}")
    for name, true in exact.items():
        weights = fit(counts[~held], true[~held], name)
        errors = np.abs(counts @ weights - true) / true * 100
        mine, agents = errors[held], errors[held & agent]
        print(
            f"{name:12}{mine.mean():>8.1f}{np.quantile(mine, 0.95):>8.1f}{agents.mean():>9.1f}"
            f"{np.quantile(agents, 0.95):>8.1f}{(agents <= 20).mean() * 100:>13.0f}"
        )


def fit(counts: np.ndarray, true: np.ndarray, family: str) -> np.ndarray:
    """Weights with the smallest mean relative error, none below its floor."""
    from scipy.optimize import linprog

    shares = counts / true[:, None]
    rows, columns = shares.shape
    cost = np.concatenate([np.zeros(columns), np.ones(rows)])
    above = np.hstack([shares, -np.eye(rows)])
    below = np.hstack([-shares, -np.eye(rows)])
    solved = linprog(
        cost, np.vstack([above, below]), np.concatenate([np.ones(rows), -np.ones(rows)]),
        bounds=[*[(floor_of(name, family), None) for name in FEATURES], *[(0, None)] * rows], method="highs",
    )  # fmt: skip
    return solved.x[:columns]


def floor_of(name: str, family: str) -> float:
    if name in MEASURED_FLOORS:
        return MEASURED_FLOORS[name][MEASURED.index(LIKE.get(family, family))]
    return FLOORS.get(name, FLOOR)


def bounds_of(estimate: np.ndarray, family: str, exact: dict, agent: np.ndarray) -> tuple[float, float]:
    """Upper and lower bound of true count over estimate; those of a generic estimate hold for every family."""
    names = [name for name in FAMILIES if family in {name, "generic"}]
    ratios = [exact[name][agent] / np.maximum(estimate, 1.0) for name in names]
    lower = min(float(np.quantile(ratio, 0.05)) for ratio in ratios)
    return float(np.quantile(np.concatenate(ratios), 0.95)), lower


def module(fitted: dict[str, np.ndarray], bounds: dict[str, tuple[float, float]]) -> str:
    lines = [
        '"""Generated weights of the token estimator by tokenizer family: benchmarks/fit_tokens.py writes them."""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
        "WEIGHTS: dict[str, tuple[float, ...]] = {",
    ]
    for name, weights in fitted.items():
        lines += [f'    "{name}": (', *_wrapped(weights), "    ),"]
    lines += [
        "}",
        '"""Tokens per count, in the order of `features.FEATURES`."""',
        "",
        "BOUNDS: dict[str, tuple[float, float]] = {",
    ]
    lines += [f'    "{name}": ({high:.3f}, {low:.3f}),' for name, (high, low) in bounds.items()]
    lines += ["}", '"""True count over estimate: 95 % and 5 % quantile over agent-like texts."""', ""]
    return "\n".join(lines)


def _wrapped(weights: np.ndarray) -> list[str]:
    figures = [f"{weight:.3f}," for weight in weights]
    return [" " * 8 + " ".join(figures[start : start + PER_LINE]) for start in range(0, len(figures), PER_LINE)]


if __name__ == "__main__":
    main()
