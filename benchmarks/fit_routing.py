"""Fits the default weights of the routing quality score to public outcomes and writes the generated module.

Data: lm-sys/RouteLLM (the evaluation answers of a weaker and a stronger model to MMLU and GSM8K) and the nine-model set
of ulab-uiuc/LLMRouter. Only texts and right or wrong go in: no weight belongs to a model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from langchain_ctxwin.models.routing import complexity as scored
from langchain_ctxwin.models.routing import quality as quality_module
from langchain_ctxwin.models.routing.complexity import HALF, PARTS, marker_counts
from langchain_ctxwin.models.routing.quality import Quality
from langchain_ctxwin.models.routing.text_weights import dumped
from langchain_ctxwin.models.routing.training import trained
from routing_data import LARGER, SMALLER, STRONG, WEAK, Prompt, nine_models, two_ends, two_models

MAX_PHRASES = 4000  # all recover 0.004 more of the gap, half of them 0.007 less; 110 kB
LEAST_WEIGHT = 0.1  # every part counts for something, whatever the data lack
ASSUMED = {"tools": 0.3, "languages": 0.3}  # the data have no tools and one language
STEPS = 4000  # of the descent for seven numbers: far more than it needs
KINDS = ("code", "math", "choice", "text", "tools")

TARGET = Path(__file__).parent.parent / "langchain_ctxwin" / "models" / "routing" / "weights.py"

MODULE = '''"""Generated weights of the routing quality score: benchmarks/fit_routing.py writes them.

Made from public outcomes: the evaluation answers of lm-sys/RouteLLM (MMLU, GSM8K) and the nine-model set of
ulab-uiuc/LLMRouter. The weights belong to words of a request, not to models.
"""

# ruff: noqa: E501, RUF001  # one line of columns, one per phrase; signs that look alike are phrases too

from __future__ import annotations

# fmt: off
PART_WEIGHTS: dict[str, float] = {{
{parts}
}}
"""How much each part of the complexity says about failing, from 0 to 1."""

LEVEL_BOUNDS: dict[str, tuple[float, float]] = {{
{bounds}
}}
"""Scores from which a request of a kind is of medium difficulty, and hard: a third of its texts is below, one above."""

TEXT_WEIGHTS = """\\
{text}
"""
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with routing/*.jsonl.gz")
    parser.add_argument("--write", action="store_true", help="write the generated module")
    options = parser.parse_args()
    pairs, nine = two_models(options.data), nine_models(options.data)
    texts = [prompt.text for prompt in [*pairs, *nine]]
    parts = part_weights(texts, failures([*pairs, *nine]))
    scored.PART_WEIGHTS.update(parts)  # from here on this process sees the new numbers, as the written module will
    bounds = level_bounds(texts)
    quality_module.LEVEL_BOUNDS.update(bounds)
    print("parts", parts, "bounds", bounds)
    samples = [*two_ends(pairs, (WEAK,), (STRONG,)), *two_ends(nine, SMALLER, LARGER)]
    weights = trained(samples, bucket=Quality().bucket, max_phrases=MAX_PHRASES)
    print(f"{len(weights.phrases)} phrases, base {weights.base}, usual:")
    for bucket, means in sorted(weights.usual.items()):
        print(f"  {bucket:16}", *(f"{1 / (1 + np.exp(-mean)):.2f}" for mean in means))
    if options.write:
        TARGET.write_text(module(parts, bounds, dumped(weights)), encoding="utf-8")
        print(f"wrote {TARGET}")


def failures(prompts: list[Prompt]) -> np.ndarray:
    return np.array([1 - sum(prompt.correct.values()) / len(prompt.correct) for prompt in prompts])


def part_weights(texts: list[str], failed: np.ndarray) -> dict[str, float]:
    """Weights that are never negative, by projected logistic regression of failing on the parts."""
    known = [name for name in PARTS if name not in ASSUMED]
    counts = [marker_counts(text) for text in texts]
    parts = np.array([[count[name] / (count[name] + HALF[name]) for name in known] for count in counts])
    slopes, base = np.zeros(len(known)), 0.0
    for _ in range(STEPS):
        error = 1 / (1 + np.exp(-(parts @ slopes + base))) - failed
        slopes = np.maximum(0, slopes - 2 * parts.T @ error / len(texts))
        base -= 2 * error.mean()
    fitted = {name: float(1 - np.exp(-slope)) for name, slope in zip(known, slopes, strict=True)}
    return {name: round(max(LEAST_WEIGHT, {**fitted, **ASSUMED}[name]), 3) for name in PARTS}


def level_bounds(texts: list[str]) -> dict[str, tuple[float, float]]:
    """Thirds of the scores of each kind; of kinds that the data lack, of all texts."""
    quality = Quality()
    scores = [quality.complexity(text).score for text in texts]
    kinds = [quality.bucket(text).split("/")[0] for text in texts]
    return {kind: thirds([s for s, k in zip(scores, kinds, strict=True) if k == kind] or scores) for kind in KINDS}


def thirds(scores: list[float]) -> tuple[float, float]:
    easy, hard = np.quantile(scores, (1 / 3, 2 / 3))
    return round(float(easy), 3), round(float(hard), 3)


def module(parts: dict[str, float], bounds: dict[str, tuple[float, float]], text: str) -> str:
    return MODULE.format(parts=lines(parts), bounds=lines(bounds), text=text.replace("\\", r"\\"))


def lines(table: dict[str, object]) -> str:
    return "\n".join(f'    "{name}": {value},' for name, value in table.items())


if __name__ == "__main__":
    main()
