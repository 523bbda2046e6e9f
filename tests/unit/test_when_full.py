"""Is what a full conversation will cost worked out as its calls would be billed?"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import ConfigError, ModelInfo, RoutingConfig
from langchain_ctxwin.core.spending import LEAST_CALLS, MOST_CALLS, Course, compared
from langchain_ctxwin.observe import Usage


def priced(price: str) -> ModelInfo:
    amount = Decimal(price)
    return ModelInfo(name="m", input_price=amount, output_price=4 * amount, cache_read_price=amount / 10)


USUAL = {"tokens": 8_100, "limit": 8_000, "low": 4_000, "prefix_tokens": 1_000, "cached_tokens": 7_600}


def course(info: ModelInfo, **sizes: int) -> Course:
    return Course(info=info, **({**USUAL, "added_tokens": 500, "output_tokens": 100} | sizes))


def test_each_call_is_billed_as_its_provider_would():
    """The first after a compaction reads only the prompt and the tools from the cache, the next one all before it."""
    info = priced("1")

    def cost(tokens: int, cached: int, output: int = 100) -> Decimal:
        return Usage(input_tokens=tokens, cached_tokens=cached, output_tokens=output).cost(info)

    two = cost(4_000, 1_000) + cost(4_500, 4_000)
    assert course(info).cost(2) == two
    assert course(info, summary_tokens=300).cost(2) == cost(8_100, 8_100, 300) + two
    assert course(info, limit=100_000, cached_tokens=0).cost(1) == cost(8_100, 0)


PRICES = st.decimals(min_value="0.01", max_value="100", places=2)
SIZES = st.fixed_dictionaries(
    {
        "tokens": st.integers(1, 50_000),
        "limit": st.integers(1, 50_000),
        "low": st.integers(1, 50_000),
        "prefix_tokens": st.integers(0, 20_000),
        "cached_tokens": st.integers(0, 50_000),
        "added_tokens": st.integers(1, 5_000),
        "output_tokens": st.integers(0, 5_000),
        "summary_tokens": st.integers(0, 2_000),
    }
)


@given(PRICES, SIZES, st.integers(1, 50))
def test_more_calls_cost_more_and_dearer_models_too(price, sizes, calls):
    """Whatever the sizes are."""
    cheap, dear = course(priced(str(price)), **sizes), course(priced(str(2 * price)), **sizes)
    assert 0 < cheap.cost(calls) < cheap.cost(calls + 1)
    assert dear.cost(calls) == 2 * cheap.cost(calls)


@given(SIZES, st.integers(0, 1_000))
def test_a_model_that_costs_no_less_and_starts_cold_is_never_worth_it_while_nothing_is_compacted(sizes, so_far):
    """Then both courses send the same requests."""
    stay = course(priced("1"), **{**sizes, "limit": 10**9})
    found = compared("one", stay, "other", replace(stay, cached_tokens=0), calls_so_far=so_far)
    assert found.is_cheaper_to_compact
    assert LEAST_CALLS <= found.calls <= MOST_CALLS


def test_a_move_pays_where_compactions_follow_each_other():
    """A window that is full again after each call, beside a larger one that is hardly dearer."""
    stay = course(priced("1"), low=7_600)
    move = course(priced("1.05"), limit=200_000, low=100_000, cached_tokens=0)
    assert not compared("small", stay, "large", move, calls_so_far=10).is_cheaper_to_compact
    dearer = replace(move, info=priced("17"))
    assert compared("small", stay, "large", dearer, calls_so_far=10).is_cheaper_to_compact


def test_what_has_no_price_is_not_compared():
    """Nothing says then that moving costs more."""
    stay, move = course(ModelInfo(name="m")), course(priced("1"))
    found = compared("small", stay, "large", move, calls_so_far=10)
    assert (found.compact_cost, found.is_cheaper_to_compact) == (None, False)
    assert str(found).startswith("small compacted: unknown, large with all of it: $")


@pytest.mark.parametrize("value", ["always", None, 3])
def test_a_setting_that_is_none_is_refused(value):
    """With what it can be."""
    with pytest.raises(ConfigError, match="when_full"):
        RoutingConfig(when_full=value)


@pytest.mark.parametrize("field", ["cache_write_price", "cache_write_hour_price", "input_price"])
def test_a_negative_price_is_refused(field):
    """Before anything is weighed with it."""
    with pytest.raises(ConfigError, match=f"{field}=Decimal"):
        ModelInfo(name="m", **{field: Decimal(-1)})
