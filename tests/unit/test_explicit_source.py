"""Does what the user says about models hold exactly, and is a mistake reported where it was made?"""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from langchain_ctxwin import ModelInfo, ModelLimits
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources import ExplicitSource


def test_a_number_is_the_context_window():
    [info] = ExplicitSource({"small": 8192}).fetch(None)
    assert info == ModelInfo(name="small", context_window=8192, provenance={"context_window": "explicit"})


def test_limits_are_taken_without_what_a_request_asks_for():
    [info] = ExplicitSource({"small": ModelLimits(8192, 6000, 2000, 1000)}).fetch(None)
    assert (info.limits, info.provider) == (ModelLimits(8192, 6000, 2000), None)


def test_fields_are_read_in_the_ways_people_write_them():
    facts = {
        "provider": "google_genai",
        "context_window": "128k",
        "max_output_tokens": 1e3,
        "input_price": 0.1,
        "output_price": "0.40",
        "capabilities": ["tools", "images"],
        "aliases": ("big",),
        "tokenizer_family": "gemini",
        "deprecated": True,
        "retires_on": "2099-05-31",
        "cache_read_price": None,
    }
    [info] = ExplicitSource({"house-blend": facts}).fetch(None)
    expected = ModelInfo(
        name="house-blend",
        provider="google",
        context_window=128_000,
        max_output_tokens=1000,
        input_price=Decimal("0.1"),
        output_price=Decimal("0.4"),
        capabilities=frozenset({"tools", "images"}),
        aliases=("big",),
        tokenizer_family="gemini",
        deprecated=True,
        retires_on=date(2099, 5, 31),
        provenance=dict.fromkeys(facts.keys() - {"cache_read_price"}, "explicit"),
    )
    assert info == expected


def test_a_model_info_is_kept_under_the_name_of_this_source():
    given = ModelInfo(name="small", provider="maker", input_price=Decimal(0), provenance={"input_price": "elsewhere"})
    [info] = ExplicitSource({"small": given}).fetch("small")
    assert info == replace(given, provenance={"provider": "explicit", "input_price": "explicit"})


def test_a_model_is_found_by_its_name_or_an_alias():
    source = ExplicitSource({"small": 8192, "large": {"context_window": 200_000, "aliases": ["big"]}})
    assert [info.name for info in source.fetch("big")] == ["large"]
    assert [info.name for info in source.fetch(None)] == ["small", "large"]
    assert source.fetch("unknown") == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"small": 0}, "small: context_window=0: give a whole number of tokens from 1 to 1,000,000,000, or None"),
        ({"small": -5}, "context_window=-5"),
        ({"small": True}, "context_window=True"),
        pytest.param({"small": 10**5000}, r"context_window=\(a huge int\)", id="huge"),
        ({"small": "large"}, "context_window='large'"),
        ({"small": [8192]}, r"context_window=\[8192\]"),
        ({"small": {"max_input_tokens": "x"}}, "small: max_input_tokens='x'"),
        ({"small": {"input_price": -1}}, "small: input_price=-1: give USD per million tokens, from 0 to 10,000"),
        ({"small": {"retires_on": "soon"}}, "retires_on='soon': give a date, or its text as year-month-day"),
        ({"small": {"capabilities": "tools"}}, "capabilities='tools': give a list of words"),
        ({"small": {"deprecated": "no"}}, "deprecated='no': give True or False"),
        ({"small": {"window": 8192}}, "small: unknown field window: give some of name, provider, context_window"),
        ({"small": {"context_window": 10, "max_output_tokens": 20}}, "small: max_output_tokens=20 is more than"),
        ({"": 8192}, "model '': give the model's name"),
        ({7: 8192}, "model 7: give the model's name"),
        ([("small", 8192)], "give a mapping of model names"),
    ],
)
def test_a_mistake_is_reported_when_the_source_is_made(facts, said):
    """The text names the model, the field, the value and what to give."""
    with pytest.raises(ConfigError, match=said):
        ExplicitSource(facts)


@pytest.mark.parametrize("said", [None, {}, {"context_window": None}])
def test_a_model_may_be_listed_without_facts(said):
    """None is what is unknown."""
    assert ExplicitSource({"small": said}).fetch(None) == [ModelInfo(name="small")]


def test_facts_of_another_name_hold_under_the_name_they_are_given_for():
    """So that an alias of one's own needs no second table."""
    [info] = ExplicitSource({"mine": ModelInfo(name="nova-1", context_window=5, aliases=("nova",))}).fetch(None)
    assert (info.name, info.aliases) == ("mine", ("nova-1", "nova"))
