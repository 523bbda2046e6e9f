"""Fits the weights of the token estimator to exact counts and writes the generated module of families."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from langchain_ctxwin.core.features import FEATURES, features

FAMILIES = {
    "openai": "o200k", "cl100k": "cl100k", "anthropic": "claude47", "claude3": "claude3", "gemini": "gemma3",
    "llama": "llama3", "qwen": "qwen3", "deepseek": "deepseek",
}  # fmt: skip
AGENT_LIKE = {
    "agent_obs", "chat", "tool_json", "tool_calls", "json", "jsonmin", "log", "py", "js", "ts", "java", "diff", "sh",
    "md", "mdtable", "yaml", "sql", "html", "csv", "trace", "prose_en", "c", "rust", "css",
}  # fmt: skip
PER_LINE = 12  # figures on a line of the written module
HELD_OUT = 4  # every fourth text is kept for the printed errors
FLOORS = {"letters": 0.002, "rare_ideographs": 2.5, "long_words": 2.0}
FLOOR = 0.02  # no class of characters is ever free
TARGET = Path(__file__).parent.parent / "langchain_ctxwin" / "core" / "families.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with tokens/fit.jsonl.gz")
    parser.add_argument("--write", action="store_true", help="write the generated module, fitted to all texts")
    options = parser.parse_args()
    with gzip.open(options.data / "tokens" / "fit.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    counts = np.array([features(row["text"]) for row in rows], dtype=float)
    agent = np.array([row["cat"] in AGENT_LIKE for row in rows])
    held = np.arange(len(rows)) % HELD_OUT == 0
    exact = {name: np.array([row["tokens"][key] for row in rows], dtype=float) for name, key in FAMILIES.items()}
    exact["generic"] = np.median(np.stack(list(exact.values())), axis=0)
    fitted, bounds = {}, {}
    print(f"{'family':12}{'all %':>8}{'p95':>8}{'agent %':>9}{'p95':>8}{'within 20 %':>13}{'upper':>8}{'lower':>8}")
    for name, true in exact.items():
        weights = fit(counts[~held], true[~held])
        errors = np.abs(counts @ weights - true) / true * 100
        mine, agents = errors[held], errors[held & agent]
        weights = fit(counts, true)
        ratios = ratios_of(counts[agent] @ weights, exact if name == "generic" else {name: true}, agent)
        bounds[name] = (float(np.quantile(ratios, 0.95)), float(np.quantile(ratios, 0.05)))
        fitted[name] = weights
        print(
            f"{name:12}{mine.mean():>8.1f}{np.quantile(mine, 0.95):>8.1f}{agents.mean():>9.1f}"
            f"{np.quantile(agents, 0.95):>8.1f}{(agents <= 20).mean() * 100:>13.0f}"
            f"{bounds[name][0]:>8.2f}{bounds[name][1]:>8.2f}"
        )
    if options.write:
        TARGET.write_text(module(fitted, bounds), encoding="utf-8")
        print(f"wrote {TARGET}")


def fit(counts: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Weights with the smallest mean relative error, none below its floor."""
    shares = counts / true[:, None]
    rows, columns = shares.shape
    cost = np.concatenate([np.zeros(columns), np.ones(rows)])
    above = np.hstack([shares, -np.eye(rows)])
    below = np.hstack([-shares, -np.eye(rows)])
    floors = [(FLOORS.get(name, FLOOR), None) for name in FEATURES]
    solved = linprog(
        cost, np.vstack([above, below]), np.concatenate([np.ones(rows), -np.ones(rows)]),
        bounds=[*floors, *[(0, None)] * rows], method="highs",
    )  # fmt: skip
    return solved.x[:columns]


def ratios_of(estimate: np.ndarray, exact: dict[str, np.ndarray], agent: np.ndarray) -> np.ndarray:
    """True count over estimate, for one tokenizer or for all of them together."""
    truths = [true[agent] for name, true in exact.items() if name != "generic"]
    return np.concatenate([true / np.maximum(estimate, 1.0) for true in truths])


def module(fitted: dict[str, np.ndarray], bounds: dict[str, tuple[float, float]]) -> str:
    lines = [
        '"""Weights of the token estimator by tokenizer family; written by benchmarks/fit_tokens.py, never by hand."""',
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
