"""How much of its token budget does a page of a large tool result use, when another page follows?

    python benchmarks/page_fill.py --data DIR    # DIR/json_payloads: index.jsonl.gz and one gzipped payload per line
    python benchmarks/page_fill.py               # made-up payloads

For each counter and budget the mean of tokens / budget over all pages that are followed by another one, of the plain
walk and of the walk with every field, at most 40 pages each:

by price    tokens as the guard counts them: the upper bound of its counter, which a page must not exceed
o200k       tokens of the same text by a real tokenizer; with the default counter less, because that has to hold for
            tokenizers of other models as well
per token   identifiers, states, amounts and dates (by the rules of `projection.py`) of all payloads that the first
            views spell out, per 1,000 o200k tokens of them
over        pages that cost more than their budget, by price; has to be 0

Payloads of even and of odd places in the index are two halves.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import mean

import structlog

import exact
from langchain_ctxwin.core.tokens import TokenEstimator, WholePrice
from langchain_ctxwin.tool_results.guard import ContentPrices
from langchain_ctxwin.tool_results.reading import Reader
from projection import CLASSES
from tool_results import (
    CONFIG,
    SIGNER,
    Figures,
    asked,
    count_in_sight,
    following,
    in_pages,
    made_up,
    opened,
    real,
)

BUDGETS = (300, 600, 1_000, 2_000, 4_000)
GOAL = 0.85
MOST_PAGES = 40  # of one walk: the largest payloads have thousands of pages that look alike
COUNTERS: dict[str, WholePrice] = {
    "default": ContentPrices(None).text,
    "family openai": ContentPrices(TokenEstimator("openai")).text,
    "o200k": exact.text_tokens,
}


@dataclass(kw_only=True)
class Fill:
    """The pages of one half of the payloads at one budget."""

    by_price: list[float] = field(default_factory=list)
    by_tokens: list[float] = field(default_factory=list)
    first_tokens: int = 0
    figures: Figures = field(default_factory=Figures)

    def line(self) -> str:
        over = sum(share > 1 for share in self.by_price)
        seen = sum(self.figures.seen["first", name] for name in CLASSES)
        per_token = 1e3 * seen / max(1, self.first_tokens)
        shares = (f"{mean(shares) if shares else 0:.3f}" for shares in (self.by_price, self.by_tokens))
        return (
            f"{len(self.by_price):>8,}" + "".join(f"{share:>10}" for share in shares) + f"{per_token:>11.1f}{over:>6}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with json_payloads; without it payloads are made up")
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--every", type=int, default=1, help="look at each so manieth payload only")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    payloads = [text for _, text in (real(options.data / "json_payloads") if options.data else made_up())]
    payloads = payloads[:: options.every]
    titles = f"{'pages':>8}{'by price':>10}{'o200k':>10}{'per token':>11}{'over':>6}"
    print(f"{'counter':15}{'budget':>8}  {'even half':<4}{titles}   odd half{titles}")
    for name, price in COUNTERS.items():
        for budget in options.budgets:
            halves = [filled(payloads[start::2], budget, price) for start in (0, 1)]
            print(f"{name:15}{budget:>8,}  {'':9}{halves[0].line()}{'':11}{halves[1].line()}", flush=True)
    print(f"goal: by price at least {GOAL}")


def filled(payloads: list[str], budget: int, price: Callable[[str], int]) -> Fill:
    fill = Fill()
    for text in payloads:
        if price(text) <= budget:
            continue
        content, record, _ = opened(text)
        reader = Reader("r1abcdefghij", SIGNER, price, ttl_seconds=600)
        first = reader.first(content, record, CONFIG, budget, is_stored=True)
        for walk in ([first, *islice(following(reader, first, budget), MOST_PAGES)], asked(reader, first, budget)):
            for answer in islice(walk, MOST_PAGES):
                if answer.following:
                    fill.by_price.append(price(answer.text) / budget)
                    fill.by_tokens.append(exact.text_tokens(answer.text) / budget)
        fill.first_tokens += exact.text_tokens(first.text)
        count_in_sight(fill.figures, json.loads(text), {"first": ("", in_pages([first], first.record))})
    return fill


if __name__ == "__main__":
    main()
