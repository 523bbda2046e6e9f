"""A provider that refuses without saying how large its window is: the conversation finds out, in few refusals."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits

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
