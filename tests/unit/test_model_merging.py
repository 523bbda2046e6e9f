"""Several sources about one model: one value per field, its source named, every other value kept."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.core.model_info import LIMIT_FIELDS, PRICE_FIELDS
from langchain_ctxwin.models.merging import FIELDS, TIERS, Claim, guessed, merged, stated_value


def claim(source="a", tier="catalog", **facts):
    return Claim(source=source, tier=tier, info=ModelInfo(name=facts.pop("name", "m"), **facts))


def merge(*claims):
    return merged("m", "p", claims)


@st.composite
def infos(draw):
    """Facts that do not contradict themselves, as a source may state them."""
    window = draw(st.none() | st.integers(1, 6))
    most = st.integers(1, window or 6)
    price = st.none() | st.sampled_from([Decimal(0), Decimal("0.5"), Decimal(2)])
    return ModelInfo(
        name="m",
        context_window=window,
        max_input_tokens=draw(st.none() | most),
        max_output_tokens=draw(st.none() | most),
        **{field: draw(price) for field in PRICE_FIELDS},
        capabilities=frozenset(draw(st.sets(st.sampled_from(["tools", "images"])))),
        retires_on=draw(st.none() | st.dates(date(2030, 1, 1), date(2030, 1, 3))),
        deprecated=draw(st.booleans()),
    )


def claims_of(tiers):
    pairs = st.lists(st.tuples(st.sampled_from(tiers), infos()), max_size=5)
    return pairs.map(lambda stated: [Claim(source=f"s{i}", tier=t, info=info) for i, (t, info) in enumerate(stated)])


def stated(claims, field):
    values = ((one.source, stated_value(one.info, field)) for one in claims)
    return {source: value for source, value in values if value is not None}


# Invariants


@given(claims_of(TIERS))
def test_merging_never_raises_and_names_the_source_of_each_value(claims):
    """Whatever is contradicted, each value stands at its source, or raises the window to an input limit."""
    info = merge(*claims)
    for field in FIELDS:
        value = stated_value(info, field)
        if value is None:
            assert field not in info.provenance
            continue
        source = info.provenance[field]
        raised = field == "context_window" and value == info.max_input_tokens
        assert stated(claims, field).get(source) == value or (
            raised and source == info.provenance["max_input_tokens"] == source
        )


@given(claims_of(TIERS))
def test_conflicts_keep_every_other_value(claims):
    """A value is either the one that counts or kept under its source; nothing is lost and nothing invented."""
    info = merge(*claims)
    for field in FIELDS:
        others = {source: v for source, v in stated(claims, field).items() if v != stated_value(info, field)}
        assert dict(info.conflicts.get(field, {})) == others


@given(claims_of(["catalog"]).flatmap(lambda claims: st.tuples(st.just(claims), st.permutations(claims))))
def test_the_order_of_catalogs_changes_no_limit(orders):
    one, other = (merge(*claims) for claims in orders)
    fields = (*LIMIT_FIELDS, "retires_on", "deprecated")
    assert [getattr(one, field) for field in fields] == [getattr(other, field) for field in fields]


@given(claims_of(["catalog"]))
def test_no_limit_is_larger_than_the_smallest_of_the_catalogs(claims):
    info = merge(*claims)
    for field in LIMIT_FIELDS:
        if getattr(info, field) is not None:
            assert getattr(info, field) == min(stated(claims, field).values())


@given(claims_of(TIERS), infos())
def test_an_explicit_price_beats_all_others(claims, info):
    claims = [one for one in claims if one.tier != "explicit"]
    merged_info = merge(*claims, Claim(source="mine", tier="explicit", info=info))
    for field in PRICE_FIELDS:
        if getattr(info, field) is not None:
            assert (getattr(merged_info, field), merged_info.provenance[field]) == (getattr(info, field), "mine")


# Examples


TABLE_A = claim("a", context_window=200)


@pytest.mark.parametrize(
    ("claims", "facts"),
    [
        (
            # Prices are no safety margin: the order of the sources says which table is preferred.
            [
                claim("one", context_window=900, input_price=Decimal(0)),
                claim("two", context_window=800, input_price=Decimal(2)),
            ],
            {
                "context_window": 800,
                "input_price": Decimal(0),
                "provenance": {"context_window": "two", "input_price": "one"},
                "conflicts": {"context_window": {"one": 900}, "input_price": {"two": Decimal(2)}},
            },
        ),
        (
            # Two tables mean different things by the same word: the window allows the smaller request.
            [TABLE_A, claim("b", context_window=400, max_input_tokens=272)],
            {
                "context_window": 200,
                "provenance": {"context_window": "a"},
                "conflicts": {"context_window": {"b": 400}, "max_input_tokens": {"b": 272}},
            },
        ),
        (
            # A window that the caller states is kept, a larger input limit of a table is not.
            [claim("mine", "explicit", context_window=100), claim("table", max_input_tokens=272)],
            {
                "context_window": 100,
                "provenance": {"context_window": "mine"},
                "conflicts": {"max_input_tokens": {"table": 272}},
            },
        ),
        (
            # What goes in fits the window, so a smaller window of a table is out of date.
            [claim("heard", "learned", max_input_tokens=300), TABLE_A],
            {
                "context_window": 300,
                "max_input_tokens": 300,
                "provenance": {"context_window": "heard", "max_input_tokens": "heard"},
                "conflicts": {"context_window": {"a": 200}},
            },
        ),
        (
            # Requests are sized by the window, whoever stated the output limit.
            [claim("mine", "explicit", max_output_tokens=640), TABLE_A],
            {
                "context_window": 200,
                "provenance": {"context_window": "a"},
                "conflicts": {"max_output_tokens": {"mine": 640}},
            },
        ),
        (
            # A retirement that is noticed too late fails requests.
            [claim(day, retires_on=date(2030, 1, int(day))) for day in "52"] + [claim("c", deprecated=True)],
            {
                "deprecated": True,
                "retires_on": date(2030, 1, 2),
                "provenance": {"deprecated": "c", "retires_on": "2"},
                "conflicts": {"retires_on": {"5": date(2030, 1, 5)}},
            },
        ),
        (
            [claim("a", aliases=("m-latest",)), claim("b", name="M", aliases=("m-latest", "m-2"))],
            {"aliases": ("m-latest", "M", "m-2"), "provenance": {"aliases": "a"}},
        ),
        (
            # Neither value of a source that contradicts itself hides the other, or that of a source named like it.
            [*(claim(context_window=size) for size in (1, 2, 3, 3)), claim("a #2", context_window=9)],
            {
                "context_window": 1,
                "provenance": {"context_window": "a"},
                "conflicts": {"context_window": {"a": 2, "a (2)": 3, "a #2": 9}},
            },
        ),
        ([], {}),
    ],
)
def test_claims_are_merged_to_one_value_per_field(claims, facts):
    assert merge(*claims) == ModelInfo(name="m", provider="p", **facts)


def test_a_window_is_guessed_only_where_no_limit_is_known():
    guess = guessed(ModelInfo(name="m", max_output_tokens=100))
    assert (guess.context_window, guess.limits.source) == (400, "guess")
    for info in (ModelInfo(name="m"), ModelInfo(name="m", max_input_tokens=8), ModelInfo(name="m", context_window=8)):
        assert guessed(info) is info
