"""How far off, and how slow, is the token estimator, beside the published heuristics and an exact tokenizer?

`--fit` fits the weights of the estimator to counted texts instead, and writes them into the package; it needs scipy,
which nothing else does.
"""

from __future__ import annotations

import random
import re
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import quicktok
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from common import goals, head, parser_of, row, rows_of
from exact import payload
from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.core import token_weights
from langchain_ctxwin.core.token_weights import FEATURES, STARTS
from langchain_ctxwin.core.tokens import features
from transcripts import load

FAMILIES = {
    "openai": "o200k", "cl100k": "cl100k", "anthropic": "claude47", "claude3": "claude3", "gemini": "gemma3",
    "llama": "llama3", "qwen": "qwen3", "deepseek": "deepseek",
}  # fmt: skip
AGENT_LIKE = {
    "agent_obs", "chat", "tool_json", "tool_calls", "json", "jsonmin", "log", "py", "js", "ts", "java", "diff", "sh",
    "md", "mdtable", "yaml", "sql", "html", "csv", "trace", "prose_en", "c", "rust", "css",
}  # fmt: skip
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
    parser = parser_of(__doc__, "tokens/fit.jsonl.gz and transcripts/")
    parser.add_argument("--quick", action="store_true", help="few texts")
    parser.add_argument("--fit", action="store_true", help="write the weights anew")
    options = parser.parse_args()
    rows = []
    if options.data:
        rows = list(rows_of(options.data / "tokens" / "fit.jsonl.gz"))
    if options.fit:
        write_weights(rows)
        return
    rows = [one for one in rows if one["cat"] in AGENT_LIKE]
    if rows := rows[:: 20 if options.quick else 1]:
        true = {
            name: [one["tokens"][key] for one in rows] for name, key in FAMILIES.items()
        }
        title = "texts that the weights were fitted to (optimistic)"
        accuracy(title, [one["text"] for one in rows], true)
    texts = said(options.data, 1 if options.quick else TRANSCRIPTS_PER_FILE)
    true = {
        family: list(map(quicktok.get_encoding(name).count, texts))
        for family, name in VOCABULARIES.items()
    }
    accuracy("messages of agents, of other projects than those fitted to", texts, true)
    speed()


def said(data: Path | None, limit: int) -> list[str]:
    """Messages of recorded agents, or of generated ones."""
    rng = random.Random(3)  # noqa: S311  # a reproducible choice, not a secret
    found: list[str] = []
    for transcript in load(data, limit=limit):
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
    head("family", "this package", *methods)
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
        row(family, *cells)
    is_met = max(own) <= GOALS["mean"]
    goals([(is_met, f"mean error {max(own):.1f} %: at most {GOALS['mean']}")])


def approximate(text: str) -> int:
    """LangChain's counter without its three tokens a message: only the text is compared."""
    return count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0)


def speed() -> None:
    estimator, o200k = TokenEstimator("openai"), quicktok.get_encoding("o200k_base")
    print()
    title = f"microseconds for {TIMED_CHARS:,} characters"
    head(title, "this package", "approximately", "exact o200k")
    found = {}
    for kind, seed in SPEED_TEXTS.items():
        text = (seed * TIMED_CHARS)[:TIMED_CHARS]
        calls = (estimator.count_text, approximate, o200k.count)
        found[kind], *others = (microseconds(partial(call, text)) for call in calls)
        row(kind, *(f"{one:,.0f}" for one in (found[kind], *others)))
    goals(
        (taken < GOALS[kind], f"{kind} {taken:.0f} us: under {GOALS[kind]:.0f}")
        for kind, taken in found.items()
    )


def microseconds(call: Callable[[], object]) -> float:
    number = max(3, int(0.01 / max(timeit.timeit(call, number=1), 1e-7)))
    return min(timeit.repeat(call, number=number, repeat=REPEATS)) / number * 1e6


# ---- the weights -----------------------------------------------------------------------------------------------------

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

TARGET = Path(token_weights.__file__)


def write_weights(rows: list[dict[str, Any]]) -> None:
    """Fit the weights of all families to counted texts, and put them into the tables of the module."""
    # texts in ASCII have no counts of scripts
    counted = (features(row["text"]) for row in rows)
    columns = zip_longest(*counted, [0] * len(FEATURES), fillvalue=0)
    counts = np.array(list(columns), dtype=float).T[:-1]
    agent = np.array([row["cat"] in AGENT_LIKE for row in rows])
    exact = {
        name: np.array([row["tokens"][key] for row in rows], dtype=float)
        for name, key in FAMILIES.items()
    }
    exact["generic"] = np.median(np.stack(list(exact.values())), axis=0)
    fitted = {name: fit(counts, true, agent, name) for name, true in exact.items()}
    families = "".join(f" {family:>8}" for family in fitted)
    table = [f"{'feature':18}{'starts':>15}{families}"]
    for name, *weights in zip(FEATURES, *fitted.values(), strict=True):
        starts = ",".join(f"0x{start:X}" for start in STARTS.get(name, ())) or "-"
        cells = "".join(f" {weight:>8.3f}" for weight in weights)
        table.append(f"{name:18}{starts:>15}{cells}")
    bounds = []
    for name, weights in fitted.items():
        high, low = bounds_of(counts[agent] @ weights, name, exact, agent)
        bounds.append(f'    "{name}": ({high:.3f}, {low:.3f}),')
    source = TARGET.read_text(encoding="utf-8")
    for start, lines, end in (
        ('TABLE = """', table, '"""'),
        ("BOUNDS: dict[str, tuple[float, float]] = {", bounds, "}"),
    ):
        body = "\n".join([start, *lines, end])
        place = re.compile(rf"(?ms)^{re.escape(start)}$.*?^{end}$")
        source = place.sub(lambda _, body=body: body, source, count=1)
    TARGET.write_text(source, encoding="utf-8")
    print(f"wrote {TARGET}")


def fit(
    counts: np.ndarray, true: np.ndarray, agent: np.ndarray, family: str
) -> np.ndarray:
    """Weights with the smallest mean relative error, each within its floor and its ceiling.

    Agent-like texts weigh as much as all others together, however many there are of each.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack

    rows, columns = counts.shape
    limits = [(floor_of(name, family), CEILINGS.get(name)) for name in FEATURES]
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


if __name__ == "__main__":
    main()
