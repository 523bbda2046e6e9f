"""Does the recall tool give an agent what left its view, and nothing that it sees anyway?"""

import inspect
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode
from test_recall import Topics

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextState,
    ModelLimits,
    TokenEstimator,
    create_context_agent,
    create_recall_tool,
)
from langchain_ctxwin.recall import handles, positions_called
from support.conversations import conversations
from support.fakes import ScriptedChatModel

CONFIG = {"configurable": {"thread_id": "t"}}
UNTIL_STORIES_LEFT = 30
CALL = {"name": "recall", "args": {}, "id": "r"}


def calling(*messages, view=None):
    """Return the state in which a model calls the tool after a question."""
    asked = [HumanMessage("Which one was it?", id="asked"), AIMessage("", id="calling", tool_calls=[CALL])]
    return {"messages": [*messages, *asked], **({"context_view": view} if view else {})}


def run(state, *, tool=None, **arguments):
    """Call the tool's function as ToolNode does."""
    return (tool or create_recall_tool()).func(SimpleNamespace(state=state), **arguments)


def view(start, index, **parts):
    return {"start": {"id": start, "index": index}, **parts}


def told(number, text):
    return HumanMessage(text, id=f"m{number}")


FACT = "The locker code is KX-4471."


def policy(messages, tools):
    """Ask the tool once per question, then repeat what it said."""
    last = messages[-1]
    if last.type == "tool":
        return AIMessage(f"I found: {last.content}")
    if "?" in last.text:
        return AIMessage("", tool_calls=[{"name": "recall", "args": {"query": last.text}, "id": f"r{len(messages)}"}])
    return AIMessage("Noted.")


def own_agent(tool):
    model = ScriptedChatModel(policy=policy, input_limit=900)
    limits = ModelLimits(context_window=1200, requested_output_tokens=300)
    config = ContextConfig(summarize="off")  # a summary might repeat the fact
    return create_context_agent(model, [tool], limits=limits, config=config, checkpointer=InMemorySaver()), model


def host_agent(tool):
    model = ScriptedChatModel(policy=policy)
    return create_agent(model, [tool], checkpointer=InMemorySaver()), model


def stories():
    yield "Hello there."
    yield FACT
    for number in range(UNTIL_STORIES_LEFT):
        yield f"Story {number}: " + "lorem ipsum dolor " * 12


@pytest.mark.parametrize("make", [own_agent, host_agent])
def test_an_agent_reads_again_what_it_was_told_long_ago(make):
    """The first fact left the view; one call brings it back."""
    agent, model = make(create_recall_tool(max_tokens=250))
    for text in stories():
        agent.invoke({"messages": [HumanMessage(text)]}, CONFIG)
    answer = agent.invoke({"messages": [HumanMessage("What was the locker code?")]}, CONFIG)["messages"][-1]
    assert FACT in answer.text
    assert make is host_agent or FACT not in str(model.requests[-2].messages)


@pytest.mark.parametrize("make", [own_agent, host_agent])
async def test_an_agent_that_is_awaited_reads_the_same(make):
    """The tool's coroutine is used, and finds the same."""
    agent, model = make(create_recall_tool(max_tokens=250))
    for text in stories():
        await agent.ainvoke({"messages": [HumanMessage(text)]}, CONFIG)
    result = await agent.ainvoke({"messages": [HumanMessage("What was the locker code?")]}, CONFIG)
    assert FACT in result["messages"][-1].text
    assert make is host_agent or FACT not in str(model.requests[-2].messages)


def in_tool_node(state, **arguments):
    """Run the tool in a graph of its own and return the tool message."""
    builder = StateGraph(ContextState)
    builder.add_node("tools", ToolNode([create_recall_tool()]))
    builder.add_edge(START, "tools")
    state["messages"][-1].tool_calls[0]["args"] = arguments
    return builder.compile().invoke(state)["messages"][-1]


def test_a_mistake_comes_back_as_a_sentence_and_marked_as_an_error():
    """The model is told what to do, the run goes on."""
    empty, unknown = in_tool_node(calling(told(0, "Hi."))), in_tool_node(calling(told(0, "Hi.")), message_id="nope")
    assert (empty.status, unknown.status) == ("error", "error")
    assert "give `query` with words" in empty.text
    assert "No message has the id 'nope'" in unknown.text


def test_the_model_sees_three_arguments():
    """The state is given by the graph, not by the model."""
    schema = create_recall_tool().tool_call_schema.model_json_schema()
    assert (list(schema["properties"]), schema.get("required")) == (["query", "message_id", "offset_chars"], None)
    assert all("description" in field for field in schema["properties"].values())


def test_messages_come_whole_and_in_the_order_they_were_said():
    """Each has its id, who said it, and the turn."""
    call = AIMessage("Let me look.", id="m2", tool_calls=[{"name": "find", "args": {"key": 1}, "id": "c"}])
    messages = [told(0, "Find the key."), call, ToolMessage("A key.", tool_call_id="c", id="m3", name="find")]
    page = run(calling(*messages, AIMessage("The key is here.", id="m4", name="Ann")), query="key")
    assert page == (
        "4 of 4 matching messages, the most relevant that fit, oldest first:\n\n"
        "[m0, user, turn 1]\nFind the key.\n\n"
        '[m2, assistant, turn 1]\nLet me look.\nfind {"key":1}\n\n'
        "[m3, tool find, turn 1]\nA key.\n\n"
        "[m4, assistant Ann, turn 1]\nThe key is here."
    )


def test_neither_the_question_nor_earlier_recalls_are_returned():
    """A question matches itself best of all, and so do its earlier answers."""
    recalls = [
        AIMessage("", id="r1", tool_calls=[{**CALL, "args": {"query": "which one was it"}, "id": "r0"}]),
        ToolMessage("[m0]\nWhich one it was", tool_call_id="r0", id="r2", name="recall"),
        ToolMessage("Which one it was", tool_call_id="r0", id="r3"),
    ]
    state = calling(told(0, "The red one was it."), AIMessage("Yes.", id="m1"), *recalls)
    page = run(state, query="which one")
    assert [part.split(",")[0] for part in page.split("\n[")[1:]] == ["m0", "m1"]


def test_what_the_model_sees_in_full_is_not_returned():
    """Pinned messages and those of the view are there already; what lies before is not."""
    messages = [SystemMessage("Rules about keys.", id="s"), *(told(n, f"Key number {n}.") for n in range(6))]
    page = run(calling(*messages, view=view("m3", 4, pinned=[["m1", 2]])), query="key number")
    assert "2 of 2 matching messages (not counting 5 in your view)" in page
    assert [part.split(",")[0] for part in page.split("\n[")[1:]] == ["m0", "m2"]


def test_what_is_shown_only_in_part_counts_as_not_seen():
    """Cleared results and clamped messages are returned whole."""
    calls = AIMessage("", id="m1", tool_calls=[{"name": "read", "args": {}, "id": c} for c in ("a", "b", "c")])
    results = [ToolMessage(f"Key {c}.", tool_call_id=c, id=c) for c in ("a", "b", "c")]
    edits = {"cleared": ["a"], "clamped": {key: {"head_chars": 3, "tail_chars": 3} for key in ("b", "m0")}}
    page = run(calling(told(0, "A long text on keys."), calls, *results, view=view("m0", 0, **edits)), query="key")
    assert [part.split(",")[0] for part in page.split("\n[")[1:]] == ["m0", "a", "b"]


def test_a_view_that_is_of_another_history_hides_nothing():
    """A start that is gone, or a state that is damaged, does not keep the tool from searching."""
    for damaged in (view("gone", 3), {"start": "?"}):
        assert "[m0, user, turn 1]" in run(calling(told(0, "The key."), view=damaged), query="key")


def test_matches_that_are_all_in_view_are_said_to_be_there():
    """The model is told where to look, and what to try."""
    state = calling(*(told(number, "Hello.") for number in range(4)), told(4, "The key."), view=view("m2", 2))
    assert run(state, query="key").startswith(
        "No message that left your view matches 'key' (in your view: 3). Try other"
    )


def test_a_message_is_read_by_its_id_even_when_it_is_in_view():
    """The id alone, as the argument or as the query."""
    state = calling(told(0, "The key."))
    expected = "[m0, user, turn 1, characters 0 to 8 of 8]\nThe key."
    assert (run(state, message_id=" m0 "), run(state, query="m0")) == (expected, expected)


def test_a_message_without_an_id_is_read_by_its_position():
    """Notes call it by the same name."""
    assert run({"messages": [HumanMessage("The key.")]}, message_id="#0").endswith("\nThe key.")


def test_a_long_message_is_read_piece_by_piece_to_its_end():
    """Each piece says where the next one begins; together they are the message."""
    text = " ".join(f"line {number} of the log" for number in range(2_000))
    state, tool = calling(ToolMessage(text, tool_call_id="c", id="log")), create_recall_tool(max_tokens=2_000)
    offset, pieces = 0, []
    while offset < len(text):
        label, piece = run(state, tool=tool, message_id="log", offset_chars=offset).split("\n", 1)
        pieces.append(piece)
        offset += len(piece)
        assert label.endswith(f"; read on with offset_chars={offset}]") is (offset < len(text))
    assert "".join(pieces) == text
    assert len(pieces) > 2


def test_a_long_message_is_shown_around_the_match():
    """A search shows its best passage, and leaves room for other messages."""
    text = "nothing to see here\n" * 2_000 + "The valve broke at noon.\n" + "nothing to see here\n" * 2_000
    state = calling(ToolMessage(text, tool_call_id="c", id="log"), told(1, "Is it the valve?"))
    page = run(state, query="valve noon")
    assert "The valve broke at noon." in page
    assert "[m1, user, turn 1]\nIs it the valve?" in page
    assert "read on with offset_chars=" in page


def test_an_id_with_a_query_reads_from_the_best_match_on():
    """Searching inside one message."""
    text = "nothing to see here\n" * 2_000 + "The valve broke at noon.\n"
    page = run(calling(ToolMessage(text, tool_call_id="c", id="log")), message_id="log", query="valve")
    assert "The valve broke at noon." in page


@pytest.mark.parametrize("offset", [-1, 8, 99])
def test_a_place_outside_of_a_message_is_refused(offset):
    """The size is stated."""
    with pytest.raises(ToolException, match=f"offset_chars={offset} is outside of the message, which has 8 characters"):
        run(calling(told(0, "The key.")), message_id="m0", offset_chars=offset)


def test_long_ids_are_shown_by_their_beginning_and_found_by_it():
    """As much as tells them apart; what is ambiguous is named."""
    ids = ["11111111-2222-3333-4444", "11111111-2222-3333-5555", "aaaaaaaa-bbbb-cccc-dddd", "m3"]
    messages = [HumanMessage("x", id=key) for key in ids]
    shown = handles(messages)
    assert shown == ["11111111-2222-3333-4", "11111111-2222-3333-5", "aaaaaaaa", "m3"]
    assert [positions_called(messages, handle) for handle in shown] == [[0], [1], [2], [3]]
    with pytest.raises(ToolException, match="2 messages have an id that begins like '11111111'"):
        run({"messages": messages}, message_id="11111111")


def test_a_long_name_is_shown_by_its_beginning():
    """Anybody's message may have one, and the room is for what it says."""
    history = [HumanMessage("The code is zebra.", id="a", name="n" * 500), HumanMessage("Fine.", id="b")]
    state = calling(*history, view=view("b", 1))
    out = run(state, tool=create_recall_tool(max_tokens=200), query="zebra")
    assert f"[a, user {'n' * 64}, turn 1]\nThe code is zebra." in out
    assert TokenEstimator().count_text(out) <= 200


def test_states_of_other_shapes_are_read():
    """A list of messages, or an object with the key."""
    messages = [told(0, "The key."), AIMessage("", tool_calls=[CALL])]
    assert run(messages, query="key") == run(SimpleNamespace(messages=messages), query="key")


def test_each_passage_is_embedded_once():
    """A second search embeds only what is new."""
    topics = Topics()
    tool = create_recall_tool(embeddings=topics)
    assert "My cat." in run(calling(told(0, "My cat.")), tool=tool, query="pet")
    run(calling(told(0, "My cat."), told(1, "A bank.")), tool=tool, query="cash")
    assert sorted(topics.embedded) == ["A bank.", "My cat."]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"max_tokens": 0}, "max_tokens=0"), ({"max_tokens": 50}, "at least 200"), ({"name": ""}, "name=''")],
)
def test_settings_that_cannot_work_are_refused(settings, problem):
    """When the tool is made, not when the model calls it."""
    with pytest.raises(ConfigError, match=problem):
        create_recall_tool(**settings)


class Steep:
    """Counts more for a whole than for its parts together."""

    def count_text(self, text):
        return len(text) // 10 + (len(text) // 100) ** 2

    def __call__(self, messages, *, tools=None):
        raise AssertionError("the text alone is asked for")


def test_an_answer_fits_even_when_prices_do_not_add_up():
    """The least relevant messages go until the whole fits."""
    state = calling(*(told(number, f"Key number {number} of the house.") for number in range(90)))
    page = run(state, tool=create_recall_tool(max_tokens=300, counter=Steep()), query="key 7")
    assert 200 < Steep().count_text(page) <= 300
    assert "Key number 7 of" in page


QUERIES = st.sampled_from(("question", "result lorem", "read path", "m1", "#1", "\ud800", "answer 3 lorem lorem"))
COUNTERS = st.sampled_from((None, count_tokens_approximately))


@settings(deadline=None, max_examples=50)  # the first search imports the index; each example searches three times
@given(messages=conversations(huge=True), query=QUERIES, max_tokens=st.integers(200, 3_000), counter=COUNTERS)
async def test_an_answer_fits_and_is_the_same_whoever_waits(messages, query, max_tokens, counter):
    """For any history: within the budget, deterministic, sync as async; whole messages are whole."""
    tool = create_recall_tool(max_tokens=max_tokens, counter=counter)
    state = {"messages": messages, "context_view": {}}
    page = run(state, tool=tool, query=query)
    again = tool.coroutine(SimpleNamespace(state=state), query=query)
    assert inspect.isawaitable(again)
    assert (await again, run(state, tool=tool, query=query)) == (page, page)
    count = TokenEstimator().count_text if counter is None else lambda text: counter([HumanMessage(text)])
    assert count(page) <= max_tokens


@settings(deadline=None)  # the first search imports the index
@given(messages=conversations(huge=True), max_tokens=st.integers(400, 3_000), data=st.data())
def test_every_message_can_be_read_to_its_end(messages, max_tokens, data):
    """Whatever a message holds, reading on from where each answer ends reaches the end."""
    tool = create_recall_tool(max_tokens=max_tokens)
    index = data.draw(st.integers(0, len(messages) - 1))
    key, offset, label = messages[index].id or f"#{index}", 0, ""
    while not label or "read on" in label:
        label, piece = run({"messages": messages}, tool=tool, message_id=key, offset_chars=offset).split("\n", 1)
        assert piece or "read on" not in label
        offset += len(piece)
    assert f"characters {offset - len(piece)} to {offset} of {offset}]" in label
