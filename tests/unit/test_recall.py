"""Search of a history: whole messages by relevance within a budget, for programs and, by a tool, for the agent."""

import inspect
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextState,
    ContextWindowError,
    ModelLimits,
    TokenEstimator,
    create_context_agent,
    create_recall_tool,
    search_messages,
)
from langchain_ctxwin.recall import PASSAGE_CHARS, Found, asearch_messages, handles, positions_called, readable_text
from support.conversations import conversations
from support.fakes import ScriptedChatModel

FILLER = [f"Entry {number} is about gardening, weather and breakfast." for number in range(8)]


def history(*texts, between=6):
    """Put filler around the texts, so that neighbors of a hit are not other hits."""
    rows = []
    for text in texts:
        rows.extend(FILLER[:between])
        rows.append(text)
    rows.extend(FILLER[:between])
    return [HumanMessage(row, id=f"m{index}") if isinstance(row, str) else row for index, row in enumerate(rows)]


def words(messages):
    """Count whitespace-separated words of all messages."""
    return sum(len(readable_text(message).split()) for message in messages)


class Topics(Embeddings):
    """Tells animals from money, in two dimensions; counts what it embeds."""

    def __init__(self):
        self.embedded = []

    def embed_documents(self, texts):
        self.embedded.extend(texts)
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        return [float("cat" in text or "pet" in text), float("bank" in text or "cash" in text)]


def best(messages, query, **options):
    return search_messages(messages, query, **options)[0].text


def test_the_best_message_comes_first_and_is_the_message_itself():
    """Messages are returned as they are in the history, ids included."""
    messages = history("The spare key is under the flower pot.", "Her flight lands at noon.")
    assert search_messages(messages, "Where is the spare key?")[0] is messages[6]


def test_what_stands_around_a_match_follows_it():
    """An answer is found by its question."""
    messages = history("What is your favourite colour?", between=3)
    messages.insert(4, AIMessage("Teal.", id="answer"))
    assert [m.id for m in search_messages(messages, "favourite colour", max_tokens=60)][:2] == ["m3", "answer"]


def test_a_message_that_does_not_fit_is_left_out_and_named():
    """Smaller messages behind it are still returned; nothing is cut."""
    big, small = HumanMessage("falcon " * 30, id="big"), HumanMessage("One falcon flew over it all.", id="small")
    found = search_messages([big, *history(), small], "falcon", max_tokens=12, counter=lambda ms, **_: words(ms))
    assert ([m.id for m in found], found.tokens, found.truncated) == (["small"], 6, True)
    assert "big" in [m.id for m in found.dropped]


def test_a_result_is_a_list_that_also_counts():
    """It can be put into a prompt or a state like any list of messages."""
    messages = history("The spare key is under the pot.", between=0)
    found = search_messages(messages, "key")
    assert found == Found(messages)
    assert isinstance(found, list)
    assert (found.dropped, found.truncated, found.tokens) == ((), False, TokenEstimator()(messages))


def test_nothing_in_common_finds_nothing():
    """An empty result costs nothing and is not truncated."""
    found = search_messages(history("The spare key."), "submarine")
    assert (list(found), found.dropped, found.tokens, found.truncated) == ([], (), 0, False)


@pytest.mark.parametrize("query", ["???", "\ud800", "🙂"])
def test_a_query_without_words_finds_nothing(query):
    """What is no word matches no message."""
    assert search_messages(history("The spare key."), query) == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The order ORD-1234 was shipped.", "ord-1234"),
        ("The order ORD-1234 was shipped.", "1234"),
        ("See src/billing/invoice_total.py for it.", "invoice_total.py"),
        ("See src/billing/invoice_total.py for it.", "total of the invoice"),
        ("Call getUserName() first.", "user name"),
        ("Call getUserName() first.", "getusername"),
        ("They adopted two puppies.", "Who is adopting a puppy?"),
        ("She is running a race on Friday.", "runs"),
        ("\uff21\uff22\uff23 in full width", "abc"),
        ("我们明天在东京见面。", "东京"),
        ("会議は来週の火曜日です。", "火曜日"),
        ("ประชุมวันอังคารหน้า", "วันอังคาร"),
        ("회의는 화요일에 있습니다.", "화요일"),
        ("बैठक मंगलवार को है।", "मंगलवार"),
        ("Réunion à l'hôtel Bellevue.", "HÔTEL"),
    ],
)
def test_a_message_is_found_by_a_form_or_a_part_of_its_words(text, query):
    """Identifiers match whole and by parts, English words in other forms, other scripts without spaces."""
    assert best(history("Something else entirely.", text), query) == text


def test_common_words_do_not_outweigh_a_rare_one():
    """In a short history every word is rare; those of every question do not count."""
    messages = history("Where is it and what was it that you did there?", "The passport lies in the drawer.")
    assert best(messages, "Where did you put it, the passport?") == "The passport lies in the drawer."


def test_a_query_of_common_words_alone_is_searched_as_it_is():
    """`who are you` is a question, too."""
    assert best(history("Who are you?"), "who are you") == "Who are you?"


def test_calls_and_results_are_searched():
    """Arguments of tool calls and the results of tools are part of what happened."""
    call = AIMessage("", id="call", tool_calls=[{"name": "find_hotel", "args": {"city": "Lisbon"}, "id": "c1"}])
    result = ToolMessage("Hotel Miramar, 90 EUR", tool_call_id="c1", id="result")
    messages = [*history("Nice.")[:7], call, result, *history("Good.")]
    queries = ("lisbon", "find hotel", "Miramar price")
    assert [search_messages(messages, query)[0].id for query in queries] == ["call", "call", "result"]


def test_reasoning_is_not_searched():
    """What the model thought is not what was said."""
    thought = {"type": "reasoning", "reasoning": "the user sounds like a zeppelin pilot"}
    wrapped = {"type": "non_standard", "value": {"type": "thinking", "thinking": "zeppelin"}}
    messages = [AIMessage([thought, wrapped, {"type": "text", "text": "Hello."}]), HumanMessage("Hi.")]
    assert search_messages(messages, "zeppelin") == []


def test_a_text_that_is_attached_is_searched():
    """Documents that come as text are read like text."""
    document = {"type": "text-plain", "text": "The warranty ends in May.", "mime_type": "text/plain"}
    source = {"type": "document", "source": {"type": "text", "data": "The lease ends in June."}}
    messages = [HumanMessage([document], id="a"), *history(), HumanMessage([source], id="b")]
    assert [search_messages(messages, query)[0].id for query in ("warranty", "lease")] == ["a", "b"]


def test_a_long_message_is_found_by_a_passage_of_it():
    """A single sentence in a long result weighs as much as it would alone."""
    log = "nothing happened here " * PASSAGE_CHARS + "\nThe valve broke.\n" + "nothing happened here " * PASSAGE_CHARS
    messages = [*history("Nothing to report."), ToolMessage(log, tool_call_id="c", id="log"), *history()]
    assert search_messages(messages, "valve", max_tokens=10**6)[0].id == "log"


def test_a_speaker_is_found_by_name():
    """The name of who speaks counts as said."""
    messages = [*history(), HumanMessage("I was born in Oslo.", name="Ingrid", id="i"), *history()]
    assert search_messages(messages, "Ingrid")[0].id == "i"


def test_equal_matches_come_newest_first():
    """What was said last is more likely to hold."""
    messages = [
        HumanMessage("My number is 5.", id="old"),
        *history(between=8),
        HumanMessage("My number is 5.", id="new"),
    ]
    assert [m.id for m in search_messages(messages, "number")][:2] == ["new", "old"]


def test_embeddings_rank_by_meaning():
    """No common word is needed."""
    messages = [HumanMessage("My cat is grey."), HumanMessage("The bank is shut."), HumanMessage("")]
    assert [m.text for m in search_messages(messages, "pet", embeddings=Topics())] == ["My cat is grey."]


def test_embeddings_that_do_not_fit_together_are_named():
    """A query's vector of another length is an error that says so."""

    class Broken(Topics):
        def embed_documents(self, texts):
            return [[1.0, 0.0, 0.0] for _ in texts]

    with pytest.raises(ContextWindowError, match="one model for documents and queries"):
        search_messages([HumanMessage("cat")], "pet", embeddings=Broken())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"query": ""}, "query=''"),
        ({"query": " \n"}, "words to search"),
        ({"query": None}, "query=None"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": -5}, "max_tokens=-5"),
        ({"max_tokens": 2.5}, "max_tokens=2.5"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"counter": 3}, "counter=3"),
        ({"embeddings": "minilm"}, "embeddings='minilm'"),
        ({"messages": "text"}, "list of messages"),
        ({"messages": HumanMessage("one")}, "list of messages"),
        ({"messages": None}, "messages=None"),
        ({"messages": [object()]}, "list of messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "list of messages"),
    ],
)
async def test_arguments_that_cannot_be_used_are_refused_before_any_work(arguments, problem):
    """The error names the argument and its value."""
    given = {"messages": [HumanMessage("key")], "query": "key", **arguments}
    messages, query = given.pop("messages"), given.pop("query")
    with pytest.raises(ConfigError, match=problem):
        search_messages(messages, query, **given)
    with pytest.raises(ConfigError, match=problem):
        await asearch_messages(messages, query, **given)


def test_messages_may_have_any_form_that_langchain_takes():
    """Pairs and dicts are converted."""
    messages = [("user", "The key is blue."), {"role": "assistant", "content": "Noted."}]
    assert best(messages, "blue key") == "The key is blue."


def test_the_package_does_not_import_the_index_before_a_search():
    """Numpy takes longer to import than everything else."""
    code = "import langchain_ctxwin, json, sys; print(json.dumps('numpy' in sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) is False


def test_a_search_prints_and_logs_nothing(capfd, caplog):
    """Who searches hears only what was found."""
    search_messages(history("The key."), "key")
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])


QUERIES = st.one_of(
    st.sampled_from(("question", "read path lorem", "thought", "#1", "lone \ud800", "東京")), st.text(min_size=1)
)
COUNTERS = st.sampled_from((None, count_tokens_approximately, words))


@settings(deadline=None)  # the first search imports the index
@given(
    messages=conversations(huge=True),
    query=QUERIES.filter(str.strip),
    max_tokens=st.integers(1, 3_000),
    counter=COUNTERS,
)
async def test_kept_and_dropped_are_what_matches_and_kept_fits(messages, query, max_tokens, counter):
    """For any history: disjoint parts of it, the same as with room for all, within the budget, sync as async."""
    count = (lambda ms, **_: words(ms)) if counter is words else counter
    found = search_messages(messages, query, max_tokens=max_tokens, counter=count)
    everything = search_messages(messages, query, max_tokens=10**9, counter=count)
    positions = {id(message): index for index, message in enumerate(messages)}
    kept, dropped = [positions[id(m)] for m in found], [positions[id(m)] for m in found.dropped]
    ranked = [positions[id(m)] for m in everything]
    assert (sorted(kept + dropped), everything.dropped) == (sorted(ranked), ())
    assert (kept, dropped) == ([p for p in ranked if p in kept], [p for p in ranked if p in dropped])
    assert (count or TokenEstimator())(list(found)) <= found.tokens <= max_tokens or not found
    again = await asearch_messages(messages, query, max_tokens=max_tokens, counter=count)
    assert (again, again.dropped, again.tokens) == (found, found.dropped, found.tokens)


@settings(deadline=None)  # the first search imports the index
@given(messages=conversations(), query=QUERIES.filter(str.strip), max_tokens=st.integers(1, 3_000))
async def test_sync_and_async_agree_with_embeddings(messages, query, max_tokens):
    """Whatever the vectors, the same messages come back."""
    embeddings = DeterministicFakeEmbedding(size=4)
    options = {"max_tokens": max_tokens, "embeddings": embeddings}
    safe = [m for m in messages if "\ud800" not in str(m.content)]  # the fake hashes UTF-8
    found = search_messages(safe, query.replace("\ud800", "?"), **options)
    assert await asearch_messages(safe, query.replace("\ud800", "?"), **options) == found


def test_a_system_message_and_an_empty_history_are_no_trouble():
    """Rules are part of the history; no history finds nothing."""
    assert (best([SystemMessage("Answer in verse.")], "verse"), search_messages([], "verse")) == (
        "Answer in verse.",
        [],
    )


# The tool

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


CALLS_FOR = st.sampled_from(("question", "result lorem", "read path", "m1", "#1", "\ud800", "answer 3 lorem lorem"))
LINEAR_COUNTERS = st.sampled_from((None, count_tokens_approximately))


@settings(deadline=None, max_examples=50)  # the first search imports the index; each example searches three times
@given(messages=conversations(huge=True), query=CALLS_FOR, max_tokens=st.integers(200, 3_000), counter=LINEAR_COUNTERS)
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
