"""How far off, and how slow, is the token estimator, beside the published heuristics and an exact tokenizer?"""

from __future__ import annotations

import argparse
import random
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import quicktok
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from exact import payload
from fit_tokens import AGENT_LIKE, FAMILIES, load
from langchain_ctxwin import TokenEstimator
from transcripts import load as load_transcripts

VOCABULARIES = {
    "openai": "o200k_base",
    "cl100k": "cl100k_base",
    "llama": "llama3",
    "qwen": "qwen3",
}
"""Families whose vocabulary comes in quicktok's wheel."""

FITTED = ("sweagent", "tau2")
"""Recordings of projects that the fitted texts come from too, by the beginning of their name: left out."""

TEXTS_PER_TRANSCRIPT, TRANSCRIPTS_PER_FILE = 20, 8
GOALS = {"mean": 8.5, "ascii": 500.0, "multilingual": 1_500.0}  # %, us, us
TIMED_CHARS = 16_384
SPEED_TEXTS = {
    "ascii": 'def get_user(id: int) -> User: return db.query(User).filter_by(id=id).first()  # {"id": 123}\n',
    "multilingual": "这是一个测试。Привет мир, как дела? नमस्ते दुनिया 😀 hello world été ñandú ถึงเวลาแล้ว ",
}
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, help="folder with tokens/fit.jsonl.gz and transcripts/"
    )
    parser.add_argument("--quick", action="store_true", help="few texts")
    options = parser.parse_args()
    if options.data:
        rows = [row for row in load(options.data) if row["cat"] in AGENT_LIKE][
            :: 20 if options.quick else 1
        ]
        true = {
            name: [row["tokens"][key] for row in rows] for name, key in FAMILIES.items()
        }
        title = "texts that the weights were fitted to (optimistic; fit_tokens.py prints the errors on texts held out)"
        accuracy(title, [row["text"] for row in rows], true)
    texts = said(options.data, 1 if options.quick else TRANSCRIPTS_PER_FILE)
    encodings = {
        family: quicktok.get_encoding(name) for family, name in VOCABULARIES.items()
    }
    true = {
        family: [encoding.count(text) for text in texts]
        for family, encoding in encodings.items()
    }
    accuracy("messages of agents, of other projects than those fitted to", texts, true)
    speed()


def said(data: Path | None, limit: int) -> list[str]:
    """Messages of recorded agents, or of generated ones."""
    rng = random.Random(3)  # noqa: S311  # a reproducible choice, not a secret
    found: list[str] = []
    for transcript in load_transcripts(data, limit=limit):
        if transcript.source.startswith(FITTED):
            continue
        texts = [
            text.encode("utf-8", "replace").decode()
            for m in transcript.messages
            if (text := payload(m))
        ]
        found += rng.sample(texts, min(TEXTS_PER_TRANSCRIPT, len(texts)))
    return found


def accuracy(title: str, texts: Sequence[str], true: dict[str, list[int]]) -> None:
    """Print the errors of each method, and how often each is more than a tenth too low."""
    o200k = quicktok.get_encoding("o200k_base").count
    print(
        f"\n{len(texts)} {title}: mean / 95th percentile of the error in %, share more than a tenth too low"
    )
    methods: dict[str, Callable[[str], int]] = {
        "`len // 4`": lambda text: len(text) // 4,
        "`count_tokens_approximately`": approximate,
        "exact o200k": o200k,
    }
    print("| family | this package | " + " | ".join(methods) + " |")
    print("|---|" + "---:|" * (len(methods) + 1))
    own = []
    for family, counts in true.items():
        estimator = TokenEstimator(family)
        cells = []
        for method in (estimator.count_text, *methods.values()):
            errors = [
                (method(text) - count) / max(1, count) * 100
                for text, count in zip(texts, counts, strict=True)
            ]
            sizes = sorted(map(abs, errors))
            low = mean(error < -10 for error in errors) * 100
            cells.append(
                f"{mean(sizes):.1f} / {sizes[int(0.95 * len(sizes))]:.1f}, {low:.0f} %"
            )
            own += [mean(sizes)] * (len(cells) == 1)
        print(f"| {family} | " + " | ".join(cells) + " |")
    print(
        f"- {'met   ' if max(own) <= GOALS['mean'] else 'MISSED'} mean error {max(own):.1f} %: at most {GOALS['mean']}"
    )


def approximate(text: str) -> int:
    """LangChain's counter without its three tokens a message: only the text is compared."""
    return count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0)


def speed() -> None:
    estimator, o200k = TokenEstimator("openai"), quicktok.get_encoding("o200k_base")
    print(
        f"\n| microseconds for {TIMED_CHARS:,} characters | this package | approximately | exact o200k |"
    )
    print("|---|---:|---:|---:|")
    found = {}
    for kind, seed in SPEED_TEXTS.items():
        text = (seed * TIMED_CHARS)[:TIMED_CHARS]
        calls = (estimator.count_text, approximate, o200k.count)
        found[kind], *others = (microseconds(partial(call, text)) for call in calls)
        print(
            f"| {kind} | "
            + " | ".join(f"{one:,.0f}" for one in (found[kind], *others))
            + " |"
        )
    for kind, taken in found.items():
        print(
            f"- {'met   ' if taken < GOALS[kind] else 'MISSED'} {kind} {taken:.0f} us: under {GOALS[kind]:.0f}"
        )


def microseconds(call: Callable[[], object]) -> float:
    number = max(3, int(0.01 / max(timeit.timeit(call, number=1), 1e-7)))
    return min(timeit.repeat(call, number=number, repeat=REPEATS)) / number * 1e6


if __name__ == "__main__":
    main()
