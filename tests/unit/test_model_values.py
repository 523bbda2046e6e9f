"""Are values that somebody else wrote read as what they mean, and everything else as unknown?"""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.models.sources.reading import (
    MAX_PRICE,
    MAX_TOKENS,
    MILLION,
    ONE_TOKEN,
    SPELLINGS,
    day,
    price,
    provider_id,
    tokens,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (131_072, 131_072),
        (131_072.0, 131_072),
        ("131072", 131_072),
        (" 131,072 ", 131_072),
        ("131_072 tokens", 131_072),
        ("128k", 128_000),
        ("1,048,576", 1_048_576),
        ("128 K", 128_000),
        ("1.5k", 1_500),
        ("1M", 1_000_000),
        ("128Ki", 131_072),
        ("1e6", 1_000_000),
        (MAX_TOKENS, MAX_TOKENS),
    ],
)
def test_a_number_of_tokens_is_read_however_it_is_written(value, expected):
    assert tokens(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, "0", "-5", 0.0, 0.5, "1.5", MAX_TOKENS + 1, "1e99", "9" * 5000, "1e7k"),
        *(None, True, False, "", "k", "unlimited", "1 2", "12kk", "1,5k", "1,23,456"),
        *(float("nan"), float("inf"), -float("inf")),
        *([], {}, [8192], b"8192", "\u0661\u0662", pytest.param(10**5000, id="huge")),
    ],
)
def test_what_is_no_number_of_tokens_is_unknown(value):
    assert tokens(value) is None


@pytest.mark.parametrize(
    ("value", "per", "expected"),
    [
        (2.5e-07, ONE_TOKEN, "0.25"),
        ("0.00000025", ONE_TOKEN, "0.25"),
        ("2.5e-7", ONE_TOKEN, "0.25"),
        (1.1, MILLION, "1.1"),
        (10, MILLION, "10"),
        ("3.00", MILLION, "3"),
        (Decimal("0.075"), MILLION, "0.075"),
        (30_000, 10_000 * MILLION, "3"),
        (0, ONE_TOKEN, "0"),
    ],
)
def test_a_price_is_usd_per_million_tokens_without_float_errors(value, per, expected):
    assert str(price(value, per=per)) == expected


@pytest.mark.parametrize(
    "value",
    [
        "-1",
        -0.5,
        None,
        True,
        "",
        "free",
        "$3",
        float("nan"),
        "NaN",
        "sNaN",
        "inf",
        10**30,
        "1e-99999999",
        "0e-99999999",
        [],
    ],
)
def test_what_is_no_price_is_unknown(value):
    assert price(value, per=ONE_TOKEN) is None


def test_a_price_in_the_wrong_unit_is_unknown():
    """A dollar per token is a price per million that was read as one per token."""
    assert price(1.0, per=ONE_TOKEN) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-05-31", date(2026, 5, 31)),
        ("2026-5-1", date(2026, 5, 1)),
        ("2026-05-31T23:59:59Z", date(2026, 5, 31)),
        ("2026-05", date(2026, 5, 1)),
        (1_767_225_600, date(2026, 1, 1)),
        (1_767_225_600.5, date(2026, 1, 1)),
        (date(2026, 5, 31), date(2026, 5, 31)),
        (datetime(2026, 5, 31, 8, tzinfo=UTC), date(2026, 5, 31)),
    ],
)
def test_a_day_is_read_however_it_is_written(value, expected):
    assert day(value) == expected


@pytest.mark.parametrize(
    "value",
    ["2026-02-30", "2026-13", "31.5.2026", "", "soon", 0, 1_767_225_600_000, 1e300, True, None, {}, "9999-01-01"],
)
def test_what_is_no_day_is_unknown(value):
    assert day(value) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("google_genai", "google"),
        ("Gemini", "google"),
        ("vertex_ai-language-models", "google-vertex"),
        ("vertex_ai-anthropic_models", "google-vertex-anthropic"),
        ("bedrock_converse", "amazon-bedrock"),
        ("Azure OpenAI", "azure"),
        ("together_ai", "togetherai"),
        ("x-ai", "xai"),
        ("My Gateway", "my-gateway"),
        ("", ""),
    ],
)
def test_a_provider_has_one_id(text, expected):
    assert provider_id(text) == expected


@given(st.text() | st.sampled_from(sorted({*SPELLINGS, *SPELLINGS.values()})))
def test_an_id_of_a_provider_is_its_own_id(text):
    """Reading an id again changes nothing."""
    assert provider_id(provider_id(text)) == provider_id(text)


@given(JSON)
def test_no_value_is_too_strange_to_read(value):
    """Whatever comes is a value in bounds or unknown."""
    read_tokens, read_price, read_day = tokens(value), price(value, per=ONE_TOKEN), day(value)
    assert read_tokens is None or 1 <= read_tokens <= MAX_TOKENS
    assert read_price is None or 0 <= read_price <= MAX_PRICE
    assert read_day is None or isinstance(read_day, date)


@given(st.integers(1, MAX_TOKENS))
def test_each_way_to_write_a_number_of_tokens_means_the_same(number):
    assert {tokens(number), tokens(str(number)), tokens(float(number)), tokens(f"{number:,}")} == {number}


@given(st.decimals(min_value="0.000001", max_value=1000, places=6))
def test_a_price_per_token_and_per_million_is_the_same_price(per_million):
    per_token = per_million / MILLION
    assert price(str(per_token), per=ONE_TOKEN) == price(float(per_million)) == per_million
