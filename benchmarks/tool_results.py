"""How many tokens does a large tool result cost an agent, does it see the names in it, and can all of it be read?

    python benchmarks/tool_results.py --data DIR    # DIR/json_payloads: index.jsonl.gz and one gzipped payload per line
    python benchmarks/tool_results.py               # made-up payloads

before      tokens (o200k) of the result as the service sent it
first       tokens of what the model sees at first; of a result that fits, the result
ids         share of the values under keys of identifiers that the first view spells out
all         tokens of all pages of a walk to the end with every field, when somebody wants all of it
in budget   pages, of the walk and of the walk with all fields, that take at most the budget
lossless    results of which these walks hold every row, and every character, exactly once

Beside it: the first 80,000 characters of the result, and what deepagents' file system middleware leaves of it, with its
own threshold and with the same budget as ours.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import ToolMessage

import exact
from arena_scenarios import rows
from common import parser_of, quiet, rows_of
from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.tool_results.cursors import Style
from langchain_ctxwin.tool_results.pages import Page
from langchain_ctxwin.tool_results.query import Question
from langchain_ctxwin.tool_results.showing import ResultView

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import walking  # how tests read a result to its end

BUDGETS = (1_000, 4_000)
CUT_CHARS = 80_000
PRICE = walking.PRICE
CONFIG = ToolResultConfig()
EVERYTHING = Question(fields=("*",))
IDENTIFIER = re.compile(
    r"(?:id|uuid|guid|sha|number|code|key|slug|login|node_id|email|username|symbol|sku)\Z"
    r"|.*(?:_id|[a-z]Id|ID|_code|Code|_key|_number|Number)\Z"
)
Ways = dict[str, Callable[[str], str]]
"""What else is done with large results, by name: what the model sees of each."""


def main() -> None:
    parser = parser_of(__doc__, "json_payloads; without it payloads are made up")
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument(
        "--every", type=int, default=1, help="look at each so manieth payload only"
    )
    options = parser.parse_args()
    quiet()
    found = real(options.data / "json_payloads") if options.data else made_up()
    payloads = list(found)[:: options.every]
    for budget in options.budgets:
        sources: dict[str, Counter[str]] = defaultdict(Counter)
        with tempfile.TemporaryDirectory() as folder:
            ways = other_ways(folder, budget)
            for source, text in payloads:
                sources[source].update(measured(text, budget, ways))
        report(sources, budget, ways)


def real(folder: Path) -> Iterator[tuple[str, str]]:
    for line in rows_of(folder / "index.jsonl.gz"):
        name = line["path"]
        text = gzip.decompress((folder / f"{name}.gz").read_bytes()).decode()
        yield name.split("/")[0], text


def made_up() -> Iterator[tuple[str, str]]:
    """Listings with long ids and numbers; always the same."""
    rng = random.Random(7)  # noqa: S311  # data, not secrets
    for tokens in (2_000, 10_000, 50_000):
        yield "rows", rows(rng, tokens)


# ---- measuring -------------------------------------------------------------------------------------------------------


def measured(text: str, budget: int, ways: Ways) -> Counter[str]:
    """What one result adds to the figures of its source."""
    before, wanted = exact.text_tokens(text), set(identifiers(json.loads(text)))
    found = Counter(results=1, before=before, ids=len(wanted))
    shown = {name: way(text) for name, way in ways.items()}
    if PRICE(text) <= budget:
        shown["first"] = text
        found.update(all=before, lossless=1)
    else:
        first = walking.first_of(text, budget, CONFIG)
        shown["first"] = first.text
        walked = walking.answers(text, budget)
        whole = walking.answers(text, budget, EVERYTHING)
        sizes = [exact.text_tokens(answer.text) for answer in [*walked, *whole]]
        found.update(
            large=1,
            all=sum(sizes[len(walked) :]),
            pages=len(sizes),
            in_budget=sum(size <= budget for size in sizes),
            lossless=holds_all(walked, first.view.style) and holds_all(whole, Style()),
        )
    for way, page in shown.items():
        found[way] = exact.text_tokens(page)
        found[f"ids, {way}"] = sum(is_spelled(value, page) for value in wanted)
    return found


def identifiers(value: Any, key: str = "") -> Iterator[str]:
    """The texts and numbers under keys of identifiers, without addresses."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from identifiers(child, name)
    elif isinstance(value, list):
        for item in value:
            yield from identifiers(item, key)
    elif IDENTIFIER.match(key) and value and not isinstance(value, bool):
        text = str(value)
        if "://" not in text:
            yield text


def is_spelled(value: str, page: str) -> bool:
    return value in page or json.dumps(value, ensure_ascii=False)[1:-1] in page


def holds_all(pages: list[Page], style: Style) -> bool:
    """Say whether pages hold every entry once: whole ones in order, and all characters of those shown in parts."""
    view = ResultView(pages[0].view.layout, style)
    if view.layout.is_text:
        text = "".join(page.body for page in pages) + pages[0].end
        return text == view.layout.entries[0]
    try:
        return walking.entries_in(view, pages) == list(range(len(view)))
    except AssertionError:
        return False


# ---- what else is done with large results ---------------------------------------------------------------------------


def other_ways(folder: str, budget: int) -> Ways:
    """A cut, and the file system middleware of deepagents, where it is installed, at its own threshold and at ours."""
    ways: Ways = {f"{CUT_CHARS:,} characters": lambda text: text[:CUT_CHARS]}
    try:
        from deepagents.backends import FilesystemBackend
        from deepagents.middleware import FilesystemMiddleware
    except ImportError:
        return ways
    backend = FilesystemBackend(root_dir=folder, virtual_mode=True)
    same = FilesystemMiddleware(backend=backend, tool_token_limit_before_evict=budget)
    return ways | {
        "deepagents": _evicted_by(FilesystemMiddleware(backend=backend)),
        "deepagents, same budget": _evicted_by(same),
    }


def _evicted_by(middleware: Any) -> Callable[[str], str]:
    numbers = itertools.count()

    def evicted(text: str) -> str:
        call = {
            "name": "fetch",
            "args": {},
            "id": f"call_{id(numbers)}_{next(numbers)}",
        }
        request = SimpleNamespace(
            tool_call=call, state={"messages": []}, runtime=None, tool=None
        )
        return middleware.wrap_tool_call(
            request, lambda _: ToolMessage(text, tool_call_id=call["id"])
        ).text

    return evicted


# ---- the report -----------------------------------------------------------------------------------------------------


def report(sources: dict[str, Counter[str]], budget: int, ways: Ways) -> None:
    total = sum(sources.values(), Counter[str]())
    print(f"\nbudget {budget:,} tokens")
    print(
        f"{'':26}{'results':>8}{'large':>6}{'before':>11}{'first':>9}{'less':>7}{'ids':>8}{'all':>11}"
        f"{'pages':>7}{'in budget':>10}{'lossless':>9}"
    )
    for source, one in {**sources, "total": total}.items():
        print(
            f"{source:26}{one['results']:>8}{one['large']:>6}{one['before']:>11,}{seen(one, 'first', 9)}"
            f"{one['all']:>11,}{one['pages']:>7,}{one['in_budget']:>10,}{one['lossless']:>9}"
        )
    goals = f"{total['pages']:>10,}{total['results']:>9}"
    print(f"{'goals':26}{'':67}{goals}")
    print(f"\n{'beside it, all results':26}{'tokens':>11}{'less':>7}{'ids':>8}")
    for way in ("first", *ways):
        print(f"{way:26}{seen(total, way, 11)}")


def seen(figures: Counter[str], way: str, width: int) -> str:
    """Tokens, what they are less, and identifiers in sight."""
    less = 1 - figures[way] / figures["before"]
    ids = figures[f"ids, {way}"] / max(1, figures["ids"])
    return f"{figures[way]:>{width},}{less:>7.1%}{ids:>8.1%}"


if __name__ == "__main__":
    main()
