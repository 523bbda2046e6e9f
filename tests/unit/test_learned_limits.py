"""Which stated limits are believed, by whom, and how is a wrong one forgotten?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ContextOverflow,
    ModelLimits,
)
from langchain_ctxwin.core.limits import (
    LEAST_LIMIT_TOKENS,
    NamedLimits,
)
from langchain_ctxwin.models.sources import LearnedSource
from support.agents import ask
from support.fakes import (
    ScriptedChatModel,
    exact_count,
)
from support.graphs import chat_on

WINDOW = 8192
MODEL = "scripted"
LONG = "alpha beta gamma delta " * 100
SMALL = {"context_window": 1000}


def engine_of(window=WINDOW, **options):
    return ContextEngine(
        NamedLimits(ModelLimits(window), MODEL),
        exact_count,
        config=ContextConfig(output_reserve=0),
        **options,
    )


# How a wrong one heals


def test_an_accepted_request_above_a_learned_limit_removes_it_from_its_conversation():
    engine = engine_of()
    prompt = LONG * 3  # more than the limit that was learned
    stored = {
        "messages": [],
        "context_counts": {"limits": {MODEL: SMALL, "other": SMALL}},
    }
    node = ContextNodes(engine, system_prompt=prompt).model_node(ScriptedChatModel())
    update = node.invoke({**stored, "messages": [HumanMessage("hello", id="1")]})
    assert update["context_counts"]["limits"] == {"other": SMALL}
    # stored beside the anchor of a larger request
    counts = {**update["context_counts"], "limits": {MODEL: SMALL}}
    messages = [HumanMessage("hello", id="1"), *update["messages"]]
    again = engine.measure(
        messages, system_prompt=prompt, session={"context_counts": counts}
    )
    assert again.budget.input_limit == WINDOW


# State from outside


@pytest.mark.parametrize(
    ("stored", "text", "prompt", "limit"),
    [
        *(
            ({"context_window": n, "max_input_tokens": n}, LONG, "", WINDOW)
            for n in (1, LEAST_LIMIT_TOKENS - 1)
        ),
        *(
            ({"context_window": n}, "hello", LONG, None)
            for n in (LEAST_LIMIT_TOKENS, 300)
        ),
        (SMALL, "hello", "", 1000),
    ],
)
def test_a_stored_limit_ends_no_conversation_and_is_kept_to_where_it_can_be(
    stored, text, prompt, limit
):
    engine = engine_of()
    session = {"context_counts": {"limits": {MODEL: stored}}}
    window = engine.measure(
        [HumanMessage(text, id="1")], system_prompt=prompt, session=session
    )
    assert engine.emergency(window) is None
    assert window.budget.input_limit == (limit or window.budget.input_limit)


# Limits that nobody states


REAL_TOKENS = 8_000
QUESTION = "alpha beta gamma delta " * 200


class TooLargeError(Exception):
    """What some hosts send: a code, no figures."""

    code = "context_length_exceeded"
    status_code = 400


class Host:
    """Counts four characters a token and refuses silently."""

    def __init__(self):
        self.refused = 0

    def __call__(self, messages):
        if sum(len(message.text) for message in messages) // 4 > REAL_TOKENS:
            self.refused += 1
            raise TooLargeError("Your input exceeds the context window of this model.")
        return AIMessage("ok")


@pytest.mark.parametrize("factor", [2, 4, 16])
def test_few_refusals_teach_a_limit_that_nobody_states(factor):
    limits, host = ModelLimits(factor * REAL_TOKENS, max_output_tokens=1000), Host()
    agent, refusals = chat_on(ContextEngine(limits), host), []
    for _ in range(60):
        ask(agent, QUESTION)
        refusals.append(host.refused)
    assert refusals[-1] <= 4
    assert refusals[30] == refusals[-1]


@pytest.mark.parametrize(("is_stated", "limit"), [(True, 8_000), (False, 32_000)])
def test_only_what_a_provider_stated_is_told_to_other_conversations(is_stated, limit):
    limits, config = (
        NamedLimits(ModelLimits(32_000), "m"),
        ContextConfig(output_reserve=0),
    )
    engine = ContextEngine(limits, config=config, learned=LearnedSource())
    history = [
        message
        for n in range(40)
        for message in (HumanMessage(QUESTION, id=f"q{n}"), AIMessage("ok", id=f"a{n}"))
    ]
    window = engine.measure([*history, HumanMessage("next", id="n")])
    state = engine.recover(
        window,
        ContextOverflow(limit=8_000, actual=None, kind="input"),
        is_stated=is_stated,
    )
    assert engine.measure(history, session=state).budget.input_limit == 8_000
    assert engine.measure([HumanMessage("hi", id="x")]).budget.input_limit == limit
