"""The budget of one request, its table, and the refusal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.core.budget import TokenBudget, budget_table, refusal
from langchain_ctxwin.errors import BudgetExceededError, ConfigError

TOKENS = st.integers(0, 10_000_000)

REPORT = {
    "context_window": 10_240,
    "input_limit": 8192,
    "system_tokens": 2000,
    "tool_tokens": 7200,
    "summary_tokens": 0,
    "pinned_tokens": 0,
    "history_tokens": 10,
    "reserved_tokens": 2048,
    "total_tokens": 9210,
    "over_by": 1018,
    "counted_by": "estimate",
}


def test_the_history_gets_what_the_fixed_regions_leave():
    """The reserve is outside the input limit."""
    budget = TokenBudget(8192, 1000, 2000, 300, 200, 2048)
    assert (budget.fixed_tokens, budget.history_budget) == (3500, 4692)


def test_fixed_regions_larger_than_the_limit_leave_nothing():
    """The history budget stops at 0."""
    assert TokenBudget(8192, 2000, 7200, 0, 0, 0).history_budget == 0


@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("value", [-1, 1.0, True, None, "1"])
def test_a_region_that_is_no_size_is_refused(position, value):
    """The error names the region and the value."""
    sizes = [100] * 6
    sizes[position] = value
    with pytest.raises(ConfigError, match=f"_tokens={value!r}|input_limit={value!r}"):
        TokenBudget(*sizes)


@given(sizes=st.tuples(*[TOKENS] * 6))
def test_the_history_budget_is_never_negative_and_never_overfills(sizes):
    """Fixed regions plus history fit the limit whenever the fixed regions do."""
    budget = TokenBudget(*sizes)
    assert budget.history_budget >= 0
    assert budget.history_budget + budget.fixed_tokens == max(budget.input_limit, budget.fixed_tokens)


def test_the_table_shows_every_region_with_its_share():
    """Numbers are right-aligned in columns of fixed width."""
    assert budget_table(REPORT).splitlines() == [
        "region                tokens   of limit",
        "context window        10,240",
        "output reserve         2,048",
        "input limit            8,192     100.0%",
        "system                 2,000      24.4%",
        "tools                  7,200      87.9%",
        "summary                    0       0.0%",
        "pinned                     0       0.0%",
        "history                   10       0.1%",
        "total                  9,210     112.4%",
        "over by                1,018      12.4%",
    ]


def test_an_unknown_window_and_missing_regions_are_shown():
    """A model with an input limit of its own has no window; totals are summed where they are missing."""
    table = budget_table({"context_window": None, "input_limit": 100, "history_tokens": 150})
    assert table.splitlines()[1].split() == ["context", "window", "unknown"]
    assert table.splitlines()[-2:] == [
        "total                    150     150.0%",
        "over by                   50      50.0%",
    ]


def test_a_refusal_names_value_limit_regions_and_what_to_change():
    """One headline, the table, then advice for the large regions; the report rides along."""
    error = refusal(REPORT, changes=["drop the constraint 'always cite'"])
    headline, table, advice = str(error).split("\n\n")
    assert isinstance(error, BudgetExceededError)
    assert headline == (
        "fixed regions need 9,200 of 8,192 tokens (system 2,000, tools 7,200): bind fewer tools or raise context_window"
    )
    assert table == budget_table(REPORT)
    assert advice.splitlines() == [
        "What to change:",
        "- bind fewer tools",
        "- raise context_window (use a model with a larger one)",
        "- drop the constraint 'always cite'",
    ]
    assert error.report == REPORT


def test_advice_follows_the_sizes():
    """The largest region comes first, and a reserve that takes much of the window is named."""
    report = {
        "context_window": 8192,
        "input_limit": 4096,
        "system_tokens": 1500,
        "pinned_tokens": 1400,
        "summary_tokens": 1300,
        "reserved_tokens": 4096,
        "history_tokens": 0,
    }
    assert str(refusal(report)).split("What to change:\n")[1].splitlines() == [
        "- shorten the system prompt",
        "- unpin messages",
        "- lower summary_max_tokens",
        "- lower output_reserve",
        "- raise context_window (use a model with a larger one)",
    ]


def test_a_history_that_cannot_shrink_is_named_as_the_request():
    """When the fixed regions fit, the current message is what has to change."""
    report = {"context_window": 4096, "input_limit": 4096, "system_tokens": 100, "history_tokens": 5000}
    assert str(refusal(report)).splitlines()[0] == (
        "the request needs 5,100 of 4,096 tokens (system 100, history 5,000): "
        "shorten the current message or raise context_window"
    )


@given(report=st.dictionaries(st.sampled_from(sorted(REPORT)), st.none() | TOKENS))
def test_any_report_can_be_printed(report):
    """A partial report gives a complete table and advice."""
    assert len(budget_table(report).splitlines()) == 11
    assert "raise context_window" in str(refusal(report)).splitlines()[0]
