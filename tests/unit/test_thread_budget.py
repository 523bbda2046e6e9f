"""Does a thread stop where its budget ends: told before, raised or asked then, whichever adapter runs it?"""

from decimal import Decimal

import pytest
from langgraph.types import Command

from langchain_ctxwin import (
    ContextConfig,
    ModelInfo,
    ThreadBudgetError,
)
from langchain_ctxwin.observe import MemorySink
from support.agents import THREAD, agent_on, ask, model_of, on_both, values
from support.fakes import exact_count, script

# tokens in milli-USD
PRICES = ModelInfo(
    name="scripted", input_price=Decimal(1_000), output_price=Decimal(1_000)
)
LIMIT = 4_000


def agent_with(adapter, *, sinks=(), prices=None, **config):
    """Return an agent with a budget, and its model."""
    model = model_of(LIMIT, policy=script(*["done"] * 9))
    settings = ContextConfig(output_reserve=0, **config)
    return agent_on(
        adapter, model, config=settings, counter=exact_count, sinks=sinks, prices=prices
    ), model


def ask_often(agent):
    for _ in range(9):
        ask(agent, "Hello, who are you?")


def spent(agent):
    return values(agent)["context_guard"]["spent"]


@on_both
def test_the_next_call_of_a_spent_thread_is_not_made(adapter):
    sink = MemorySink()
    agent, model = agent_with(adapter, max_thread_tokens=60, sinks=[sink])
    with pytest.raises(ThreadBudgetError) as caught:
        ask_often(agent)
    assert caught.value.setting == "max_thread_tokens"
    assert int(caught.value.spent) == spent(agent)["tokens"] >= 60
    used = [
        message.usage_metadata["total_tokens"]
        for message in values(agent)["messages"]
        if message.type == "ai"
    ]
    assert sum(used) == spent(agent)["tokens"]
    assert len(model.requests) == len(used) < 9
    notices = [event.notice for event in sink.events if hasattr(event, "notice")]
    assert notices == ["budget_near", "budget_spent"]


@on_both
def test_cost_is_counted_by_the_prices_that_are_known(adapter):
    agent, _ = agent_with(adapter, max_thread_cost="0.05", prices=PRICES)
    ask(agent, "Hello, who are you?")
    assert Decimal(spent(agent)["cost"]) == Decimal(spent(agent)["tokens"]) / 1_000
    with pytest.raises(
        ThreadBudgetError,
        match=r"the thread spent 0\.\d+ of max_thread_cost=0\.05: raise",
    ):
        ask_often(agent)


@on_both
def test_a_person_may_allow_more(adapter):
    agent, model = agent_with(adapter, max_thread_tokens=30, on_budget="interrupt")
    ask(agent, "Hello, who are you?")
    ask(agent, "Hello, who are you?")
    asked = ask(agent, "And now?")["__interrupt__"][0].value
    assert (asked["reason"], asked["setting"], asked["limit"]) == (
        "thread_budget",
        "max_thread_tokens",
        "30",
    )
    calls = len(model.requests)
    again = agent.invoke(Command(resume="yes"), THREAD)["__interrupt__"][0].value
    assert (
        again["fault"]
        == "resumed with 'yes': give a new limit by the name of its setting"
    )
    done = agent.invoke(Command(resume={"max_thread_tokens": 500}), THREAD)
    assert done["messages"][-1].text == "done"
    ask(agent, "Go on.")
    assert len(model.requests) == calls + 2
