"""Fits the default weights of the routing quality score to public outcomes and writes the package's weights file.

Data: lm-sys/RouteLLM (the evaluation answers of a weaker and a stronger model to MMLU and GSM8K) and the nine-model set
of ulab-uiuc/LLMRouter. Only texts and right or wrong go in: no weight belongs to a model.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from langchain_ctxwin.routing.quality import LEVELS, kind_of
from langchain_ctxwin.routing.text_weights import WEIGHTS_FILE, TextWeights, dumped, phrase_counts, trained
from routing_data import LARGER, SMALLER, STRONG, WEAK, nine_models, two_ends, two_models

MAX_PHRASES = 4000  # all recover 0.004 more of the gap, half of them 0.007 less; 130 kB
DECIMALS = 3  # the third moves a chance by less than a thousandth

TARGET = Path(__file__).parent.parent / "langchain_ctxwin" / "routing" / WEIGHTS_FILE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with routing/*.jsonl.gz")
    parser.add_argument("--write", action="store_true", help="write the weights file")
    options = parser.parse_args()
    pairs, nine = two_models(options.data), nine_models(options.data)
    texts = list(dict.fromkeys(prompt.text for prompt in [*pairs, *nine]))
    samples = [*two_ends(pairs, (WEAK,), (STRONG,)), *two_ends(nine, SMALLER, LARGER)]
    weights = trained(samples, bucket=kind_of)
    weights = trained(samples, bucket=kind_of, only=most_telling(weights, texts))
    weights = replace(weights, usual=usual(weights, texts))
    print(f"{len(weights.phrases)} phrases, base {weights.base}, usual:")
    for bucket, means in sorted(weights.usual.items()):
        print(f"  {bucket:16}", *(f"{1 / (1 + np.exp(-mean)):.2f}" for mean in means))
    if options.write:
        TARGET.write_text(written(weights), encoding="utf-8")
        print(f"wrote {TARGET}")


def most_telling(weights: TextWeights, texts: list[str]) -> set[str]:
    """The phrases that move the difference between the dear and the cheap end most, summed over the texts."""
    spread = Counter(phrase for text in texts for phrase in phrase_counts(text))
    told = {
        phrase: abs(dear - cheap) * rare * math.sqrt(spread[phrase])
        for phrase, (rare, cheap, dear) in weights.phrases.items()
    }
    return set(sorted(told, key=lambda phrase: (-told[phrase], phrase))[:MAX_PHRASES])


def usual(weights: TextWeights, texts: list[str]) -> dict[str, tuple[float, ...]]:
    """Mean log-odds of each level of each kind, a third of its texts. Tools, which the data lack, get all texts."""
    logits = defaultdict(list)
    for text in texts:
        for kind in (kind_of(text), "tools"):
            logits[kind].append(weights.logits(text))
    return {
        f"{kind}/{level}": tuple(third.mean(axis=0).tolist())
        for kind, rows in logits.items()
        for level, third in zip(LEVELS, np.array_split(np.array(sorted(rows, reverse=True)), len(LEVELS)), strict=True)
    }


def written(weights: TextWeights) -> str:
    """The weights as JSON, rounded, a line for each phrase."""
    document = json.loads(dumped(weights), parse_float=lambda number: round(float(number), DECIMALS))
    document["phrases"] = dict(sorted(document["phrases"].items()))
    compact = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return compact.replace('],"', '],\n"') + "\n"


if __name__ == "__main__":
    main()
