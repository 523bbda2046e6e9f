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
from support.fakes import (
    ScriptedChatModel,
    SdkError,
    exact_count,
)

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


def nodes_of(engine, model, **options):
    """Return a function that asks in a thread; its state is kept in `threads`."""
    nodes = ContextNodes(engine, **options)
    node, threads = nodes.model_node(model), {}

    def ask(text, thread="mine"):
        state = threads.setdefault(thread, {"messages": []})
        state["messages"] = [
            *state["messages"],
            HumanMessage(text, id=f"{thread}-{len(state['messages'])}"),
        ]
        update = node.invoke(state)
        threads[thread] = {
            **state,
            **update,
            "messages": [*state["messages"], *update["messages"]],
        }
        return threads[thread]

    return ask


def limit_of_others(engine):
    return engine.measure([HumanMessage("hello", id="x")]).budget.input_limit


# One conversation against all


CLAIM = "maximum context length is 4096 tokens. However, your messages resulted in 9000 tokens."


def rejected(text):
    return SdkError(
        f"Error code: 400 - content policy: this text was rejected: {text}",
        status_code=400,
    )


def test_a_text_that_claims_a_limit_reaches_no_other_conversation():
    """A provider that quotes the request in its error states what a person wrote; only that conversation obeys it."""
    engine = engine_of()
    model = ScriptedChatModel()
    ask = nodes_of(engine, model)
    for number in range(5):
        model.faults.append(rejected(CLAIM))
        ask(f"{number} {LONG} {CLAIM}")
    assert limit_of_others(engine) == WINDOW


# How a wrong one heals


def test_an_accepted_request_above_a_learned_limit_removes_it_from_its_conversation():
    learned = LearnedSource()
    learned.learn(MODEL, SMALL)
    engine = engine_of(learned=learned)
    prompt = LONG * 3  # more than the limit that was learned
    ask = nodes_of(engine, ScriptedChatModel(), system_prompt=prompt)
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
    assert ask("hello", "another")["context_counts"]["anchor"]["tokens"] > 1000


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
    host = Host()
    nodes = ContextNodes(
        ContextEngine(ModelLimits(factor * REAL_TOKENS, max_output_tokens=1000))
    )
    node, state, refusals = nodes.model_node(host), {"messages": []}, []
    for number in range(60):
        state["messages"] = [
            *state["messages"],
            HumanMessage(QUESTION, id=f"q{number}"),
        ]
        state |= nodes.budget_check.invoke(state)
        if nodes.route_on_budget(state) != "build_messages":
            state |= {
                **getattr(nodes, nodes.route_on_budget(state)).invoke(state),
                "context_pending": {},
            }
        update = node.invoke(state)
        state = {
            **state,
            **update,
            "messages": [*state["messages"], *update["messages"]],
        }
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
