"""Facts about one model: what is refused, and the limits that follow."""

import pickle
from datetime import date
from decimal import Decimal

import pytest

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError

FULL = ModelInfo(
    name="small",
    provider="acme",
    context_window=8192,
    max_input_tokens=7000,
    max_output_tokens=1024,
    input_price=Decimal("0.10"),
    output_price=Decimal("0.40"),
    cache_read_price=Decimal(0),
    capabilities=frozenset({"tools"}),
    tokenizer_family="llama",
    deprecated=True,
    retires_on=date(2027, 1, 31),
    aliases=("small-latest",),
    provenance={"context_window": "catalog"},
    conflicts={"context_window": {"profile": 16_384}},
)


def test_limits_carry_the_source_that_stated_them():
    """The window's source, else the input limit's, else it was given explicitly."""
    assert FULL.limits == ModelLimits(8192, 7000, 1024, source="catalog")
    info = ModelInfo(name="m", max_input_tokens=10, provenance={"max_input_tokens": "api"})
    assert info.limits == ModelLimits(max_input_tokens=10, source="api")
    assert ModelInfo(name="m", context_window=10).limits == ModelLimits(10)


def test_limits_of_reads_a_model_info():
    """`ModelLimits.of` takes it like any object with `.limits`; its output limit is not a request."""
    assert ModelLimits.of(FULL) == FULL.limits


def test_a_bare_name_knows_nothing():
    """Everything but the name is optional and unknown."""
    info = ModelInfo(name="m")
    assert not info.limits.known
    assert (info.input_price, info.capabilities, info.deprecated, info.conflicts) == (None, frozenset(), False, {})


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"context_window": 0}, "m: context_window=0: give a whole number"),
        ({"max_output_tokens": -1}, "m: max_output_tokens=-1"),
        ({"context_window": 10, "max_input_tokens": 11}, "m: max_input_tokens=11 is more than context_window=10"),
        ({"input_price": Decimal(-1)}, "m: input_price="),
        ({"output_price": 0.4}, r"m: output_price=0\.4: give USD per million tokens as a Decimal"),
        ({"cache_read_price": Decimal("NaN")}, "m: cache_read_price="),
        ({"name": ""}, "give the model's name"),
    ],
)
def test_facts_out_of_range_are_refused(facts, message):
    """The error names the model, the field and the value."""
    with pytest.raises(ConfigError, match=message):
        ModelInfo(**{"name": "m", **facts})


def test_model_infos_compare_hash_and_pickle():
    """They live in sets, caches and other processes."""
    assert len({FULL, pickle.loads(pickle.dumps(FULL))}) == 1  # noqa: S301  # our own bytes
