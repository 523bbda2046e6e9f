"""Does a running registry follow nine months of changing models, and what does a lookup cost meanwhile?"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from common import parser_of, quiet, rows_of
from langchain_ctxwin.errors import UnknownModelError
from langchain_ctxwin.models.registry import TTL_SECONDS, ModelRegistry
from langchain_ctxwin.models.sources import CatalogSource
from langchain_ctxwin.observe import MemorySink

MONTHS = "model_facts/models_dev/*.json.gz"
EVENTS = "model_facts/events.jsonl.gz"
FIELDS = {
    "changed_context": "context_window",
    "changed_output": "max_output_tokens",
    "changed_input": "max_input_tokens",
    "changed_cost_in": "input_price",
    "changed_cost_out": "output_price",
}
LOOKUPS = 20_000


class MonthClock:
    """The time of the month that is replayed."""

    now = 0.0

    def __call__(self):
        return self.now


def main():
    data = parser_of(__doc__, EVENTS, needs_data=True).parse_args().data
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        replay_months(data, Path(folder) / "models.json")


def replay_months(data, catalog):
    clock, registry = MonthClock(), None
    totals, stale, events = Counter(), Counter(), Counter()
    changed, sink, told = list(rows_of(data / EVENTS)), MemorySink(), Counter()
    months = sorted(data.glob(MONTHS))
    print(
        f"{data / 'model_facts'}: {len(months)} months under one registry, TTL {TTL_SECONDS:,.0f} s"
    )
    for path in months:
        month, models = path.name.partition(".")[0], next(rows_of(path))["models"]
        replace(catalog, published(models))
        if registry is None:
            clock.now = epoch(month)
            registry = ModelRegistry(
                [CatalogSource(catalog)],
                clock=clock,
                sinks=[sink],
            )
            print_first(registry, models)
            continue
        sink.clear()
        clock.now += (
            TTL_SECONDS  # the file changed just after the last refresh: the worst case
        )
        changes = [event for event in changed if event["month"] == month]
        first = next(event for event in changes if event["event"] in FIELDS)
        stale["months"] += not is_right(registry, first, models)
        registry.refresh()
        told.update(compared(changes, sink.events))
        outcome = Counter(
            (event["event"], is_right(registry, event, models)) for event in changes
        )
        all_right = sum(matches(registry, name, row) for name, row in models.items())
        events.update(outcome)
        totals.update(right=all_right, wrong=len(models) - all_right)
        print(
            f"{month}  {summary(outcome)}\n         every model of the month: {all_right}/{len(models)} right"
        )
        clock.now = max(clock.now, epoch(month))
    print(f"all      {summary(events)}")
    print(
        f"         every model of every month: {totals['right']} right, {totals['wrong']} wrong"
    )
    print(
        f"changes told as events: {told['right']}; missed: {told['missed']}; in no list: {told['other']}"
    )
    print(
        f"first lookup after one TTL, of a changed model: stale in {stale['months']} of {len(months) - 1} months"
    )
    print_speed(registry, [name for name, row in models.items() if row["context"]])


def published(models):
    """The reduced rows in the shape that models.dev publishes."""
    providers = {}
    for name, row in models.items():
        provider, _, model = name.partition("/")
        entry = {
            "id": model,
            "tool_call": row["tool_call"],
            "reasoning": row["reasoning"],
            "release_date": row["release"],
            "limit": {
                key: row[key] for key in ("context", "input", "output") if key in row
            },
        }
        prices = {"input": "cost_in", "output": "cost_out", "cache_read": "cache_read"}
        cost = {key: row[field] for key, field in prices.items() if field in row}
        entry |= {"cost": cost} if cost else {}
        entry |= {"status": row["status"]} if row.get("status") else {}
        providers.setdefault(provider, {"id": provider, "models": {}})["models"][
            model
        ] = entry
    return providers


def is_right(registry, event, models):
    name, row = event["model"], models.get(event["model"])
    if event["event"] == "removed":
        return info_of(registry, name) is None
    return row is not None and matches(registry, name, row)


def compared(changes, told):
    """How many of the listed changes from one value to another were told, how many not, and how many unlisted ones."""
    numbers = [
        event
        for event in changes
        if event["event"] in FIELDS and None not in (event["old"], event["new"])
    ]
    listed = {(event["model"], FIELDS[event["event"]]) for event in numbers}
    found = {
        (event.model, event.field) for event in told if event.field in FIELDS.values()
    }
    return {
        "right": len(listed & found),
        "missed": len(listed - found),
        "other": len(found - listed),
    }


def matches(registry, name, row):
    """True when the registry says of a model what the month's catalog says, as far as that can be believed."""
    info = info_of(registry, name)
    if info is None:
        return not row["context"] and not row.get("input")
    window, largest_input, largest_output = (
        row.get(key) or None for key in ("context", "input", "output")
    )
    if window and largest_input and largest_input > window:
        largest_input = None  # contradicts itself
    if window and largest_output and largest_output > window:
        largest_output = None
    limits = info.context_window, info.max_input_tokens, info.max_output_tokens
    prices = info.input_price, info.output_price
    return (
        f"{info.provider}/{info.name}" == name
        and limits == (window, largest_input, largest_output)
        and prices == (price(row, "cost_in"), price(row, "cost_out"))
        and info.deprecated == (row.get("status") == "deprecated")
    )


def info_of(registry, name):
    try:
        return registry.lookup(name)
    except UnknownModelError:
        return None


def price(row, key):
    return None if row.get(key) is None else Decimal(str(row[key]))


def print_first(registry, models):
    name = next(iter(models))
    start = time.perf_counter()
    registry.lookup(name)
    first = time.perf_counter() - start
    right = sum(matches(registry, name, row) for name, row in models.items())
    print(
        f"first lookup, {len(models)} models read: {first * 1000:.1f} ms; {right}/{len(models)} right"
    )


def print_speed(registry, names):
    rounds = [names[index % len(names)] for index in range(LOOKUPS)]
    registry.refresh()
    for label, asked in (("first, merged anew", names), ("known", rounds)):
        start = time.perf_counter()
        for name in asked:
            registry.lookup(name)
        rate = len(asked) / (time.perf_counter() - start)
        print(f"lookups ({label}): {rate:,.0f} per second over {len(names):,} models")
    start = time.perf_counter()
    registry.refresh()
    print(f"refresh of {len(names):,} models: {time.perf_counter() - start:.2f} s")


def summary(outcome):
    kinds = dict.fromkeys(kind for kind, _ in sorted(outcome))
    parts = (
        f"{kind} {outcome[kind, True]}/{outcome[kind, True] + outcome[kind, False]}"
        for kind in kinds
    )
    return ", ".join(parts) + " right"


def replace(path, document):
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(path)


def epoch(month):
    year, number = map(int, month.split("-"))
    return datetime(year, number, 28, tzinfo=UTC).timestamp()


if __name__ == "__main__":
    main()
