"""Search of a history: whole messages by relevance within a budget, for programs and, by a tool, for the agent."""

import asyncio
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextState,
    TokenEstimator,
    create_context_agent,
    create_recall_tool,
    search_messages,
)
from langchain_ctxwin.core.provider_blocks import media_in
from langchain_ctxwin.middleware import ContextWindowMiddleware
from support.agents import THREAD, WAYS, agent_on, model_of
from support.conversations import conversations
from support.fakes import ScriptedChatModel, script

FILLER = [
    f"Entry {number} is about gardening, weather and breakfast." for number in range(6)
]
LONG = 2_000  # repetitions that make a message of many passages
PADDING = "Entry follows entry about gardening, weather and breakfast. " * 20


def history(*messages):
    """Put filler around each, so that neighbors of a hit are not other hits."""
    rows = [row for message in messages for row in (*FILLER, message)] + FILLER
    return [
        HumanMessage(row, id=f"m{index}") if isinstance(row, str) else row
        for index, row in enumerate(rows)
    ]


def words(messages, **_):
    """Count the words of all messages."""
    return sum(len(str(message.content).split()) for message in messages)


def ids(found):
    return [message.id for message in found]


def called(name, arguments, call_id="c"):
    return {"name": name, "args": arguments, "id": call_id}


HOTEL = AIMessage(
    "", id="calls", tool_calls=[called("find_hotel", {"city": "Lisbon"}, "c1")]
)
ATTACHED = {
    "type": "text-plain",
    "text": "The warranty ends in May.",
    "mime_type": "text/plain",
}
SOURCE = {
    "type": "document",
    "source": {"type": "text", "data": "The lease ends in June."},
}


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The spare key is under the flower pot.", "Where is the spare key?"),
        ("The order ORD-1234 was shipped.", "ord-1234"),
        ("See src/billing/invoice_total.py for it.", "total of the invoice"),
        ("Call getUserName() first.", "user name"),
        ("They adopted two puppies.", "Who is adopting a puppy?"),
        ("She is running a race on Friday.", "runs"),
        ("\uff21\uff22\uff23 in full width", "abc"),
        ("我们明天在东京见面。", "东京"),
        ("Réunion à l'hôtel Bellevue.", "HÔTEL"),
        ("The lock" + "\u0301\u0323" * 99 + " is jammed.", "lock"),
        (HumanMessage("I was born in Oslo.", name="Ingrid"), "Ingrid"),
        *((HOTEL, query) for query in ("lisbon", "find hotel")),
        (
            ToolMessage(
                "nothing\n" * LONG + "A valve broke.\n" + "nothing\n" * LONG,
                tool_call_id="c",
            ),
            "valve",
        ),
        (HumanMessage([ATTACHED]), "warranty"),
        (HumanMessage([SOURCE]), "lease"),
    ],
)
def test_a_message_is_found_by_what_it_says(text, query):
    """Names whole and by parts, English words in other forms, other scripts, calls, results and attached texts."""
    messages = history("Something else entirely.", text)
    assert search_messages(messages, query, max_tokens=10**6)[0] is messages[13]


def test_matches_are_ranked():
    """Rare words outweigh common ones, an answer is found by its question, and of equals the newest comes first."""
    common = "Where is it and what was it that you did there?"
    messages = history(common, "The passport lies in the drawer.")
    assert search_messages(messages, "Where did you put it, the passport?")[
        0
    ].text.startswith("The passport")
    asked = history("What is your favourite colour?", AIMessage("", id="empty"))
    asked.insert(7, AIMessage("Teal.", id="answer"))
    assert ids(search_messages(asked, "favourite colour", max_tokens=60))[:2] == [
        "m6",
        "answer",
    ]
    twice = history("My number is 5.", "My number is 5.")
    assert ids(search_messages(twice, "number"))[:2] == ["m13", "m6"]


def test_a_result_is_found_by_its_call_and_shown_with_it():
    """By the name of the tool as well; an answer never consists of bare calls."""
    result = ToolMessage("Miramar, 90 EUR", tool_call_id="c1", id="result")
    for query in ("find_hotel", "hotel in Lisbon"):
        assert {"calls", "result"} <= set(
            ids(search_messages([*history(), HOTEL, result, *history()], query))
        )
        assert "Miramar" in run(calling(*history(), HOTEL, result), query=query)


def search(**arguments):
    return search_messages(
        **{"messages": [HumanMessage("key")], "query": "key", **arguments}
    )


@pytest.mark.parametrize(
    ("make", "arguments", "problem"),
    [
        (search, {"max_tokens": 0}, "max_tokens=0"),
        *(
            (search, {"messages": value}, "messages=.*pass")
            for value in (
                None,
                HumanMessage("one"),
                [object()],
                [{"role": "nobody", "content": "x"}],
            )
        ),
        (create_recall_tool, {"max_tokens": 0}, "max_tokens=0"),
        (create_recall_tool, {"max_tokens": 50}, "at least 200"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make, arguments, problem):
    """By the search and by the tool, with the value and what to give."""
    with pytest.raises(ConfigError, match=problem):
        make(**arguments)


QUERIES = st.sampled_from(
    ("question", "read path lorem", "thought", "#1", "lone \ud800", "東京")
) | st.text(min_size=1)


@settings(max_examples=40)
@example(
    messages=[HumanMessage("question 1 " + "lorem " * 666)],
    query="lorem",
    max_tokens=3_000,
    counter=None,
)
@given(
    messages=conversations(huge=True),
    query=QUERIES.filter(str.strip),
    max_tokens=st.integers(1, 3_000),
    counter=st.sampled_from((None, count_tokens_approximately, words)),
)
def test_kept_and_dropped_are_what_matches_and_what_is_shown_fits(
    messages, query, max_tokens, counter
):
    """For any history: disjoint parts of it, the same as with room for all, within the budget."""
    count = counter or TokenEstimator()
    found = search_messages(messages, query, max_tokens=max_tokens, counter=counter)
    everything = search_messages(messages, query, max_tokens=10**9, counter=counter)
    positions = {id(message): index for index, message in enumerate(messages)}
    kept, dropped = (
        [positions[id(m)] for m in found],
        [positions[id(m)] for m in found.dropped],
    )
    ranked = [positions[id(m)] for m in everything]
    assert (sorted(kept + dropped), everything.dropped) == (sorted(ranked), ())
    assert (kept, dropped) == (
        [p for p in ranked if p in kept],
        [p for p in ranked if p in dropped],
    )
    assert count(list(found)) <= found.tokens <= max_tokens or not found


# The tool

FACT = "The locker code is KX-4471."
NOTHING = "nothing to see here\n" * LONG


def calling(*messages, view=None):
    """Return the state in which a model calls the tool after a question."""
    asked = [
        HumanMessage("Which one was it?", id="asked"),
        AIMessage("", id="c", tool_calls=[called("recall", {})]),
    ]
    return {"messages": [*messages, *asked], **({"context_view": view} if view else {})}


def run(state, *, tool=None, **arguments):
    """Call the tool's function as ToolNode does."""
    return (tool or create_recall_tool()).func(
        SimpleNamespace(state=state, store=None), **arguments
    )


def view(start, index, **parts):
    return {"start": {"id": start, "index": index}, **parts}


def told(number, text):
    return HumanMessage(text, id=f"m{number}")


def shown(page):
    """Numbers of the messages on a page."""
    return [int(number) for number in re.findall(r"^\[#(\d+),", page, re.MULTILINE)]


def policy(messages, tools):
    """Ask the tool once per question, then repeat what it said."""
    last = messages[-1]
    if last.type == "tool":
        return AIMessage(f"I found: {last.content}")
    return AIMessage(
        "",
        tool_calls=[called("recall", {"query": last.text})] if "?" in last.text else [],
    )


@pytest.mark.parametrize(("adapter", "is_async"), WAYS)
def test_an_agent_reads_again_what_it_was_told_long_ago(adapter, is_async):
    model = model_of(1_200, policy=policy)
    # a summary might repeat the fact
    config = ContextConfig(summarize="off", output_reserve=300)
    agent = agent_on(
        adapter, model, [create_recall_tool(max_tokens=250)], config=config
    )
    stories = [f"Story {number}: " + "lorem ipsum dolor " * 12 for number in range(30)]
    for text in ("Hello there.", FACT, *stories, "What was the locker code?"):
        asked = {"messages": [HumanMessage(text)]}
        result = (
            asyncio.run(agent.ainvoke(asked, THREAD))
            if is_async
            else agent.invoke(asked, THREAD)
        )
    assert FACT in result["messages"][-1].text
    assert FACT not in [message.text for message in model.requests[-2].messages]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({}, "give `query` with words"),
        ({"message_id": "nope"}, "No message has the id 'nope'"),
    ],
)
def test_a_mistake_comes_back_as_a_sentence_and_marked_as_an_error(arguments, answer):
    state = calling(told(0, "Hi."))
    state["messages"][-1].tool_calls[0]["args"] = arguments
    builder = (
        StateGraph(ContextState)
        .add_node("tools", ToolNode([create_recall_tool()]))
        .add_edge(START, "tools")
    )
    message = builder.compile().invoke(state)["messages"][-1]
    assert (message.status, answer in message.text) == ("error", True)


def test_neither_the_question_nor_earlier_recalls_are_returned():
    """A question matches itself best of all, and so do its earlier answers."""
    recall = AIMessage(
        "", id="r1", tool_calls=[called("recall", {"query": "which one was it"})]
    )
    result = ToolMessage(
        "[m0]\nWhich one it was", tool_call_id="c", id="r2", name="recall"
    )
    state = calling(
        told(0, "The red one was it."), AIMessage("Yes.", id="m1"), recall, result
    )
    assert shown(run(state, query="which one")) == [0, 1]


def test_what_the_model_sees_in_full_is_not_returned():
    """Pinned messages and those of the view are there already; what lies before is not."""
    messages = [
        SystemMessage("Rules about keys.", id="s"),
        *(told(n, f"Key number {n}.") for n in range(6)),
    ]
    state = calling(*messages, view=view("m3", 4, pinned=[2]))
    page = run(state, query="key number")
    assert page.startswith("2 of 2 matching messages")
    assert shown(page) == [1, 3]
    state = calling(*messages, view=view("m0", 1))
    assert run(state, query="key").startswith(
        "No message that left your view matches 'key'. Try other"
    )


def test_what_is_shown_only_in_part_counts_as_not_seen():
    calls = AIMessage(
        "", id="m1", tool_calls=[called("read", {}, key) for key in ("a", "b", "c")]
    )
    results = [ToolMessage(f"Key {c}.", tool_call_id=c, id=c) for c in ("a", "b", "c")]
    edits = {
        "cleared": ["a"],
        "clamped": {key: {"head_chars": 3, "tail_chars": 3} for key in ("b", "m0")},
    }
    state = calling(
        told(0, "A long text on keys."), calls, *results, view=view("m0", 0, **edits)
    )
    assert shown(run(state, query="key")) == [0, 2, 3]


def test_without_a_view_that_can_be_read_all_is_searched():
    state = calling(told(0, "The key."), view={"start": {}})
    assert shown(run(state, query="key")) == [0]


def test_a_passage_that_is_cut_says_how_far_it_goes():
    text = "The valve " + "is open and " * 90
    tool = create_recall_tool(max_tokens=200)
    page = run(calling(told(0, text)), tool=tool, query="valve")
    [(start, stop)] = re.findall(r"\[#0, user, (\d+)-(\d+) of", page)
    assert text[int(start) : int(stop)] in page
    assert int(stop) < len(text)


def test_a_message_is_read_by_its_id_or_number():
    """As the argument or as the query, also in view."""
    state = {"messages": [told(0, "The key.")]}
    for named in ({"message_id": " m0 "}, {"query": "m0"}, {"message_id": "#0"}):
        page = run(state, **named)
        assert page == "[#0, user, characters 0 to 8 of 8]\nThe key."


def test_a_long_message_is_shown_around_the_match():
    log = ToolMessage(
        f"{NOTHING}The valve broke at noon.\n{NOTHING}", tool_call_id="c", id="log"
    )
    state = calling(log, told(1, "Is it the valve?"))
    page = run(state, query="valve noon")
    assert "[#1, user]\nIs it the valve?" in page
    assert "The valve broke at noon." in page
    assert "read on with" in page


def test_many_messages_are_shown_in_part_and_one_in_several_places():
    """Each part says where it is, so that it can be read on."""
    logs = [
        f"{PADDING}\nValve {n} broke.\n{PADDING}\nThe valve was mended.\n{PADDING}"
        for n in range(6)
    ]
    page = run(calling(*(told(n, log) for n, log in enumerate(logs))), query="valve")
    assert page.startswith("6 of 6 matching messages")
    assert all(f"Valve {n} broke." in page for n in range(6))
    assert page.count("The valve was mended.") == 6
    places = re.findall(r"\[#(\d), user, (\d+)-(\d+) of \d+\]", page)
    assert places
    assert all(number >= 2 for number in Counter(n for n, _, _ in places).values())
    assert all(
        logs[int(n)][int(start) : int(stop)] in page for n, start, stop in places
    )


@settings(max_examples=40)
@given(
    messages=conversations(huge=True),
    query=st.sampled_from(
        (
            "question",
            "result lorem",
            "read path",
            "m1",
            "#1",
            "\ud800",
            "answer 3 lorem lorem",
        )
    ),
    max_tokens=st.integers(200, 3_000),
    counter=st.sampled_from((None, count_tokens_approximately)),
    data=st.data(),
)
def test_an_answer_fits_and_every_message_can_be_read_to_its_end(
    messages, query, max_tokens, counter, data
):
    """For any texts, also where prices do not add up; reading on from where each answer ends reaches the end."""
    assume(not any(map(media_in, messages)))
    count = getattr(
        counter or TokenEstimator(),
        "count_text",
        lambda text: counter([HumanMessage(text)]),
    )
    tool, state = (
        create_recall_tool(max_tokens=max_tokens, counter=counter),
        {"messages": messages, "context_view": {}},
    )
    assert count(run(state, tool=tool, query=query)) <= max_tokens
    index = data.draw(st.integers(0, len(messages) - 1))
    key, offset, label = messages[index].id or f"#{index}", 0, ""
    while not label or "read on" in label:
        label, piece = run(state, tool=tool, message_id=key, offset_chars=offset).split(
            "\n", 1
        )
        assert piece or "read on" not in label
        offset += len(piece)
    assert f"characters {offset - len(piece)} to {offset} of {offset}]" in label


def test_an_agent_that_is_given_recall_has_it_once_unless_it_has_one_of_its_own():
    for tools in ([], [create_recall_tool(max_tokens=500)]):
        model = ScriptedChatModel(
            policy=script("done", "done"), profile={"max_input_tokens": 8_000}
        )
        create_context_agent(model, tools, recall=True).invoke(
            {"messages": [("user", "Hi")]}
        )
        middleware = ContextWindowMiddleware(recall=True)
        create_agent(model, tools, middleware=[middleware]).invoke(
            {"messages": [("user", "Hi")]}
        )
        assert [
            [tool["function"]["name"] for tool in request.tools]
            for request in model.requests
        ] == [["recall"]] * 2
