"""How many tokens does a large tool result cost an agent, is what it needs in sight, and can all of it be read?

    python benchmarks/tool_results.py --data DIR    # DIR/json_payloads: index.jsonl.gz and one gzipped payload per line
    python benchmarks/tool_results.py               # made-up payloads

before      tokens (o200k) of the result as the service sent it
first       tokens of what the model sees at first; of a result that fits, the result
all         tokens of all pages of a walk to the end with every field, when somebody wants all of it
in budget   pages, of the walk and of the walk with all fields, that take at most the budget
lossless    results of which these walks hold every row, and every character, exactly once
in sight    identifiers, states, amounts and dates that the first view spells out, by the rules below, which are not
            those by which fields are chosen; "paged" counts those on all pages of the plain walk

Beside it: the first 80,000 characters of the result, and what deepagents' file system middleware leaves of it, with its
own threshold and with the same budget as ours.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import logging
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog
from langchain_core.messages import ToolMessage

import exact
from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.tool_results.contents import Content, content_of
from langchain_ctxwin.tool_results.cursors import (
    Cursor,
    CursorSigner,
    ResultRecord,
    Style,
)
from langchain_ctxwin.tool_results.guard import ContentPrices
from langchain_ctxwin.tool_results.pages import Page, PagePlace
from langchain_ctxwin.tool_results.query import Question
from langchain_ctxwin.tool_results.reading import NotedPage, Reader
from langchain_ctxwin.tool_results.showing import ResultView, inside_text

BUDGETS = (1_000, 4_000)
MS_GOAL = 10.0
RUNS = 3
PRICE = ContentPrices(None).text
CONFIG = ToolResultConfig()
SIGNER = CursorSigner("a key of the benchmark")
EVERYTHING = Question(fields=("*",))
Leaf = tuple[str, str]
"""A key and the value under it as text."""

IDENTIFIER = re.compile(
    r"(?:id|uuid|guid|sha|number|code|key|slug|login|node_id|email|username|symbol|sku)\Z"
    r"|.*(?:_id|[a-z]Id|ID|_code|Code|_key|_number|Number)\Z"
)
STATE = re.compile(
    r"(?:state|status|type|kind|conclusion|visibility|category|severity|priority|phase|stage|role|currency|active"
    r"|archived|draft|locked|enabled|disabled|private)\Z|.*(?:_status|Status|_state|State|_type|Type)\Z"
)
AMOUNT = re.compile(
    r"(?:^|[_\s])(?:price|amount|total|cost|count|fee|tax|balance|quantity|gross|budget|sales|votes|rate|rating|score"
    r"|size|percent)s?(?:[_\s]|\Z)"
)
DATE = re.compile(
    r"(?i:date|time|timestamp|year)\Z|.*(?:_at|_on|_date|_time|\sDate|[a-z]Date|[a-z]On|[a-z]At|[a-z]Time)\Z"
)
ISO = re.compile(r"\d{4}-\d\d-\d\d")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
CLASSES = ("identifiers", "states", "amounts", "dates")

WORD = re.compile(r"[^\s|,;:(){}\[\]\"]+")


@dataclass(kw_only=True)
class Figures:
    """What the results of one source add up to at one budget."""

    results: int = 0
    large: int = 0
    before: int = 0
    first: int = 0
    all_pages: int = 0
    pages: int = 0
    in_budget: int = 0
    lossless: int = 0
    chars: int = 0
    seconds: float = 0.0
    wanted: Counter[str] = field(default_factory=Counter)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        for name in self.__dataclass_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, name, mine + theirs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with json_payloads; without it payloads are made up",
    )
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument(
        "--every", type=int, default=1, help="look at each so manieth payload only"
    )
    options = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    began = time.perf_counter()
    payloads = list(
        real(options.data / "json_payloads") if options.data else made_up()
    )[:: options.every]
    for budget in options.budgets:
        with other_ways(budget) as ways:
            sources: dict[str, Figures] = defaultdict(Figures)
            for source, text in payloads:
                sources[source].add(measured(text, budget, ways))
        report(sources, budget)
    if "deepagents" not in ways:
        print("\ndeepagents is not installed: its columns are empty")
    print(f"{time.perf_counter() - began:.0f} seconds")


def real(folder: Path) -> Iterator[tuple[str, str]]:
    for line in (
        gzip.decompress((folder / "index.jsonl.gz").read_bytes()).decode().splitlines()
    ):
        name = json.loads(line)["path"]
        yield (
            name.split("/")[0],
            gzip.decompress((folder / f"{name}.gz").read_bytes()).decode(),
        )


def made_up() -> Iterator[tuple[str, str]]:
    """Listings as an issue tracker, a database and a shop return them, and one large document; always the same."""
    rng = random.Random(7)  # noqa: S311  # data, not secrets
    words = [
        "error",
        "login",
        "page",
        "slow",
        "table",
        "price",
        "room",
        "guest",
        "order",
        "failed",
        "again",
        "after",
    ]

    def prose(count: int) -> str:
        return " ".join(rng.choices(words, k=count)).capitalize() + "."

    for count in (20, 100, 500):
        issues = [
            {"id": rng.getrandbits(40), "number": at, "state": rng.choice(["open", "closed"]), "title": prose(6),
             "url": f"https://tracker.example/issues/{at}", "user": {"login": rng.choice(words), "id": at % 9,
             "avatar_url": f"https://tracker.example/{at}.png"}, "created_at": f"2024-05-{at % 28 + 1:02}T10:00:00Z",
             "body": prose(80), "locked": False, "comments": at % 5}
            for at in range(count)
        ]  # fmt: skip
        yield "issues", json.dumps({"total_count": count, "items": issues})
        yield (
            "sql",
            json.dumps(
                [
                    [at, rng.choice(words), rng.random() * 100, None]
                    for at in range(count * 5)
                ]
            ),
        )
        products = [{"sku": f"SKU-{at}", "name": prose(3), "price": {"amount": at * 1.5, "currency": "EUR"}}
                    for at in range(count)]  # fmt: skip
        yield (
            "shop",
            json.dumps({"products": products, "page": 1, "has_more": True}, indent=2),
        )
    yield (
        "document",
        json.dumps(
            {
                "id": "doc-1",
                "title": "Notes",
                "text": "\n".join(prose(40) for _ in range(900)),
            }
        ),
    )


# --------------------------------------------------------------------------------------------------------- measuring


def measured(text: str, budget: int, ways: Ways) -> Figures:
    value, before = json.loads(text), exact.text_tokens(text)
    figures = Figures(results=1, before=before)
    if PRICE(text) <= budget:
        figures.first = figures.all_pages = before
        figures.lossless = 1
        whole_value = Counter(leaf_of(*leaf) for leaf in leaves(value))
        shown = {"first": ("", whole_value), "paged": ("", whole_value)}
    else:
        content, record, reader = opened(text)
        first, figures.seconds = fastest(
            lambda: reader.first(content, record, CONFIG, budget, is_stored=True)
        )
        walked, whole = (
            [first, *following(reader, first, budget)],
            list(asked(reader, first, budget)),
        )
        figures.large, figures.chars, figures.first = (
            1,
            len(text),
            exact.text_tokens(first.text),
        )
        figures.all_pages = sum(exact.text_tokens(answer.text) for answer in whole)
        figures.pages = len(walked) + len(whole)
        figures.in_budget = sum(
            exact.text_tokens(answer.text) <= budget for answer in [*walked, *whole]
        )
        style = first.record
        shown = {
            "first": ("", in_pages([first], style)),
            "paged": ("", in_pages(walked, style)),
        }
        figures.lossless = int(holds_all(walked, style) and holds_all(whole, Style()))
    others = {name: way(text) for name, way in ways.items()}
    figures.others.update(
        {name: exact.text_tokens(other) for name, other in others.items()}
    )
    count_in_sight(
        figures,
        value,
        {**shown, **{name: (other, in_text(other)) for name, other in others.items()}},
    )
    return figures


def opened(text: str) -> tuple[Content, ResultRecord, Reader]:
    content = content_of(text)
    record = ResultRecord(
        tool="fetch",
        args_digest="digest",
        thread="one",
        text=content.text,
    )
    return content, record, Reader("r1abcdefghij", SIGNER, PRICE, ttl_seconds=600)


def fastest(work: Callable[[], NotedPage]) -> tuple[NotedPage, float]:
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - start)
    return answer, min(seconds)


def following(
    reader: Reader, answer: NotedPage, budget: int, question: Question | None = None
) -> Iterator[NotedPage]:
    while answer.following:
        place = reader.place(answer.record, answer.following)
        answer = reader.answer(answer.record, place, question or Question(), budget)
        yield answer


def asked(reader: Reader, first: NotedPage, budget: int) -> Iterator[NotedPage]:
    """The walk with all fields, from the cursor that every first view has."""
    end = SIGNER.sign(
        Cursor(
            "fetch",
            "digest",
            "one",
            "r1abcdefghij",
            PagePlace(entry=len(first.layout)).offset,
        )
    )
    answer = reader.answer(
        first.record, reader.place(first.record, end), EVERYTHING, budget
    )
    yield answer
    yield from following(reader, answer, budget, EVERYTHING)


def holds_all(answers: list[NotedPage], style: Style) -> bool:
    """Say whether pages hold every entry once: whole ones in order, and all characters of those shown in parts."""
    view = ResultView(answers[0].layout, style)
    if view.layout.is_text:
        return (
            "".join(answer.page.body for answer in answers) + answers[0].page.end
            == view.layout.beside
        )
    found, read = [], 0
    for answer in answers:
        rest, part = answer.page.body, partial(answer.page)
        whole = range(
            answer.page.start.entry, answer.page.stop if part is None else part
        )
        text = "\n".join(lines(view, whole))
        if not rest.startswith(text) or (part is None and rest != text):
            return False
        found.extend(whole)
        if part is None:
            continue
        inside = inside_text(view.value(part), view.layout.path_of(part))
        rest = rest[len(text) :].removeprefix("\n" if whole else "")
        if rest != inside[read : read + len(rest)]:
            return False
        is_done = answer.page.next is None or not answer.page.next.char
        read = 0 if is_done else read + len(rest)
        found.extend([part] * is_done)
    return found == list(range(len(view)))


def lines(view: ResultView, whole: range) -> list[str]:
    """What is printed of whole entries: nothing of fields that are left out, at least an empty line of a row."""
    first_row = view.layout.head
    texts = view.printed(whole).value if whole else ()
    return [
        text
        for index, text in zip(whole, texts, strict=True)
        if text or index >= first_row
    ]


def partial(page: Page) -> int | None:
    """The entry of which a page holds a part, or all in parts."""
    if page.next is not None and page.next.char:
        return page.next.entry
    return page.stop - 1 if page.inside else None


def in_pages(answers: list[NotedPage], style: Style) -> Counter[Leaf]:
    """The values that pages show: those of what is left of their entries, if the pages spell them out."""
    view, text = (
        ResultView(answers[0].layout, style),
        "\n".join(answer.text for answer in answers),
    )
    if view.layout.is_text:
        return in_text(text)
    stops = [
        page.next.entry + bool(page.next.char) if page.next else page.stop
        for page in (a.page for a in answers)
    ]
    kept = Counter(
        leaf_of(place, leaf)
        for index in range(max(stops))
        for place, leaf in leaves(view.value(index))
    )
    words = in_text(text)
    return Counter(
        {
            leaf: number
            for leaf, number in kept.items()
            if words["", leaf[1]] or is_spelled(leaf[1], text)
        }
    )


def in_text(text: str) -> Counter[Leaf]:
    """The words of a text that says nothing of their keys."""
    return Counter(("", word) for word in WORD.findall(text))


def is_spelled(leaf: str, text: str) -> bool:
    return leaf in text or json.dumps(leaf, ensure_ascii=False)[1:-1] in text


def count_in_sight(
    figures: Figures, value: Any, shown: dict[str, tuple[str, Counter[Leaf]]]
) -> None:
    """Count the values that are there; equal ones under equal keys as often as they are there."""
    wanted = Counter(
        (name, leaf_of(place, leaf))
        for place, leaf in leaves(value)
        for name in classes(place, leaf)
    )
    for (name, leaf), number in wanted.items():
        figures.wanted[name] += number
        for way, (text, found) in shown.items():
            figures.seen[way, name] += min(
                number, found[leaf] or found["", leaf[1]] or times(leaf[1], text)
            )


def times(leaf: str, text: str) -> int:
    """How often a text of several words stands in a page whose values are not known."""
    return (
        0
        if WORD.fullmatch(leaf)
        else text.count(json.dumps(leaf, ensure_ascii=False)[1:-1])
    )


def leaf_of(place: tuple[str | int, ...], leaf: Any) -> Leaf:
    return last_key(place), spelled(leaf)


# ---- the values that count ------------------------------------------------------------------------------------------


def leaves(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, (*place, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from leaves(item, (*place, at))
    else:
        yield place, value


def spelled(leaf: Any) -> str:
    return leaf if isinstance(leaf, str) else json.dumps(leaf)


def last_key(place: tuple[str | int, ...]) -> str:
    return next((step for step in reversed(place) if isinstance(step, str)), "")


def classes(place: tuple[str | int, ...], leaf: Any) -> Iterator[str]:
    if leaf is None or leaf == "" or (isinstance(leaf, str) and "://" in leaf):
        return
    key = last_key(place)
    is_text, is_number = (
        isinstance(leaf, str),
        isinstance(leaf, int | float) and not isinstance(leaf, bool),
    )
    if (is_text or is_number) and IDENTIFIER.match(key):
        yield "identifiers"
    if (is_text or isinstance(leaf, bool)) and STATE.match(key):
        yield "states"
    if (is_number or (is_text and NUMBER.match(leaf))) and AMOUNT.search(words(key)):
        yield "amounts"
    if (is_text and ISO.match(leaf)) or ((is_text or is_number) and DATE.match(key)):
        yield "dates"


def words(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key).lower()


# ---- what else is done with large results ---------------------------------------------------------------------------

CUT_CHARS = 80_000
Ways = dict[str, Callable[[str], str]]


@contextmanager
def other_ways(budget: int) -> Iterator[Ways]:
    """Yield the other ways by name; each takes a result and returns what the model sees of it."""
    ways: Ways = {f"{CUT_CHARS:,} characters": lambda text: text[:CUT_CHARS]}
    with tempfile.TemporaryDirectory() as folder:
        yield ways | _evictions(folder, budget)


def _evictions(folder: str, budget: int) -> Ways:
    """The file system middleware of deepagents with its own threshold, and with ours; nothing where it is missing."""
    try:
        from deepagents.backends import FilesystemBackend
        from deepagents.middleware import FilesystemMiddleware
    except ImportError:
        return {}
    backend = FilesystemBackend(root_dir=folder, virtual_mode=True)
    return {
        "deepagents": _evicted_by(FilesystemMiddleware(backend=backend)),
        "deepagents, same budget": _evicted_by(
            FilesystemMiddleware(backend=backend, tool_token_limit_before_evict=budget)
        ),
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


def report(sources: dict[str, Figures], budget: int) -> None:
    total = Figures()
    for figures in sources.values():
        total.add(figures)
    rows = {**sources, "total": total}
    print(f"\nbudget {budget:,} tokens")
    titles = [
        ("results", 8),
        ("large", 6),
        ("before", 11),
        ("first", 9),
        ("less", 7),
        ("all", 11),
        ("pages", 7),
    ]
    titles += [("in budget", 10), ("lossless", 9), *((name, 13) for name in CLASSES)]
    titles += [("together", 10), ("paged", 8), ("ms/100 KB", 11), ("ms each", 9)]
    print(" " * 26 + "".join(f"{title:>{width}}" for title, width in titles))
    for source, one in rows.items():
        print(
            f"{source:26}{one.results:>8}{one.large:>6}{one.before:>11,}{one.first:>9,}",
            end="",
        )
        print(
            f"{1 - one.first / one.before:>7.1%}{one.all_pages:>11,}{one.pages:>7,}{one.in_budget:>10,}",
            end="",
        )
        print(
            f"{one.lossless:>9}"
            + "".join(f"{in_sight(one, 'first', (name,)):>13}" for name in CLASSES),
            end="",
        )
        print(
            f"{in_sight(one, 'first', CLASSES):>10}{in_sight(one, 'paged', CLASSES):>8}{milliseconds(one)}"
        )
    print(
        f"{'goals':26}{'':59}{total.pages:>10,}{total.results:>9}{'':70}{MS_GOAL:>11.1f}"
    )
    print(
        f"\n{'beside it, all results':26}{'tokens':>11}{'less':>7}"
        + "".join(f"{name:>13}" for name in CLASSES)
    )
    for way, tokens in (("first view", total.first), *total.others.items()):
        name = "first" if way == "first view" else way
        print(f"{way:26}{tokens:>11,}{1 - tokens / total.before:>7.1%}", end="")
        print("".join(f"{in_sight(total, name, (kind,)):>13}" for kind in CLASSES))


def in_sight(figures: Figures, way: str, names: tuple[str, ...]) -> str:
    wanted = sum(figures.wanted[name] for name in names)
    return (
        f"{sum(figures.seen[way, name] for name in names) / wanted:.1%}"
        if wanted
        else "-"
    )


def milliseconds(figures: Figures) -> str:
    if not figures.large:
        return f"{'-':>11}{'-':>9}"
    return f"{figures.seconds * 1e3 / (figures.chars / 1e5):>11.1f}{figures.seconds * 1e3 / figures.large:>9.1f}"


if __name__ == "__main__":
    main()
