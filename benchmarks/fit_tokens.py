"""Fits the weights of the token estimator to exact counts and writes them into a module.

Needs numpy and scipy, which only this script uses (`pip install scipy`); the package itself needs neither.
`fit_texts.py` makes more counted texts. Characters are written first (`--characters`), because the counts go by them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import zlib
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import numpy as np
import quicktok

from langchain_ctxwin.core import token_weights
from langchain_ctxwin.core.token_weights import BOUNDS, FEATURES, STARTS, WEIGHTS
from langchain_ctxwin.core.tokens import ASCII_FEATURES, features, script_of

FAMILIES = {
    "openai": "o200k", "cl100k": "cl100k", "anthropic": "claude47", "claude3": "claude3", "gemini": "gemma3",
    "llama": "llama3", "qwen": "qwen3", "deepseek": "deepseek",
}  # fmt: skip
AGENT_LIKE = {
    "agent_obs", "chat", "tool_json", "tool_calls", "json", "jsonmin", "log", "py", "js", "ts", "java", "diff", "sh",
    "md", "mdtable", "yaml", "sql", "html", "csv", "trace", "prose_en", "c", "rust", "css",
}  # fmt: skip
PER_STRING = 50  # characters on a line of those that are common
# What makes a character common: its share in the texts of its alphabet; else its tokens at most, or texts that have it.
COMMON_SHARE = 0.96
COMMON_TOKENS = {"o200k_base": 1, "qwen3": 1, "cl100k_base": 2, "llama3": 2}
COMMON_TEXTS = 2
WITHOUT_ALPHABET = {
    "latin1_symbols", "latin1", "latin_extended", "vietnamese", "typography", "box", "signs", "selectors", "fullwidth",
    "cjk_symbols", "cjk", "kana",
}  # fmt: skip
FOLDS = 8  # parts of the sources, each of which is predicted by weights fitted to the others

# No class of characters is ever free. What ordinary texts lack is priced by what its characters cost on their own,
# less a quarter for those that share a token: tokens per character of random and of typical strings of the class,
# counted with four tokenizers whose vocabularies are public.
FLOOR = 0.02
FLOORS = {
    "characters": 1 / 64, "letters": 0.002, "long_words": 7.0, "long_symbols": 5.0, "consonant_blocks": 0.8,
    "latin_runs": 2.0, "cjk_symbols": 0.5,
}  # fmt: skip
# What marks random letters or a language among the texts fitted to is found in plain English too, and costs less there.
# Characters that no text fitted to is written in cost no more than their bytes.
CEILINGS = {
    "long_words": 7.0, "long_symbols": 5.0, "a_endings": 1.0, "i_endings": 1.0, "latin_runs": 3.0, "rare_two_byte": 2.0,
    "rare_three_byte": 3.0, "typography": 1.05,
}  # fmt: skip
MEASURED = ("openai", "cl100k", "llama", "qwen")
MEASURED_FLOORS = {
    "signs": (0.9, 1.3, 1.1, 0.9), "box": (0.6, 0.8, 0.7, 0.6), "typography": (0.5, 1.0, 0.6, 1.0),
    "fullwidth": (0.6, 0.75, 0.7, 0.7), "selectors": (0.5, 1.0, 1.0, 0.5),
    "emoji": (1.7, 1.9, 1.8, 1.7), "rare_astral": (3.4, 3.4, 3.4, 3.2), "latin1_symbols": (0.4, 0.5, 0.5, 0.4),
    "latin_extended": (0.3, 0.3, 0.3, 0.45), "vietnamese": (0.6, 0.9, 0.8, 0.6), "cjk": (0.43, 0.95, 0.65, 0.57),
    "kana": (0.33, 0.75, 0.5, 0.55), "rare_two_byte": (1.8, 1.9, 1.9, 1.5), "rare_three_byte": (2.4, 2.6, 2.4, 2.0),
}  # fmt: skip
LIKE = {
    "anthropic": "cl100k",
    "claude3": "cl100k",
    "gemini": "openai",
    "deepseek": "openai",
    "generic": "llama",
}
"""Families without a public vocabulary borrow the floors of one with a vocabulary of like size."""

Limits = tuple[float, float | None]

TARGET = Path(token_weights.__file__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with tokens/fit.jsonl.gz"
    )
    parser.add_argument(
        "--more",
        type=Path,
        nargs="*",
        default=[],
        help="further counted texts of the same form",
    )
    parser.add_argument(
        "--characters",
        action="store_true",
        help="write the characters that are common, and end",
    )
    parser.add_argument(
        "--keep-ascii",
        action="store_true",
        help="fit the weights of what is beside ASCII alone",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the weights, fitted to all texts"
    )
    options = parser.parse_args()
    rows = load(options.data, *options.more)
    if options.characters:
        write_characters([row["text"] for row in rows])
        return
    counts = matrix([row["text"] for row in rows])
    agent = np.array([row["cat"] in AGENT_LIKE for row in rows])
    exact = {
        name: np.array([row["tokens"][key] for row in rows], dtype=float)
        for name, key in FAMILIES.items()
    }
    exact["generic"] = np.median(np.stack(list(exact.values())), axis=0)
    limits = {name: limits_of(name, keep_ascii=options.keep_ascii) for name in exact}
    report(
        counts, exact, agent, np.array([fold_of(row["src"]) for row in rows]), limits
    )
    if options.write:
        fitted = {
            name: fit(counts, true, agent, limits[name]) for name, true in exact.items()
        }
        found = {
            name: bounds_of(counts[agent] @ fitted[name], name, exact, agent)
            for name in exact
        }
        write(fitted, BOUNDS if options.keep_ascii else found)


def load(data: Path, *more: Path) -> list[dict]:
    rows: list[dict] = []
    for path in (data / "tokens" / "fit.jsonl.gz", *more):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows += map(json.loads, lines)
    return rows


def matrix(texts: list[str]) -> np.ndarray:
    """One row of counts per text; texts in ASCII have no counts of scripts."""
    columns = zip_longest(*map(features, texts), [0] * len(FEATURES), fillvalue=0)
    return np.array(list(columns), dtype=float).T[:-1]


def fold_of(source: str) -> int:
    """The part that a source belongs to: all of a project, which begins the source's name, is in one."""
    return zlib.crc32(re.split(r"[^a-z0-9]", source.lower())[0].encode()) % FOLDS


def report(
    counts: np.ndarray, exact: dict, agent: np.ndarray, folds: np.ndarray, limits: dict
) -> None:
    """Prints errors on agent-like texts of sources that were not fitted to, and on all texts, fitted to most of them.

    Scripts with one source only cannot be held out by source: of other texts, one of `FOLDS` is held out.
    """
    folds = np.where(agent, folds, np.arange(len(agent)) % FOLDS)
    print(
        f"Held out: whole projects of {agent.sum()} agent-like texts, single ones of {(~agent).sum()} others"
    )
    print(
        f"{'family':12}{'agent %':>9}{'p95':>8}{'within 20 %':>13}{'others %':>10}{'p95':>8}{'within 20 %':>13}"
    )
    for name, true in exact.items():
        estimate = np.empty(len(true))
        for fold in range(FOLDS):
            held = folds == fold
            estimate[held] = counts[held] @ fit(
                counts[~held], true[~held], agent[~held], limits[name]
            )
        errors = np.abs(estimate - true) / true * 100
        print(
            f"{name:12}" + "".join(figures(errors[kind]) for kind in (agent, ~agent)),
            flush=True,
        )


def figures(errors: np.ndarray) -> str:
    return f"{errors.mean():>9.1f}{np.quantile(errors, 0.95):>8.1f}{(errors <= 20).mean() * 100:>13.1f} "


def fit(
    counts: np.ndarray, true: np.ndarray, agent: np.ndarray, limits: list[Limits]
) -> np.ndarray:
    """Weights with the smallest mean relative error, each within its limits.

    Agent-like texts weigh as much as all others together, however many there are of each.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack

    rows, columns = counts.shape
    price = np.where(agent, 1 / max(1, agent.sum()), 1 / max(1, (~agent).sum())) * rows
    shares = hstack(
        [csr_array(counts / true[:, None]), -eye_array(rows), eye_array(rows)],
        format="csr",
    )
    solved = linprog(
        np.concatenate([np.zeros(columns), price, price]), A_eq=shares, b_eq=np.ones(rows),
        bounds=[*limits, *[(0, None)] * (2 * rows)], method="highs",
    )  # fmt: skip
    return solved.x[:columns]


def limits_of(family: str, *, keep_ascii: bool) -> list[Limits]:
    """Floor and ceiling of each weight; to keep the present ones of ASCII, only their floors can raise them."""
    limits: list[Limits] = [
        (floor_of(name, family), CEILINGS.get(name)) for name in FEATURES
    ]
    if keep_ascii:
        for index, weight in enumerate(WEIGHTS[family][: len(ASCII_FEATURES)]):
            kept = max(weight, limits[index][0])
            limits[index] = (kept, kept)
    return limits


def floor_of(name: str, family: str) -> float:
    if name in MEASURED_FLOORS:
        return MEASURED_FLOORS[name][MEASURED.index(LIKE.get(family, family))]
    return FLOORS.get(name, FLOOR)


def bounds_of(
    estimate: np.ndarray, family: str, exact: dict, agent: np.ndarray
) -> tuple[float, float]:
    """Upper and lower bound of true count over estimate; those of a generic estimate hold for every family."""
    names = [name for name in FAMILIES if family in {name, "generic"}]
    ratios = [exact[name][agent] / np.maximum(estimate, 1.0) for name in names]
    lower = min(float(np.quantile(ratio, 0.05)) for ratio in ratios)
    return float(np.quantile(np.concatenate(ratios), 0.95)), lower


def write(
    fitted: dict[str, np.ndarray], bounds: dict[str, tuple[float, float]]
) -> None:
    """Puts the figures into the tables of the module."""
    head = f"{'feature':18}{'starts':>15}" + "".join(
        f" {family:>8}" for family in fitted
    )
    rows = [
        f"{name:18}{','.join(f'0x{start:X}' for start in STARTS.get(name, ())) or '-':>15}"
        + "".join(f" {weight:>8.3f}" for weight in row)
        for name, row in zip(FEATURES, zip(*fitted.values(), strict=True), strict=True)
    ]
    limits = [
        f'    "{name}": ({high:.3f}, {low:.3f}),'
        for name, (high, low) in bounds.items()
    ]
    source = TARGET.read_text(encoding="utf-8")
    for start, lines, end in (
        ('TABLE = """', [head, *rows], '"""'),
        ("BOUNDS: dict[str, tuple[float, float]] = {", limits, "}"),
    ):
        body = "\n".join([start, *lines, end])
        source = re.sub(
            rf"(?ms)^{re.escape(start)}$.*?^{end}$",
            lambda _, body=body: body,
            source,
            count=1,
        )
    TARGET.write_text(source, encoding="utf-8")
    print(f"wrote {TARGET}")


def write_characters(texts: list[str]) -> None:
    """Puts the characters beside ASCII that are common into the module.

    Of an alphabet those that nearly all of its texts are made of: random letters are rare ones more often than not.
    Of signs, ideographs and Latin, which many languages share, those of few tokens and those that several texts have.
    """
    seen = Counter(character for text in texts for character in text)
    spread = Counter(character for text in texts for character in set(text))
    counters = [
        (quicktok.get_encoding(name).count, tokens)
        for name, tokens in COMMON_TOKENS.items()
    ]
    common: set[str] = set()
    for script, characters in by_script().items():
        if script in WITHOUT_ALPHABET:
            common.update(
                each
                for each in characters
                if all(count(each) <= tokens for count, tokens in counters)
            )
            if script != "cjk":
                common.update(
                    each for each in characters if spread[each] >= COMMON_TEXTS
                )
            continue
        left = COMMON_SHARE * sum(seen[each] for each in characters)
        for character in sorted(characters, key=lambda each: -seen[each]):
            if left > 0:
                common.add(character)
            left -= seen[character]
    found = "".join(sorted(common))
    lines = [
        found[start : start + PER_STRING] for start in range(0, len(found), PER_STRING)
    ]
    body = "\n".join(
        f"    {json.dumps(line, ensure_ascii=not line.isprintable())}" for line in lines
    )
    source = TARGET.read_text(encoding="utf-8")
    made = re.sub(
        r"(?ms)^COMMON = \(.*?^\)", lambda _: f"COMMON = (\n{body}\n)", source, count=1
    )
    TARGET.write_text(made, encoding="utf-8")


def by_script() -> dict[str, list[str]]:
    """The characters of two and three bytes by script."""
    found: dict[str, list[str]] = {}
    for character in map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x10000)]):
        found.setdefault(script_of(character), []).append(character)
    return found


if __name__ == "__main__":
    main()
