"""Is a limit or price that a source states otherwise than before told once, and nothing else?"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, ModelRegistry
from langchain_ctxwin.models.cache import MAX_CHANGES, changes
from langchain_ctxwin.observe import MemorySink, ModelChangeEvent
from support.model_sources import NOON, AskedSource, ListSource, Watch, model


def price(value: str, **facts: Any) -> Any:
    return model(input_price=Decimal(value), **facts)


def short(sink: MemorySink) -> list[tuple[str, str, str, str, str]]:
    return [(one.model, one.field, one.before, one.after, one.source) for one in sink.of(ModelChangeEvent)]


DOWN = ConnectionError("down")


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ([[price("1.10"), model("other")], [price("1.1"), model("other"), model("newer")]], []),
        (
            [[price("1.1"), model("other")], *[[price("2.5", context_window=4096), model("other")]] * 2],
            [("context_window", "8192", "4096"), ("input_price", "1.1", "2.5")],
        ),
        # What is stated for the first time or no longer is no change, nor are names, capabilities and dates.
        ([[model()], [price("1")], [price("1", deprecated=True, aliases=("nova",))], [model()], [], [model()]], []),
        # A source that failed and is back tells nothing, unless it states something else than before.
        ([[price("1")], DOWN, [price("1")]], []),
        ([[price("1")], DOWN, [price("2")]], [("input_price", "1", "2")]),
    ],
)
def test_a_limit_and_a_price_that_change_are_told_once(stated, told):
    """With who stated it, and the time; what is asked again and is the same is no news."""
    sink, source = MemorySink(), ListSource(name="api")
    registry = ModelRegistry([source], clock=Watch(), sinks=[sink])
    for answer in stated:
        source.failing, source.models = (answer, []) if answer is DOWN else (None, answer)
        registry.refresh()
    assert short(sink) == [("acme/nova-1", *facts, "api") for facts in told]
    assert {event.time for event in sink.events} <= {NOON}


def test_a_restart_compares_with_what_was_stored(tmp_path):
    """The same facts from another process are no change, others are."""
    path, source, sink = tmp_path / "models.json", ListSource(price("1"), cache_key="key"), MemorySink()
    ModelRegistry([source], cache_path=path).refresh()
    first, second = (ModelRegistry([source], cache_path=path, sinks=[sink]) for _ in range(2))
    for registry in (first, second, first):
        registry.refresh()
    assert sink.events == []
    source.models = [price("3")]
    third = ModelRegistry([source], cache_path=path, sinks=[sink])
    for _ in range(2):
        third.refresh()
    assert [facts[2:4] for facts in short(sink)] == [("1", "3")]


def test_a_source_that_answers_by_name_tells_a_change_once():
    """Though it is asked under two names."""
    watch, sink, source = Watch(), MemorySink(), AskedSource(model("nova-1", provider="acme"))
    source.fetch = lambda name: source.models if name else ()  # the same model, whatever it is called
    registry = ModelRegistry([source], 60, watch, sinks=[sink])
    for window in (8192, 4096, 8192):
        source.models = [model("nova-1", provider="acme", context_window=window)]
        for name in ("nova-1", "acme/nova-1"):
            registry.lookup(name)
        watch.now += 61
    assert [facts[:4] for facts in short(sink)] == [
        ("acme/nova-1", "context_window", "8192", "4096"),
        ("acme/nova-1", "context_window", "4096", "8192"),
    ]


def test_many_changes_at_once_are_counted():
    """The first hundred are told, the others are a number in the log."""
    sink, source = MemorySink(), ListSource(*(model(f"m{n}") for n in range(MAX_CHANGES + 5)), name="api")
    registry = ModelRegistry([source], sinks=[sink])
    registry.refresh()
    source.models = [model(f"m{n}", context_window=9) for n in range(MAX_CHANGES + 5)]
    with capture_logs() as logs:
        registry.refresh()
    assert len(sink.events) == MAX_CHANGES
    assert [(log["event"], log["source"], log["not_reported"]) for log in logs] == [("models.more_changed", "api", 5)]


def test_a_sink_that_raises_holds_up_no_lookup():
    """What it is told of is known all the same."""

    class Broken:
        def emit(self, event: Any) -> None:
            raise RuntimeError("no")

    source = ListSource(model())
    registry = ModelRegistry([source], sinks=[Broken()])
    registry.refresh()
    source.models = [model(context_window=4096)]
    with capture_logs() as logs:
        registry.refresh()
    assert registry.lookup("nova-1").limits.context_window == 4096
    assert [log["event"] for log in logs] == ["metrics.sink_failed"]


def test_what_is_no_sink_is_refused():
    """When the registry is made."""
    with pytest.raises(ConfigError, match=r"sinks\[0\]=3"):
        ModelRegistry([], sinks=[3])


WINDOWS = st.lists(st.builds(model, st.sampled_from("ab"), context_window=st.integers(1, 3)), max_size=6)


@given(WINDOWS, WINDOWS)
@settings(deadline=None)
def test_only_values_that_were_not_stated_before_are_changes(before, after):
    """Whatever a source repeats, reorders or contradicts."""
    told = {(event.model, event.after) for event in changes("api", before, after)}
    values = {name: {one.context_window for one in before if one.name == name} for name in "ab"}
    expected = {
        (f"acme/{one.name}", str(one.context_window))
        for one in after
        if values[one.name] and one.context_window not in values[one.name]
    }
    assert told == expected
    assert len(changes("api", before, after)) == len(told)
