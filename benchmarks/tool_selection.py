"""Are the tools that a request needs among those that fit, beside plain BM25?

    python benchmarks/tool_selection.py --data DIR      # DIR/tool_selection

A query counts when all of its tools are chosen. A definition costs the tokens of its compact JSON, counted exactly.
The baseline is BM25 with its usual parameters over names, descriptions and parameters, stemmed, filled in its order.
Parameters were chosen on the queries whose id hashes to an even byte; the figures are those of the others ("held out").
Queries for several servers: what stands before the first `/` of a gold tool differs; without servers, several tools.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from langchain_core.messages import AnyMessage

import exact
from common import goals, parser_of, rows_of
from langchain_ctxwin.text import TermIndex, query_terms, terms
from langchain_ctxwin.tools import ToolSelector
from sufficiency import half_of

BUDGETS = (4_000, 2_000, 1_000)
GOALS = {"stabletoolbench": (0.83, 3), "bfcl_pooled": (0.90, 6), "metatool": (0.90, 15)}
"""At the first budget: the share of all queries, and the points gained on queries for several servers."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One query, and the tools that serve it."""

    text: str
    gold: frozenset[str]

    @property
    def is_spread(self) -> bool:
        return len({name.split("/")[0] for name in self.gold}) > 1


def main() -> None:
    parser = parser_of(__doc__, "tool_selection", needs_data=True)
    parser.add_argument("--limit", type=int, help="queries of a collection, at most")
    options = parser.parse_args()
    print("\nAll tools of a query among those that fit (words alone; held-out queries)")
    print(
        f"{'':17}{'tokens':>7}{'queries':>9}{'BM25':>8}{'ours':>8}"
        f"{'several':>10}{'BM25':>8}{'ours':>8}{'points':>8}"
    )
    found: list[tuple[bool, str]] = []
    for name, (least, gain) in GOALS.items():
        tools, cases = read(options.data / "tool_selection", name)
        cases = cases[: options.limit]
        for tokens in BUDGETS:
            selector = ToolSelector(tools.values(), tokens, counter=json_tokens)
            plain = PlainBm25(tools, tokens)
            share, points = measured(f"{name:17}{tokens:>7,}", cases, selector, plain)
            if tokens == BUDGETS[0]:
                found += [
                    (share >= least, f"{name} {share:.3f}: at least {least:.2f}"),
                    (points >= gain, f"{name} {points:+.1f} points: at least {gain}"),
                ]
    goals(found)


def measured(
    title: str, cases: Sequence[Case], selector: ToolSelector, plain: PlainBm25
) -> tuple[float, float]:
    """Print a row; return the share of the queries that are served, and the points gained where several servers are."""
    ours = [case.gold <= set(selector.select(case.text).names) for case in cases]
    theirs = [case.gold <= plain.chosen(case.text) for case in cases]
    spread = [at for at, case in enumerate(cases) if case.is_spread]
    counted = spread or range(len(cases))
    mine, other = (mean(found[at] for at in counted) for found in (ours, theirs))
    share, points = mean(ours), (mine - other) * 100
    print(
        f"{title}{len(cases):>9,}{mean(theirs):>8.3f}{share:>8.3f}"
        f"{len(spread):>10}{other:>8.3f}{mine:>8.3f}{points:>+8.1f}"
    )
    return share, points


class PlainBm25:
    """What everybody would try first."""

    def __init__(self, tools: dict[str, dict[str, Any]], tokens: int) -> None:
        self._names = list(tools)
        self._tokens = tokens
        self._prices = [json_tokens([], tools=[tool]) for tool in tools.values()]
        texts = [terms(plain_text(tool["function"])) for tool in tools.values()]
        self._index = TermIndex(
            [Counter(text) for text in texts], saturation=1.5, length_share=0.75
        )

    def chosen(self, query: str) -> set[str]:
        scores = self._index.scores(dict.fromkeys(query_terms(query), 1.0))
        left, chosen = self._tokens, set()
        for index in sorted(range(len(scores)), key=lambda at: -scores[at]):
            left -= self._prices[index]
            if left < 0:
                break
            chosen.add(self._names[index])
        return chosen


def plain_text(function: dict[str, Any]) -> str:
    fields = (function.get("parameters") or {}).get("properties") or {}
    told = [
        part.get("description", "")
        for part in fields.values()
        if isinstance(part, dict)
    ]
    return " ".join(
        map(str, [function["name"], function.get("description", ""), *fields, *told])
    )


def json_tokens(
    _messages: Sequence[AnyMessage], *, tools: Sequence[dict[str, Any]] | None = None
) -> int:
    """A counter of tools alone: the compact JSON of each function."""
    shown = (
        json.dumps(tool["function"], separators=(",", ":"), ensure_ascii=False)
        for tool in tools or ()
    )
    return sum(map(exact.text_tokens, shown))


def read(folder: Path, name: str) -> tuple[dict[str, dict[str, Any]], list[Case]]:
    """The tools of a collection by name, and the queries that were held out."""
    found = next(rows_of(folder / f"{name}.tools.json.gz"))["tools"]
    tools = {
        key: {**tool, "function": {**tool["function"], "name": key}}
        for key, tool in found.items()
    }
    cases = [
        Case(text=row["query"], gold=frozenset(row["gold"]))
        for row in rows_of(folder / f"{name}.queries.jsonl.gz")
        if half_of(row["id"]) == "b"
    ]
    return tools, cases


if __name__ == "__main__":
    main()
