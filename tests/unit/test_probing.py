"""Does a probe find the limit that a provider enforces, for the money that was said, and stop when it should?"""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage

from langchain_ctxwin import ConfigError, ModelInfo, cli
from langchain_ctxwin.cli import main
from langchain_ctxwin.models.probing import ACCURACY, most_of_a_probe, probe_limit
from support.fakes import ScriptedChatModel, llama_overflow


def words(messages, tools=None):
    return sum(len(message.text.split()) for message in messages)


def silent(tokens, limit):
    return ContextOverflowError("the input is too long for this model")


def model_of(limit, **options):
    return ScriptedChatModel(input_limit=limit, counter=words, strict=False, **options)


@given(st.integers(1_000, 8_000), st.booleans())
def test_the_limit_that_is_enforced_is_found(limit, is_stated):
    """To 2 %, whether a refusal states it or not, with no more calls and no more tokens than were said."""
    model = model_of(limit, overflow=llama_overflow if is_stated else silent)
    found = probe_limit(model, high=10_000)
    assert limit * (1 - ACCURACY) - 2 <= found.limit <= limit
    assert not is_stated or found.limit == limit
    price = ModelInfo(name="m", input_price=Decimal(1), output_price=Decimal(0))
    calls, cost = most_of_a_probe(price, high=10_000)
    assert found.calls == len(model.requests) <= calls
    assert sum(request.tokens for request in model.requests) == found.input_tokens
    assert Decimal(found.input_tokens) / 1_000_000 <= cost


def test_another_error_ends_a_probe_with_what_it_has_found():
    """A rate limit says nothing about sizes."""

    def answer(messages, tools):
        if words(messages) > 1_500:
            raise ConnectionError("down")
        return AIMessage("ok")

    model = model_of(10_000, policy=answer)
    found = probe_limit(model, high=5_000)
    assert (found.stopped_by, found.limit) == ("ConnectionError", None)


def test_a_size_below_the_first_request_is_refused():
    """Before anything is sent."""
    model = model_of(100)
    with pytest.raises(ConfigError, match="pass more than 1,000"):
        probe_limit(model, high=1_000)
    assert model.requests == []
    with pytest.raises(ConfigError, match="pass a chat model"):
        probe_limit("some-model", high=4_000)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--yes"], 0, "cost up to $"),
        (["--yes"], 0, "limit    "),
        ([], 1, "pass --yes"),
        (["--yes", "--high", "500"], 2, "pass --high TOKENS above 1,000"),
    ],
)
def test_the_command_says_what_it_costs_before_it_probes(
    monkeypatch, capsys, arguments, code, said
):
    """And says how what was found is stated."""
    model = model_of(3_000, overflow=llama_overflow)
    info = ModelInfo(
        name="m", context_window=4_000, input_price=Decimal(5), output_price=Decimal(5)
    )
    monkeypatch.setattr(cli.ModelRegistry, "lookup", lambda *_: info)
    monkeypatch.setattr(cli, "chat_model_named", lambda *_: model)
    assert main(["models", "--probe", "maker:m", *arguments]) == code
    told = capsys.readouterr()
    assert said in told.out + told.err
    assert ("ModelLimits(max_input_tokens=3000)" in told.out) is (code == 0)
    assert bool(model.requests) is (code == 0)
