"""Does a model find tools that are not loaded, and are they loaded afterwards?"""

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.tools.selector import NOTHING_FOUND
from support.tool_sets import by_words, definition, one_each

TOOLS = [
    definition("mail__send", "Send an email to a recipient."),
    definition("mail__search", "Search the inbox for emails."),
    definition("weather: today", "Say what the weather is today. Give a city."),
    definition("bank__transfer", "Transfer money to another account."),
]


class State(MessagesState):
    """What the tool reads of a graph's state."""

    context_tools: list[str]


def selector(room=2):
    return ToolSelector(TOOLS, room, counter=one_each)


def searched(*names, since=()):
    call = {"name": "search_tools", "args": {"query": "x"}, "id": "s"}
    result = ToolMessage("found", artifact={"ctxwin_tools": [*names]}, tool_call_id="s")
    return [
        HumanMessage("hello there"),
        AIMessage("", tool_calls=[call]),
        result,
        *since,
    ]


async def test_it_names_matching_tools_with_the_first_sentence_of_their_description():
    """And the same when it is awaited."""
    search = selector().search_tools
    assert await search.ainvoke({"query": "send money"}) == search.invoke(
        {"query": "send money"}
    )
    assert search.invoke({"query": "the weather"}) == (
        "Found; you can call these now:\n- weather: today: Say what the weather is today."
    )
    assert search.invoke({"query": "xyzzy"}) == NOTHING_FOUND
    assert list(search.tool_call_schema.model_json_schema()["properties"]) == ["query"]


def test_it_shows_no_tool_that_can_never_be_loaded():
    large = definition("weather_report", "weather " * 12)
    tools = [
        large,
        definition("weather_map", "Map of the weather."),
        definition("ask", "Ask the user."),
    ]
    searching = ToolSelector(tools, 16, always=["ask"], counter=by_words)
    assert searching.search_tools.invoke({"query": "weather"}).splitlines()[1:] == [
        "- weather_map: Map of the weather."
    ]


def test_in_a_graph_it_leaves_out_what_is_loaded():
    graph = StateGraph(State)
    graph.add_node("tools", ToolNode([selector().search_tools]))
    graph.add_edge(START, "tools")
    call = {"name": "search_tools", "args": {"query": "email"}, "id": "s"}
    state = {
        "messages": [AIMessage("", tool_calls=[call])],
        "context_tools": ["mail__send"],
    }
    said = graph.compile().invoke(state)["messages"][-1].text
    assert (
        said
        == "Found; you can call these now:\n- mail__search: Search the inbox for emails."
    )


def test_what_was_found_takes_the_place_of_unused_tools_for_this_request_alone():
    """Unknown names are ignored."""
    chosen = selector().select(
        searched("bank__transfer"), previous=["mail__send", "mail__search"]
    )
    assert ("bank__transfer" in chosen.names, bool(chosen.removed)) == (True, True)
    chosen = selector().select(searched("rm_rf", "nothing"), previous=["mail__send"])
    assert chosen.names == ("mail__send",)
    messages = searched(
        "bank__transfer",
        since=[AIMessage("Done."), HumanMessage("thanks a lot")],
    )
    assert selector().select(messages, previous=["mail__send"]).names == ("mail__send",)
