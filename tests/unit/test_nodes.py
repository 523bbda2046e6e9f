"""The nodes inside real LangGraph graphs."""

from __future__ import annotations

import operator
import time
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from typing_extensions import TypedDict

from langchain_ctxwin import ContextNodes, add_context_nodes, create_context_agent
from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.core.priced_view import pin
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError
from langchain_ctxwin.graph.state import ContextInput, ContextOutput, ContextState
from support.fakes import ScriptedChatModel, SdkError, core_overflow, openai_overflow, script, tool_loop
from support.oracle import exact_count

THREAD = {"configurable": {"thread_id": "1"}}
LONG = "The quick brown fox jumps over the lazy dog. " * 12  # about 120 tokens


@tool
def read(path: str = "a") -> str:
    """Read a file."""
    return f"contents of {path}: {LONG}"


def engine_of(window, **config):
    settings = ContextConfig(output_reserve=0, **config)
    return ContextEngine(limits=ModelLimits(context_window=window), counter=exact_count, config=settings)


def graph_of(model, *, window=1000, tools=(), checkpointer=None, engine=None, state=ContextState, **options):
    """Return the wiring that the documentation shows."""
    engine = engine or engine_of(window)
    nodes = ContextNodes(engine, system_prompt="You are helpful.", tools=tools)
    builder = StateGraph(state, input_schema=ContextInput, output_schema=ContextOutput)
    retry = options.pop("retry_policy", None)
    call = model.bind_tools(tools) if tools else model
    add_context_nodes(builder, nodes, model=call, retry_policy=retry)
    builder.add_edge(START, "budget_check")
    builder.add_node("tools", ToolNode(list(tools)))
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "maybe_summarize"})
    builder.add_edge("tools", "budget_check")
    return builder.compile(checkpointer=checkpointer or InMemorySaver(), **options)


def ask(graph, text, config=THREAD):
    return graph.invoke({"messages": [HumanMessage(text)]}, config)


def sent(model):
    return [[(m.type, m.content) for m in request.messages] for request in model.requests]


def test_the_drawing_shows_the_nodes_and_edges():
    """`get_graph` has every node and conditional edge of the contract."""
    drawn = graph_of(ScriptedChatModel(), tools=[read]).get_graph()
    edges = {(edge.source, edge.target, edge.conditional) for edge in drawn.edges}
    assert set(drawn.nodes) == {
        "__start__",
        "budget_check",
        "maybe_summarize",
        "force_compress",
        "build_messages",
        "agent",
        "tools",
        "__end__",
    }
    assert edges == {
        ("__start__", "budget_check", False),
        ("budget_check", "maybe_summarize", True),
        ("budget_check", "force_compress", True),
        ("budget_check", "build_messages", True),
        ("maybe_summarize", "force_compress", True),
        ("maybe_summarize", "build_messages", True),
        ("maybe_summarize", "__end__", True),
        ("force_compress", "build_messages", False),
        ("build_messages", "agent", False),
        ("agent", "tools", True),
        ("agent", "maybe_summarize", True),
        ("tools", "budget_check", False),
    }


@pytest.mark.parametrize(
    ("state", "destination"),
    [
        ({"context_pending": {"due": True}, "context_report": {"over_by": 9}}, "maybe_summarize"),
        ({"context_pending": {}, "context_report": {"over_by": 9}}, "force_compress"),
        ({"context_report": {"over_by": 0}}, "build_messages"),
        ({"messages": [HumanMessage("hi")]}, "build_messages"),
        ({"messages": [HumanMessage(LONG * 20)]}, "force_compress"),
        ({}, "build_messages"),
    ],
)
def test_the_route_follows_the_budget(state, destination):
    """A due summary first, then compression when over the limit; without a report the request is measured."""
    assert ContextNodes(engine_of(500)).route_on_budget(state) == destination


def test_a_long_conversation_fits_in_every_request():
    """Forty turns through a window of six hundred tokens, under a model that refuses more."""
    model = ScriptedChatModel(input_limit=600)
    graph = graph_of(model, window=600)
    for number in range(40):
        ask(graph, f"question {number} {LONG[:200]}")
    assert [request.refused for request in model.requests] == [False] * 40
    assert len(graph.get_state(THREAD).values["messages"]) == 80
    last = model.requests[-1].messages[-1]
    assert last.content.startswith("question 39 ")


async def test_sync_async_and_streaming_send_the_same_requests():
    """Three ways to run one conversation leave one history and one state."""
    runs = []
    for how in ("invoke", "ainvoke", "stream", "astream"):
        model = ScriptedChatModel(input_limit=700, policy=tool_loop(steps=3))
        graph = graph_of(model, window=700, tools=[read])
        for number in range(6):
            message = {"messages": [HumanMessage(f"question {number}", id=f"q{number}")]}
            match how:
                case "invoke":
                    graph.invoke(message, THREAD)
                case "ainvoke":
                    await graph.ainvoke(message, THREAD)
                case "stream":
                    list(graph.stream(message, THREAD, stream_mode="messages"))
                case _:
                    [chunk async for chunk in graph.astream(message, THREAD, stream_mode="messages")]
        view = graph.get_state(THREAD).values
        runs.append((sent(model), view["context_summary"], view["context_record"]["left"]))
    assert runs[1:] == runs[:1] * 3


def test_a_turn_of_sixty_steps_fits_and_keeps_its_question():
    """Steps leave inside the one turn; the question is in every request."""
    model = ScriptedChatModel(input_limit=1200, policy=_count_to(60))
    graph = graph_of(model, window=1200, tools=[read])
    ask(graph, "the one question")
    assert len(model.requests) == 61
    assert not any(request.refused for request in model.requests)
    assert all("the one question" in [m.content for m in request.messages] for request in model.requests)


def _count_to(steps):
    done = iter(range(steps))

    def decide(messages, tools):
        number = next(done, None)
        if number is None:
            return AIMessage("finished")
        return AIMessage("", tool_calls=[{"name": "read", "args": {"path": f"f{number}"}, "id": f"call-{number}"}])

    return decide


def test_a_five_megabyte_tool_result_is_shown_by_head_and_tail():
    """The request fits, and the history keeps the whole result."""

    @tool
    def dump() -> str:
        """Return everything."""
        return "start " + "x" * 5_000_000 + " end"

    model = ScriptedChatModel(policy=tool_loop(steps=1), input_limit=2000)
    engine = ContextEngine(
        limits=ModelLimits(context_window=1500), counter=_by_chars, config=ContextConfig(output_reserve=0)
    )
    graph = graph_of(model.model_copy(update={"counter": _by_chars}), tools=[dump], engine=engine)
    result = ask(graph, "dump it")
    whole = next(message for message in result["messages"] if message.type == "tool")
    assert len(whole.content) == 5_000_010
    shown = model.requests[-1].messages[-1]
    assert shown.content.startswith("start x")
    assert shown.content.endswith("x end")
    assert len(shown.content) < 6000


def _by_chars(messages, *, tools=None):
    return sum(4 + len(str(message.content)) // 4 for message in messages) + 30 * len(tools or ())


@pytest.mark.parametrize("overflow", [core_overflow, openai_overflow])
@pytest.mark.parametrize("times", [1, 2])
def test_an_overflow_is_recovered_inside_the_model_node(overflow, times):
    """The retry is smaller, valid, and learns the stated limit."""
    model = ScriptedChatModel(faults=[])
    graph = graph_of(model, window=2000)
    for number in range(8):
        ask(graph, f"question {number} {LONG}")
    before = len(model.requests)
    model.faults.extend(overflow(1500, 1250) for _ in range(times))
    result = ask(graph, "and now?")
    attempts = model.requests[before:]
    assert [request.refused for request in attempts] == [True] * times + [False]
    sizes = [request.tokens for request in attempts]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == times + 1
    assert result["messages"][-1].content.endswith("and now?")
    limits = graph.get_state(THREAD).values["context_counts"]["limits"]
    assert list(limits["scripted"].values() if "scripted" in limits else limits[""].values()) == [1250]


def test_an_overflow_that_never_ends_leaves_as_the_providers_exception_and_a_resume_works():
    """`max_recoveries` retries, then the provider's type; `invoke(None)` runs the node again."""
    model = ScriptedChatModel()
    graph = graph_of(model, window=2000)
    for number in range(8):
        ask(graph, f"question {number} {LONG}")
    model.faults.extend(openai_overflow(1500, 1400 - 100 * i) for i in range(3))
    before = len(model.requests)
    with pytest.raises(SdkError, match="context_length_exceeded"):
        ask(graph, "and now?")
    assert len(model.requests) - before == 3
    assert graph.get_state(THREAD).next == ("agent",)
    result = graph.invoke(None, THREAD)
    assert result["messages"][-1].content.endswith("and now?")


def test_other_errors_are_not_retried():
    """A rate limit leaves at once and unchanged."""
    limited = SdkError("Rate limit reached: too many tokens per minute", status_code=429, code="rate_limit_exceeded")
    model = ScriptedChatModel(faults=[limited])
    graph = graph_of(model)
    with pytest.raises(SdkError) as caught:
        ask(graph, "hi")
    assert (caught.value, len(model.requests)) == (limited, 1)
    assert graph.invoke(None, THREAD)["messages"][-1].content.endswith("hi")


def test_media_stays_on_the_retry():
    """The picture of the current question is in the retried request, unchanged."""
    picture = {"type": "image", "base64": "QUJD", "mime_type": "image/png"}
    model = ScriptedChatModel()
    graph = graph_of(model, window=2000)
    for number in range(8):
        ask(graph, f"question {number} {LONG}")
    model.faults.append(core_overflow(1500, 1000))
    graph.invoke({"messages": [HumanMessage([{"type": "text", "text": "what is it? " + LONG}, picture])]}, THREAD)
    assert picture in model.requests[-1].messages[-1].content


def test_retry_on_never_resends_an_oversized_request():
    """Overflows and our own errors are final; what LangGraph retries by default still is."""
    assert not ContextNodes.retry_on(core_overflow(10, 5))
    assert not ContextNodes.retry_on(openai_overflow(10, 5))
    assert not ContextNodes.retry_on(BudgetExceededError("no"))
    assert not ContextNodes.retry_on(ValueError("no"))
    assert ContextNodes.retry_on(ConnectionError("again"))


def test_model_input_rebuilds_what_is_missing_or_stale():
    """The rebuilt list is identical to the one that was built."""
    nodes = ContextNodes(engine_of(1000), system_prompt="You are helpful.")
    state = {"messages": [HumanMessage("one", id="1")]}
    built = nodes.build_messages.invoke(state)["llm_input_messages"]
    assert nodes.model_input(state) == built
    assert nodes.model_input(state | {"llm_input_messages": built}) == built
    later = {"messages": [*state["messages"], AIMessage("two", id="2"), HumanMessage("three", id="3")]}
    assert [m.content for m in nodes.model_input(later | {"llm_input_messages": built})] == [
        "You are helpful.",
        "one",
        "two",
        "three",
    ]


def test_nothing_to_send_is_a_typed_error():
    """Only system messages: no model is called."""
    model = ScriptedChatModel()
    graph = graph_of(model)
    with pytest.raises(ContextWindowError, match="nothing to send"):
        graph.invoke({"messages": [SystemMessage("Be brief.")]}, THREAD)
    assert model.requests == []


def test_an_empty_history_is_a_typed_error():
    """No message at all: no model is called."""
    model = ScriptedChatModel()
    with pytest.raises(ContextWindowError, match="nothing to send"):
        graph_of(model).invoke({"messages": []}, THREAD)
    assert model.requests == []


def test_a_window_smaller_than_the_fixed_regions_is_refused_before_any_call():
    """The error is the table of regions."""
    model = ScriptedChatModel()
    with pytest.raises(BudgetExceededError, match=r"(?s)tools.*What to change"):
        ask(graph_of(model, window=40, tools=[read]), "hi")
    assert model.requests == []


@pytest.mark.parametrize("interrupt", [["agent"], ["build_messages"]])
def test_a_run_that_stopped_before_the_model_resumes_with_the_same_request(interrupt):
    """`llm_input_messages` is not checkpointed; the node rebuilds it."""
    model, straight = ScriptedChatModel(), ScriptedChatModel()
    graph = graph_of(model, interrupt_before=interrupt)
    ask(graph, "hi")
    assert model.requests == []
    graph.invoke(None, THREAD)
    ask(graph_of(straight), "hi")
    assert sent(model) == sent(straight)


def test_an_edit_while_the_run_is_stopped_still_fits():
    """A question that grows past the window between check and call is compacted in the model node."""
    model = ScriptedChatModel(input_limit=300)
    graph = graph_of(model, window=300, interrupt_before=["agent"])
    graph.invoke({"messages": [HumanMessage("short", id="q")]}, THREAD)
    graph.update_state(THREAD, {"messages": [HumanMessage("grown " + LONG * 10, id="q")]}, as_node="build_messages")
    graph.invoke(None, THREAD)
    assert [request.refused for request in model.requests] == [False]
    assert model.requests[0].messages[-1].content.startswith("grown The quick")


def test_an_edit_of_an_old_message_is_counted():
    """The reported size of an earlier request does not hide that a message in it has grown since."""
    model = ScriptedChatModel(input_limit=600)
    graph = graph_of(model, window=600)
    graph.invoke({"messages": [HumanMessage("short", id="q")]}, THREAD)
    graph.update_state(THREAD, {"messages": [HumanMessage("grown " + LONG * 8, id="q")]})
    ask(graph, "next")
    assert [request.refused for request in model.requests] == [False, False]


def test_removals_keep_the_view_valid():
    """Removing the message where the view starts drops the view; the next request is built anew."""
    model = ScriptedChatModel(input_limit=500)
    graph = graph_of(model, window=500)
    for number in range(10):
        ask(graph, f"question {number} {LONG[:200]}")
    start = graph.get_state(THREAD).values["context_view"]["start"]["id"]
    graph.update_state(THREAD, {"messages": [RemoveMessage(id=start)]})
    ask(graph, "after the removal")
    assert not any(request.refused for request in model.requests)
    assert find_faults(list(model.requests[-1].messages)) == []


def test_a_fork_from_the_past_sees_only_its_own_past():
    """Time travel brings view and history back together."""
    model = ScriptedChatModel(input_limit=500)
    graph = graph_of(model, window=500)
    for number in range(10):
        ask(graph, f"question {number} {LONG[:200]}")
    past = next(s for s in graph.get_state_history(THREAD) if not s.next and len(s.values.get("messages", ())) == 8)
    ask(graph, "another way", past.config)
    texts = " ".join(str(m.content) for m in model.requests[-1].messages)
    assert "another way" in texts
    assert not any(f"question {n}" in texts for n in range(4, 10))
    assert not model.requests[-1].refused


def test_a_pin_on_a_message_that_left_takes_effect_at_once():
    """Writing the marked copy back shows it in the next request."""
    model = ScriptedChatModel(input_limit=600)
    graph = graph_of(model, engine=engine_of(600, pin_first_user=False))
    for number in range(10):
        ask(graph, f"question {number} {LONG[:200]}")
    messages = graph.get_state(THREAD).values["messages"]
    assert messages[2].content not in [m.content for m in model.requests[-1].messages]
    graph.update_state(THREAD, {"messages": [pin(messages[2])]})
    ask(graph, "next")
    assert messages[2].content in [m.content for m in model.requests[-1].messages]


class OwnSummarizer:
    """A user's summarizer that calls a chat model in its own async form."""

    def __init__(self, writer):
        self.writer = writer

    def summarize(self, messages, *, previous, max_tokens):
        return self.writer.invoke([HumanMessage("sum up")]).text

    async def asummarize(self, messages, *, previous, max_tokens):
        return (await self.writer.ainvoke([HumanMessage("sum up")])).text


async def test_a_summarizer_of_the_users_own_does_not_leak_into_an_async_stream():
    """The summarizer runs outside the context that streams to the user."""
    writer = ScriptedChatModel(policy=script("SUMMARY of what happened"))
    engine = ContextEngine(
        limits=ModelLimits(context_window=4000),
        counter=exact_count,
        summarizer=OwnSummarizer(writer),
        config=ContextConfig(output_reserve=0, trigger_messages=6, summarize="inline"),
    )
    graph = graph_of(ScriptedChatModel(policy=script("fine")), engine=engine)
    streamed = ""
    for number in range(6):
        message = {"messages": [HumanMessage(f"question {number} {LONG}")]}
        streamed += "".join([c.text async for c, _ in graph.astream(message, THREAD, stream_mode="messages")])
    assert writer.requests
    assert streamed == "fine" * 6


def test_a_request_that_waits_behind_a_summary_is_still_sent():
    """A history that ends in an answer is not taken for a finished turn when the summary came first."""
    model = ScriptedChatModel(policy=script("fine"))
    config = ContextConfig(output_reserve=0, trigger_messages=4)
    engine = ContextEngine(limits=ModelLimits(context_window=4000), counter=exact_count, config=config)
    graph = graph_of(model, engine=engine)
    talk = [m for n in range(6) for m in (HumanMessage(f"q{n} {LONG}"), AIMessage(f"a{n} {LONG}"))]
    graph.invoke({"messages": talk}, THREAD)
    assert len(model.requests) == 1


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_an_inline_summary_is_shown_and_does_not_leak_into_the_stream(asynchronous):
    """The summary model's tokens are no part of `stream_mode='messages'`."""
    writer = ScriptedChatModel(policy=script("SUMMARY of what happened"))
    model = ScriptedChatModel(policy=script("fine"))
    engine = ContextEngine(
        limits=ModelLimits(context_window=4000),
        counter=exact_count,
        summarizer=writer,
        config=ContextConfig(output_reserve=0, trigger_messages=6, summarize="inline"),
    )
    graph = graph_of(model, engine=engine)
    streamed = ""
    for number in range(6):
        message = {"messages": [HumanMessage(f"question {number} {LONG}")]}
        if asynchronous:
            chunks = [c async for c in graph.astream(message, THREAD, stream_mode="messages")]
        else:
            chunks = list(graph.stream(message, THREAD, stream_mode="messages"))
        streamed += "".join(chunk.text for chunk, _ in chunks)
    assert writer.requests
    assert streamed == "fine" * 6
    assert any("SUMMARY of what happened" in message.text for message in model.requests[-1].messages)


def test_the_summary_can_be_a_user_message():
    """With placement "user" the system prompt stays as it is."""
    model = ScriptedChatModel(input_limit=600)
    graph = graph_of(model, engine=engine_of(600, summary_placement="user"))
    for number in range(10):
        ask(graph, f"question {number} {LONG[:200]}")
    system, *others = model.requests[-1].messages
    (record,) = (message for message in others if message.id == "ctxwin-record")
    assert (system.content, record.type) == ("You are helpful.", "human")
    assert record.content.startswith("<record>")


def test_a_hanging_summarizer_fails_no_turn():
    """After the timeout the turn goes on without a summary."""

    def hang(messages):
        time.sleep(30)

    config = ContextConfig(output_reserve=0, summary_timeout_seconds=0.05, summarize="inline")
    limits = ModelLimits(context_window=600)
    engine = ContextEngine(limits=limits, counter=exact_count, summarizer=hang, config=config)
    model = ScriptedChatModel(input_limit=600)
    graph = graph_of(model, engine=engine)
    for number in range(6):
        ask(graph, f"question {number} {LONG[:300]}")
    assert [request.refused for request in model.requests] == [False] * 6
    assert graph.get_state(THREAD).values["context_summary"] == ""


def test_a_subgraph_agent_keeps_its_session():
    """Compiled with `checkpointer=True` it remembers its own view between calls."""
    model = ScriptedChatModel(input_limit=500)
    agent = graph_of(model, window=500, checkpointer=True)

    class Parent(TypedDict):
        text: str
        answers: Annotated[list[str], operator.add]

    def call(state: Parent) -> dict[str, Any]:
        result = agent.invoke({"messages": [HumanMessage(state["text"])]})
        return {"answers": [result["messages"][-1].content]}

    builder = StateGraph(Parent)
    builder.add_node("call", call)
    builder.add_edge(START, "call")
    parent = builder.compile(checkpointer=InMemorySaver())
    for number in range(10):
        parent.invoke({"text": f"question {number} {LONG[:200]}"}, THREAD)
    assert not any(request.refused for request in model.requests)
    assert any(message.id == "ctxwin-record" for message in model.requests[-1].messages)


def test_parallel_agents_as_subgraphs_keep_apart():
    """Two agents in one step, each with its own state."""
    left, right = ScriptedChatModel(input_limit=500), ScriptedChatModel(input_limit=500)
    agents = {
        "left": graph_of(left, window=500, checkpointer=True),
        "right": graph_of(right, window=500, checkpointer=True),
    }

    class Parent(TypedDict):
        text: str
        answers: Annotated[list[str], operator.add]

    def caller(name):
        def call(state: Parent) -> dict[str, Any]:
            result = agents[name].invoke({"messages": [HumanMessage(f"{name} {state['text']}")]})
            return {"answers": [result["messages"][-1].content]}

        return call

    builder = StateGraph(Parent)
    for name in agents:
        builder.add_node(name, caller(name))
        builder.add_edge(START, name)
    parent = builder.compile(checkpointer=InMemorySaver())
    for number in range(6):
        parent.invoke({"text": f"question {number} {LONG[:200]}"}, THREAD)
    for name, model in (("left", left), ("right", right)):
        texts = [str(m.content) for request in model.requests for m in request.messages if m.type == "human"]
        assert texts
        assert all(text.startswith(name) for text in texts)
        assert not any(request.refused for request in model.requests)


def test_the_ready_agent_runs_its_tools():
    """`create_context_agent` answers after its calls, within the window it was told."""
    model = ScriptedChatModel(policy=tool_loop(steps=2, parallel=2), input_limit=1500)
    agent = create_context_agent(model, [read], limits=ModelLimits(1500), system_prompt="You are helpful.")
    result = agent.invoke({"messages": [("user", "go")]})
    assert [m.type for m in result["messages"]] == ["human", *["ai", "tool", "tool"] * 2, "ai"]
    assert set(result) == {"messages"}


def test_a_late_result_is_shown_where_it_arrives():
    """An abandoned call is answered by a placeholder; what arrives later is no longer a result, but never denied."""
    model = ScriptedChatModel()
    graph = graph_of(model)
    call = AIMessage("", tool_calls=[{"name": "read", "args": {}, "id": "c"}])
    history = [HumanMessage("one"), call, HumanMessage("two"), ToolMessage("late", tool_call_id="c")]
    graph.invoke({"messages": history}, THREAD)
    shown = [(m.type, m.content) for m in model.requests[0].messages[1:]]
    assert shown == [
        ("human", "one"),
        ("ai", ""),
        ("tool", "[No result: this call was not answered.]"),
        ("human", "two"),
        ("human", "[Result of an earlier call, which came late]\nlate"),
    ]
