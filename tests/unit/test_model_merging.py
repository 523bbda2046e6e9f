"""Several sources about one model: one value per field, its source named, every other value kept."""

from datetime import date
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo
from langchain_ctxwin.models.merging import FIELDS, LIMIT_FIELDS, TIERS, Claim, guessed, merged, stated_value


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


def test_the_first_tier_that_states_a_field_counts_field_by_field():
    info = merge(
        claim("table", "catalog", context_window=900, max_output_tokens=100, input_price=Decimal(3)),
        claim("api", "provider", context_window=800, capabilities=frozenset({"tools"})),
        claim("mine", "explicit", context_window=700),
    )
    assert info == ModelInfo(
        name="m",
        provider="p",
        context_window=700,
        max_output_tokens=100,
        input_price=Decimal(3),
        capabilities=frozenset({"tools"}),
        provenance={
            "context_window": "mine",
            "max_output_tokens": "table",
            "input_price": "table",
            "capabilities": "api",
        },
        conflicts={"context_window": {"api": 800, "table": 900}},
    )


def test_of_catalogs_the_smaller_limit_and_the_first_price_count():
    info = merge(
        claim("one", context_window=900, input_price=Decimal(3)),
        claim("two", context_window=800, input_price=Decimal(2)),
    )
    assert (info.context_window, info.input_price) == (800, Decimal(3))
    assert info.conflicts == {"context_window": {"one": 900}, "input_price": {"two": Decimal(2)}}


def test_a_price_of_zero_is_a_statement():
    info = merge(claim("api", "provider", input_price=Decimal(0)), claim("table", input_price=Decimal(2)))
    assert (info.input_price, info.conflicts) == (Decimal(0), {"input_price": {"table": Decimal(2)}})


def test_an_input_limit_above_the_window_leaves_in_the_same_tier():
    info = merge(claim("a", context_window=200), claim("b", context_window=400, max_input_tokens=272))
    assert (info.context_window, info.max_input_tokens) == (200, None)
    assert info.conflicts == {"context_window": {"b": 400}, "max_input_tokens": {"b": 272}}


def test_an_input_limit_below_a_more_trusted_window_leaves_nothing_to_doubt():
    info = merge(claim("mine", "explicit", context_window=100), claim("table", max_input_tokens=272))
    assert (info.context_window, info.max_input_tokens, info.conflicts) == (
        100,
        None,
        {"max_input_tokens": {"table": 272}},
    )


def test_a_more_trusted_input_limit_raises_the_window_to_itself():
    """What goes in fits the window, so a smaller window of a table is out of date; how much larger nobody said."""
    info = merge(claim("heard", "learned", max_input_tokens=300), claim("table", context_window=200))
    assert (info.context_window, info.max_input_tokens) == (300, 300)
    assert info.provenance == {"context_window": "heard", "max_input_tokens": "heard"}
    assert info.conflicts == {"context_window": {"table": 200}}


def test_an_output_limit_above_the_window_leaves():
    info = merge(claim("mine", "explicit", max_output_tokens=64), claim("table", context_window=32))
    assert (info.context_window, info.max_output_tokens) == (32, None)
    assert info.conflicts == {"max_output_tokens": {"mine": 64}}


def test_one_warning_of_retirement_is_enough_and_the_earliest_day_counts():
    info = merge(
        claim("a", retires_on=date(2030, 5, 1)), claim("b", retires_on=date(2030, 2, 1)), claim("c", deprecated=True)
    )
    assert (info.deprecated, info.retires_on) == (True, date(2030, 2, 1))
    assert info.provenance == {"deprecated": "c", "retires_on": "b"}


def test_aliases_and_other_spellings_are_collected():
    info = merge(claim("a", aliases=("m-latest",)), claim("b", name="M", aliases=("m-latest", "m-2")))
    assert (info.aliases, info.provenance) == (("m-latest", "M", "m-2"), {"aliases": "a"})


def test_a_source_that_contradicts_itself_keeps_both_values():
    info = merge(claim(context_window=1), claim(context_window=2), claim(context_window=3), claim(context_window=3))
    assert info.conflicts == {"context_window": {"a": 2, "a (2)": 3}}


def test_many_values_of_one_source_are_told_apart():
    """However many there are, each keeps an entry, beside those of a source that is named like one of them."""
    info = merge(*(claim(context_window=size) for size in range(1, 5)), claim("a #2", context_window=9))
    assert info.conflicts == {"context_window": {"a": 2, "a (2)": 3, "a (3)": 4, "a #2": 9}}


def test_nothing_is_known_without_claims():
    assert merge() == ModelInfo(name="m", provider="p")


def test_a_window_is_guessed_only_where_no_limit_is_known():
    guess = guessed(ModelInfo(name="m", max_output_tokens=100))
    assert (guess.context_window, guess.limits.source) == (400, "guess")
    for info in (ModelInfo(name="m"), ModelInfo(name="m", max_input_tokens=8), ModelInfo(name="m", context_window=8)):
        assert guessed(info) is info
