"""Are the tools that a request needs among those that fit, beside plain BM25, and how often does the set change?

    python benchmarks/tool_selection.py --data DIR      # DIR/tool_selection

A query counts when all of its tools are chosen. A definition costs the tokens of its compact JSON, counted exactly.
The baseline is BM25 with its usual parameters over names, descriptions and parameters, stemmed, filled in its order;
in the second column it buys as many tokens as ours did and passes over what is too dear. Filled: of the room, by ours.
Parameters were chosen on the queries whose id hashes to an even byte; the figures are those of the others ("held out").
With search: the set after one call of `search_tools` with the query itself, which loads five tools at most.
Second: the query follows another one, whose set is loaded; changed is the share of queries that change this set.
Queries for several servers: what stands before the first `/` of a gold tool differs; without servers, several tools.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

import exact
from common import parser_of, rows_of
from langchain_ctxwin.text import TermIndex, query_terms, terms
from langchain_ctxwin.tools import ToolSelector

COLLECTIONS = ("stabletoolbench", "bfcl_pooled", "metatool")
BUDGETS = (4_000, 2_000, 1_000)
GOALS = {
    ("stabletoolbench", 4_000): (0.83, 3),
    ("bfcl_pooled", 4_000): (0.90, 6),
    ("metatool", 4_000): (0.90, 15),
}
"""The share of all queries, and the points gained on queries for several servers."""


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
        f"{'':17}{'tokens':>7}{'queries':>9}{'BM25':>8}{'as dear':>9}{'ours':>8}{'filled':>8}{'goal':>7}{'+search':>9}",
        f"{'second':>7}{'changed':>9}",
        end="",
    )
    print(
        f"{'several':>10}{'BM25':>8}{'ours':>8}{'points':>8}{'goal':>6}{'CPU ms':>8}{'p95':>7}"
    )
    for name in COLLECTIONS:
        tools, cases = read(options.data / "tool_selection", name)
        cases = cases[: options.limit]
        half = len(cases) // 2
        others = [*cases[half:], *cases[:half]]
        for tokens in BUDGETS:
            selector = ToolSelector(tools.values(), tokens, counter=json_tokens)
            plain = PlainBm25(tools, tokens)
            selector.select(cases[0].text)  # builds the index
            rows = [
                measured(case, other, selector, plain)
                for case, other in zip(cases, others, strict=True)
            ]
            print(line(name, tokens, rows))


def measured(
    case: Case, other: Case, selector: ToolSelector, plain: PlainBm25
) -> SimpleNamespace:
    began = time.process_time()
    chosen = selector.select(case.text)
    spent = time.process_time() - began
    state = {"context_tools": list(chosen.names)}
    shown, names = selector.search_tools.func(
        case.text, runtime=SimpleNamespace(state=state)
    )
    call = {"name": "search_tools", "args": {}, "id": "search"}
    asked = [
        HumanMessage(case.text),
        AIMessage("", tool_calls=[call]),
        ToolMessage(shown, artifact=names, tool_call_id="search"),
    ]
    after = selector.select(asked, previous=chosen.names)
    turns = [HumanMessage(other.text), AIMessage("Done."), HumanMessage(case.text)]
    second = selector.select(turns, previous=selector.select(other.text).names)
    return SimpleNamespace(
        plain=case.gold <= plain.chosen(case.text),
        as_dear=case.gold <= plain.bought(case.text, chosen.tokens),
        filled=chosen.tokens / selector.max_tool_tokens,
        ours=case.gold <= set(chosen.names),
        searched=case.gold <= set(after.names),
        second=case.gold <= set(second.names),
        changed=bool(second.added or second.removed),
        is_spread=case.is_spread,
        ms=spent * 1_000,
    )


def line(name: str, tokens: int, rows: Sequence[SimpleNamespace]) -> str:
    spread = [row for row in rows if row.is_spread]
    goal, points = GOALS.get((name, tokens), ("", ""))
    ours, plain = (
        mean(row.ours for row in spread or rows),
        mean(row.plain for row in spread or rows),
    )
    times = sorted(row.ms for row in rows)
    return (
        f"{name:17}{tokens:>7,}{len(rows):>9,}{mean(r.plain for r in rows):>8.3f}{mean(r.as_dear for r in rows):>9.3f}"
        f"{mean(r.ours for r in rows):>8.3f}{mean(r.filled for r in rows):>8.3f}"
        f"{goal:>7}{mean(r.searched for r in rows):>9.3f}{mean(r.second for r in rows):>8.3f}"
        f"{mean(r.changed for r in rows):>9.2f}{len(spread):>10}{plain:>8.3f}{ours:>8.3f}"
        f"{(ours - plain) * 100:>+8.1f}{points:>6}{median(times):>8.2f}{times[int(0.95 * len(times))]:>7.2f}"
    )


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
        left, chosen = self._tokens, set()
        for index in self._order(query):
            left -= self._prices[index]
            if left < 0:
                break
            chosen.add(self._names[index])
        return chosen

    def bought(self, query: str, tokens: int) -> set[str]:
        """As many tokens as somebody else took, without those that are too dear for what is left."""
        chosen = set()
        for index in self._order(query):
            if self._prices[index] <= tokens:
                tokens -= self._prices[index]
                chosen.add(self._names[index])
        return chosen

    def _order(self, query: str) -> Sequence[int]:
        scores = self._index.scores(dict.fromkeys(query_terms(query), 1.0))
        return sorted(range(len(self._names)), key=lambda index: -scores[index])


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
        if is_held_out(row["id"])
    ]
    return tools, cases


def is_held_out(identifier: str) -> bool:
    return hashlib.sha256(identifier.encode()).digest()[0] % 2 == 1


if __name__ == "__main__":
    main()
