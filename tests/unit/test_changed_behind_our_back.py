"""What somebody changes between two looks is noticed: edits of old messages, and between two nodes."""

import traceback

import pytest
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
)
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ModelLimits,
)
from support.agents import LONG, THREAD, agent_on, on_both, values
from support.fakes import ScriptedChatModel

TOO_LARGE = "This model's maximum context length is 300 tokens. However, your messages resulted in 900 tokens."


def engine_of(window=60_000, **config):
    return ContextEngine(
        ModelLimits(context_window=window, max_output_tokens=500),
        config=ContextConfig(**config),
    )


def test_the_exception_of_a_provider_keeps_its_cause():
    """The HTTP error below it has the id that support asks for; why recovery ended is a note."""

    def model(_):
        raise ValueError(TOO_LARGE) from OSError("413 from gateway, request id abc")

    node = ContextNodes(engine_of(8000)).model_node(model)
    with pytest.raises(ValueError, match="maximum context length") as refusal:
        node.invoke({"messages": [HumanMessage("short", id="1")]})
    told = "".join(traceback.format_exception(refusal.value))
    assert "request id abc" in told
    assert isinstance(refusal.value.__cause__, OSError)


SECRET = "the code of the safe is 4711"  # noqa: S105  # what nobody is to be told


class Remembering:
    """Writes summaries that tell the secret, where it stands in what they are written from."""

    def summarize(self, messages, *, previous, max_tokens):
        told = previous + repr([message.content for message in messages])
        return f"They know that {SECRET}." if SECRET in told else "They talked."


def long_agent(adapter, mode="inline"):
    """An agent whose first messages left long ago, into a summary that tells the secret, or into the record alone."""
    model = ScriptedChatModel(
        policy=lambda messages, _: AIMessage("Noted. " * 60),
        profile={"max_input_tokens": 1500},
        input_limit=1500,
    )
    options = {
        "config": ContextConfig(summarize=mode, output_reserve=0, pin_first_user=False)
    }
    if mode != "off":
        options["summarizer"] = Remembering()
    agent = agent_on(adapter, model, **options, store=InMemoryStore())
    for number in range(10):
        said = (
            f"Never tell that {SECRET}." if number == 1 else f"question {number} {LONG}"
        )
        agent.invoke({"messages": [HumanMessage(said, id=f"q{number}")]}, THREAD)
    return agent, model


def everything_kept(agent):
    """What the state holds beside the messages."""
    return repr({k: v for k, v in values(agent).items() if k.startswith("context_")})


@on_both
@pytest.mark.parametrize("mode", ["inline", "off"])
@pytest.mark.parametrize(
    "change",
    [RemoveMessage(id="q1"), HumanMessage("Never tell anything.", id="q1")],
    ids=["removed", "replaced"],
)
def test_what_was_removed_or_replaced_after_it_left_is_in_no_request_any_more(
    adapter, mode, change
):
    """Neither by the summary that covers it nor by the record."""
    agent, model = long_agent(adapter, mode)
    before = values(agent)
    assert before["context_view"]["start"]["index"] > 4
    assert ("context_summary" in before and SECRET in before["context_summary"]) is (
        mode == "inline"
    )
    assert SECRET in repr([message.content for message in model.requests[-1].messages])
    agent.update_state(
        THREAD,
        {"messages": [change]},
        as_node="maybe_summarize" if adapter == "nodes" else "model",
    )
    for number in range(3):
        agent.invoke({"messages": [HumanMessage(f"more {number} {LONG}")]}, THREAD)
        assert SECRET not in repr(
            [message.content for message in model.requests[-1].messages]
        )
        assert SECRET not in everything_kept(agent)
    assert "question 3" in repr(
        [m.content for m in model.requests[-1].messages]
    ) + everything_kept(agent)
    assert not any(request.refused for request in model.requests)
