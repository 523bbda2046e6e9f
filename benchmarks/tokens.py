"""How far off is the token estimator, beside the published heuristics and an exact tokenizer?"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import quicktok
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from common import goals, head, parser_of, row, rows_of
from exact import payload
from langchain_ctxwin import TokenEstimator
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
MOST_PERCENT = 8.5


def main() -> None:
    parser = parser_of(__doc__, "tokens/fit.jsonl.gz and transcripts/")
    parser.add_argument("--quick", action="store_true", help="few texts")
    options = parser.parse_args()
    rows = []
    if options.data:
        rows = list(rows_of(options.data / "tokens" / "fit.jsonl.gz"))
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
    is_met = max(own) <= MOST_PERCENT
    goals([(is_met, f"mean error {max(own):.1f} %: at most {MOST_PERCENT}")])


def approximate(text: str) -> int:
    """LangChain's counter without its three tokens a message: only the text is compared."""
    return count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0)


if __name__ == "__main__":
    main()
