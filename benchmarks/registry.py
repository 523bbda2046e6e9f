"""Does a running registry follow nine months of changing models, and tell of each change?"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from common import parser_of, quiet, rows_of
from langchain_ctxwin.errors import UnknownModelError
from langchain_ctxwin.models.registry import TTL_SECONDS, ModelRegistry
from langchain_ctxwin.models.sources import read_provider_row
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
MONTH_SECONDS = 30 * 86_400


def main():
    data = parser_of(__doc__, EVENTS, needs_data=True).parse_args().data
    quiet()
    now, sink, catalog = [0.0], MemorySink(), Catalog()
    registry = ModelRegistry([catalog], clock=lambda: now[0], sinks=[sink])
    months = sorted(data.glob(MONTHS))
    totals, changed = Counter(), list(rows_of(data / EVENTS))
    for number, path in enumerate(months):
        month, models = path.name.partition(".")[0], next(rows_of(path))["models"]
        catalog.models = models
        if not number:
            registry.refresh()
            continue
        sink.clear()
        # the catalog changed just after the last refresh: the worst case
        now[0] += TTL_SECONDS
        changes = [event for event in changed if event["month"] == month]
        first = next(event["model"] for event in changes if event["event"] in FIELDS)
        totals["stale"] += not matches(registry, first, models[first])
        registry.refresh()
        totals.update(compared(changes, sink.events))
        for name, row in models.items():
            totals["right" if matches(registry, name, row) else "wrong"] += 1
        now[0] += MONTH_SECONDS
    print(
        f"{len(months)} months under one registry, TTL {TTL_SECONDS:,.0f} s\n"
        f"every model of every month: {totals['right']} right, {totals['wrong']} wrong\n"
        f"changes told as events: {totals['told']}; missed: {totals['missed']}; in no list: {totals['other']}\n"
        f"first lookup after one TTL, of a changed model: stale in {totals['stale']} of {len(months) - 1} months"
    )


class Catalog:
    """The models of one month, as a source reads them where models.dev publishes them."""

    tier = "catalog"

    def fetch(self, _):
        for name, row in self.models.items():
            provider, _, model = name.partition("/")
            cost = {
                "input": row.get("cost_in"),
                "output": row.get("cost_out"),
                "cache_read": row.get("cache_read"),
            }
            stated = {"limit": row, "cost": cost, "status": row.get("status")}
            yield read_provider_row(provider, model, stated)


def compared(changes, told):
    """How many of the listed changes from one value to another were told, how many not, and how many unlisted ones."""
    listed = {
        (event["model"], FIELDS[event["event"]])
        for event in changes
        if event["event"] in FIELDS and None not in (event["old"], event["new"])
    }
    found = {
        (event.model, event.field) for event in told if event.field in FIELDS.values()
    }
    return {
        "told": len(listed & found),
        "missed": len(listed - found),
        "other": len(found - listed),
    }


def matches(registry, name, row):
    """True when the registry says of a model what the month's catalog says, as far as that can be believed."""
    try:
        info = registry.lookup(name)
    except UnknownModelError:
        return not row["context"] and not row.get("input")
    stated = [row.get(key) or None for key in ("context", "input", "output")]
    window = stated[0]
    for at in (1, 2):
        if window and stated[at] and stated[at] > window:
            stated[at] = None  # contradicts itself
    limits = [info.context_window, info.max_input_tokens, info.max_output_tokens]
    prices = info.input_price, info.output_price
    return (
        f"{info.provider}/{info.name}" == name
        and limits == stated
        and prices == (price(row, "cost_in"), price(row, "cost_out"))
        and info.deprecated == (row.get("status") == "deprecated")
    )


def price(row, key):
    return None if row.get(key) is None else Decimal(str(row[key]))


if __name__ == "__main__":
    main()
