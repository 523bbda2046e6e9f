"""What somebody changes between two looks is noticed: edits of old messages, and between two nodes."""

import traceback

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ModelLimits,
    create_context_agent,
)
from langchain_ctxwin.middleware import ContextWindowMiddleware
from support.agents import LONG, agent_on
from support.fakes import ScriptedChatModel

NEXT = {"messages": [HumanMessage("next?")]}
THREAD = {"configurable": {"thread_id": "1"}}
TOO_LARGE = "This model's maximum context length is 300 tokens. However, your messages resulted in 900 tokens."


def engine_of(window=60_000, **config):
    return ContextEngine(
        ModelLimits(context_window=window, max_output_tokens=500),
        config=ContextConfig(**config),
    )


@pytest.mark.parametrize("kind", ["nodes", "middleware"])
def test_a_thread_with_an_edited_call_stays_valid(kind):
    """`update_state` replaces an answer with a call by one whose call has another id of the same length."""

    @tool
    def write(text: str) -> str:
        """Write."""
        return "ok"

    def policy(messages, tools):
        if isinstance(messages[-1], HumanMessage) and messages[-1].content == "write":
            return AIMessage(
                "",
                tool_calls=[
                    {"name": "write", "args": {"text": "fox"}, "id": "call_aaa"}
                ],
            )
        return AIMessage("fine")

    model, saver = (
        ScriptedChatModel(policy=policy, profile={"max_input_tokens": 8000}),
        InMemorySaver(),
    )
    if kind == "nodes":
        agent = create_context_agent(model, [write], checkpointer=saver)
    else:
        agent = create_agent(
            model, [write], middleware=[ContextWindowMiddleware()], checkpointer=saver
        )
    for text in ("write", "thanks"):
        agent.invoke({"messages": [HumanMessage(text)]}, THREAD)
    call = agent.get_state(THREAD).values["messages"][1]
    other = call.model_copy(
        update={"tool_calls": [{**call.tool_calls[0], "id": "call_bbb"}]}
    )
    agent.update_state(
        THREAD,
        {"messages": [other]},
        as_node="maybe_summarize" if kind == "nodes" else "model",
    )
    for _ in range(2):
        # the model refuses a request whose calls are not answered
        agent.invoke(NEXT, THREAD)


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
    state = agent.get_state(THREAD).values
    return repr(
        {key: value for key, value in state.items() if key.startswith("context_")}
    )


@pytest.mark.parametrize("adapter", ["nodes", "middleware"])
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
    before = agent.get_state(THREAD).values
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
