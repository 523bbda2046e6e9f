"""A provider that refuses without saying how large its window is: the conversation finds out, in few refusals."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ContextConfig, ContextEngine, ContextNodes, ContextOverflow, ModelLimits
from support.fakes import exact_count

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
    """Each one halves the distance to what was taken before; afterwards every request fits."""
    host = Host()
    nodes = ContextNodes(ContextEngine(ModelLimits(factor * REAL_TOKENS, max_output_tokens=1000)))
    node, state, refusals = nodes.model_node(host), {"messages": []}, []
    for number in range(60):
        state["messages"] = [*state["messages"], HumanMessage(QUESTION, id=f"q{number}")]
        state |= nodes.budget_check.invoke(state)
        if nodes.route_on_budget(state) != "build_messages":
            state |= {**getattr(nodes, nodes.route_on_budget(state)).invoke(state), "context_pending": {}}
        update = node.invoke(state)
        state = {**state, **update, "messages": [*state["messages"], *update["messages"]]}
        refusals.append(host.refused)
    assert refusals[-1] <= 4
    assert refusals[30] == refusals[-1]


class NamedLimits:
    """Limits of a model with a name, so that they can be remembered for others."""

    name = "m"
    limits = ModelLimits(32_000)


@pytest.mark.parametrize(("is_stated", "limit"), [(True, 8_000), (False, 32_000)])
def test_only_what_a_provider_stated_is_told_to_other_conversations(is_stated, limit):
    """A limit inferred from an answer may be wrong; it must not shrink a window for everybody."""
    engine = ContextEngine(NamedLimits(), config=ContextConfig(output_reserve=0))
    history = [
        message for n in range(40) for message in (HumanMessage(QUESTION, id=f"q{n}"), AIMessage("ok", id=f"a{n}"))
    ]
    window = engine.measure([*history, HumanMessage("next", id="n")])
    state = engine.recover(window, ContextOverflow(limit=8_000, actual=None, kind="input"), is_stated=is_stated)
    assert engine.measure(history, session=state).budget.input_limit == 8_000
    assert engine.measure([HumanMessage("hi", id="x")]).budget.input_limit == limit


def test_a_refusal_that_states_the_limit_we_kept_to_does_not_shrink_it():
    """Our limit without the reserve is one for input; read as the window, the reserve would come off twice."""
    engine = ContextEngine(limits=ModelLimits(context_window=4096, max_output_tokens=512), counter=exact_count)
    window = engine.measure([HumanMessage("hi", id="1")])
    assert window.budget.input_limit == 3584
    learned = engine.learn(window, ContextOverflow(limit=3584, actual=3600, kind="input"))
    assert learned.budget.input_limit == 3584
