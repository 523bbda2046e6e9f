"""How much smaller is a JSON result as an agent is shown it, and is what it needs still there?

    python benchmarks/projection.py --data DIR     # DIR/json_payloads: index.jsonl.gz and one gzipped payload per line

What must still be there is found by the rules below. They look at the original alone, they were written for this
table, and they share nothing with the rules by which fields are chosen:

    identifiers  texts and numbers under id, uuid, guid, sha, number, code, key, slug, login, node_id, email, username,
                 symbol, sku, and keys that end in _id, Id, ID, _code, Code, _key, _number, Number
    states       texts and booleans under state, status, type, kind, conclusion, visibility, category, severity,
                 priority, phase, stage, role, currency, active, archived, draft, locked, enabled, disabled, private,
                 and keys that end in _status, Status, _state, State, _type, Type
    amounts      numbers, and texts that are numbers, under a key with one of the words price, amount, total, cost,
                 count, fee, tax, balance, quantity, gross, budget, sales, votes, rate, rating, score, size, percent
    dates        texts that begin like 2024-05-31, texts and numbers under date, time, timestamp, year, and keys that
                 end in _at, _on, _date, Date, On, At, _time, Time

A value counts as there when the projection holds it unchanged at the same place and the printed text spells it out.
Nulls, empty texts and addresses (`https://...`) are of no class. Tokens before: `json.dumps` with its defaults.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import exact
from langchain_ctxwin.tool_results.cursors import Style
from langchain_ctxwin.tool_results.showing import print_rows, print_value, project_automatically

REDUCTION_GOAL, THERE_GOAL, MS_GOAL = 0.70, 0.95, 5.0
TEXT_CHARS = 160  # the shortest length to which the texts of a large result are cut
STYLE = Style(text_chars=TEXT_CHARS, extraction=False)
RUNS = 5

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
Leaf = tuple[tuple[str | int, ...], Any]


@dataclass(kw_only=True)
class Figures:
    """What the payloads of one source add up to."""

    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    lossless: list[int] = field(default_factory=list)
    wanted: Counter[str] = field(default_factory=Counter)
    there: Counter[str] = field(default_factory=Counter)
    chars: int = 0
    seconds: float = 0.0

    def add(self, other: Figures) -> None:
        for mine, theirs in ((self.before, other.before), (self.after, other.after), (self.lossless, other.lossless)):
            mine.extend(theirs)
        self.wanted.update(other.wanted)
        self.there.update(other.there)
        self.chars += other.chars
        self.seconds += other.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data / "json_payloads"
    sources: dict[str, Figures] = defaultdict(Figures)
    lost: Counter[str] = Counter()
    for name in names(folder):
        text = gzip.decompress((folder / f"{name}.gz").read_bytes()).decode()
        sources[name.split("/")[0]].add(measured(text, lost))
    total = Figures()
    for figures in sources.values():
        total.add(figures)
    report({**sources, "total": total}, lost)


def names(folder: Path) -> list[str]:
    lines = gzip.decompress((folder / "index.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line)["path"] for line in lines]


def measured(text: str, lost: Counter[str]) -> Figures:
    value, seconds, shown = json.loads(text), [], None
    for _ in range(RUNS):
        start = time.perf_counter()
        shown = project_automatically(value, STYLE).value
        printed = as_text(shown)
        seconds.append(time.perf_counter() - start)
    figures = Figures(
        before=[exact.text_tokens(json.dumps(value))],
        after=[exact.text_tokens(printed)],
        lossless=[exact.text_tokens(as_text(value))],
        chars=len(text),
        seconds=min(seconds),
    )
    kept = Counter((place, spelled(leaf)) for place, leaf in leaves(shown))
    for place, leaf in leaves(value):
        for name in classes(place, leaf):
            figures.wanted[name] += 1
            is_there = kept[place, spelled(leaf)] > 0 and (spelled(leaf) in printed or json.dumps(leaf) in printed)
            figures.there[name] += is_there
            if not is_there:
                lost[f"{name} {last_key(place)}"] += 1
    return figures


def as_text(value: Any) -> str:
    if not isinstance(value, list):
        return print_value(value)
    header, lines = print_rows(value)
    return "\n".join((header, *lines))


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
    is_text, is_number = isinstance(leaf, str), isinstance(leaf, int | float) and not isinstance(leaf, bool)
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


def report(rows: dict[str, Figures], lost: Counter[str]) -> None:
    print(f"{'':26}{'payloads':>9}{'before':>11}{'after':>9}{'mean':>8}{'weighted':>10}{'lossless':>10}", end="")
    print("".join(f"{name:>13}" for name in CLASSES) + f"{'together':>10}{'ms/100 KB':>11}")
    for source, figures in rows.items():
        reductions = [1 - after / before for before, after in zip(figures.before, figures.after, strict=True)]
        print(f"{source:26}{len(reductions):>9}{sum(figures.before):>11,}{sum(figures.after):>9,}", end="")
        print(f"{mean(reductions):>8.1%}{share_less(figures.before, figures.after):>10.1%}", end="")
        print(f"{share_less(figures.before, figures.lossless):>10.1%}", end="")
        print("".join(f"{there(figures, (name,)):>13}" for name in CLASSES), end="")
        print(f"{there(figures, CLASSES):>10}{figures.seconds * 1e3 / (figures.chars / 1e5):>11.1f}")
    print(f"{'goals':26}{'':29}{REDUCTION_GOAL:>8.0%}{REDUCTION_GOAL:>10.0%}{'':62}{THERE_GOAL:>10.0%}{MS_GOAL:>11}")
    print("\nnot there most often: " + ", ".join(f"{name} {number}" for name, number in lost.most_common(12)))
    print(
        f"texts over {TEXT_CHARS} characters are cut to their beginning; lossless: printed without leaving out anything"
    )


def share_less(before: list[int], after: list[int]) -> float:
    return 1 - sum(after) / sum(before)


def there(figures: Figures, names: tuple[str, ...]) -> str:
    wanted = sum(figures.wanted[name] for name in names)
    return f"{sum(figures.there[name] for name in names) / wanted:.1%}" if wanted else "-"


if __name__ == "__main__":
    main()
