"""Is what differs between providers and releases of models one table, switched by facts and never by a name?"""

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.core.model_info import RULES, UNKNOWN, rules_of

KEY = {"api_key": "none"}


def test_only_models_that_may_tie_reasoning_lose_it_at_a_compaction():
    """Those of Anthropic, and of whoever nobody knows; a client at another address speaks OpenAI's language."""
    other = ChatOpenAI(model="m", base_url="http://127.0.0.1/v1", **KEY)
    binds = {name: rules.binds_reasoning for name, rules in RULES.items()}
    assert [name for name, is_bound in binds.items() if is_bound] == ["anthropic"]
    assert UNKNOWN.binds_reasoning
    assert not rules_of(other).binds_reasoning
    assert rules_of(ChatAnthropic(model="m", **KEY)).binds_reasoning


def test_a_marked_prefix_lasts_as_long_as_its_provider_says():
    """Anthropic keeps it minutes unless an hour is asked for."""
    seconds = {name: rules.marked_seconds for name, rules in RULES.items()}
    assert min(seconds.items(), key=lambda item: item[1]) == ("anthropic", 300)


@pytest.mark.parametrize(("window", "images"), [(200_000, 100), (1_000_000, 600)])
def test_pictures_are_those_of_the_window(window, images):
    assert RULES["anthropic"].media_limits(window)["max_images"] == images


def test_breakpoints_are_a_fact_of_a_model_and_not_its_name():
    """Its release in the profile, or the capability that a registry states."""
    old, new = (
        ChatOpenAI(model="m", profile={"release_date": day}, **KEY)
        for day in ("2026-07-08", "2026-07-09")
    )
    stated = ModelInfo(
        name="m", provider="openai", capabilities=frozenset({"cache_breakpoints"})
    )
    takes = [rules_of(model).takes_breakpoints for model in (old, new, stated)]
    assert takes == [False, True, True]
