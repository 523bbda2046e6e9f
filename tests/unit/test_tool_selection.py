"""Are the right tools chosen, do they fit, and does the set stay as it is while it can?"""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel
from structlog.testing import capture_logs

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.tools.selector import NOTHING_FOUND
from support.agents import call, called
from support.tool_sets import by_words, definition, names_of, one_each

SAY_WEATHER, BOOK_TAXI = (
    "Say what the weather is today.",
    "Book a taxi ride to an address.",
)
MAIL = definition("send_email", "Send an email to a recipient.")
WEATHER = definition("get_weather", SAY_WEATHER, city="Name of the city")
MONEY = definition("convert_currency", "Convert money from one currency to another.")
TAXI = definition("book_taxi", BOOK_TAXI)
HOTEL = definition("find_hotel", "Find a hotel room for some nights.")
TOOLS = [MAIL, WEATHER, MONEY, TAXI, HOTEL]
UNUSED = ["send_email", "convert_currency"]
chooser = partial(ToolSelector, TOOLS, counter=one_each)


@tool
def multiply(first: int, second: int) -> int:
    """Multiply two numbers."""
    return first * second


def plain_function(text: str) -> str:
    """Turn a text around."""
    return text[::-1]


class Translate(BaseModel):
    """Translate a text."""

    text: str


FORMS = {
    "multiply": multiply,
    "plain_function": plain_function,
    "Translate": Translate,
    "send_email": MAIL,
    "anthropic": {
        "name": "anthropic",
        "description": "A tool.",
        "input_schema": {"type": "object"},
    },
    "file_search_v1": {"type": "file_search_v1"},
    "google_search": {"google_search": {}},
}


def calling(*names):
    """Return calls of tools and their results."""
    return [message for name in names for message in called(name, "done", name)]


def test_tools_of_every_form_are_known_by_name():
    selection = ToolSelector(FORMS.values(), 100_000).select("x")
    assert selection.names == tuple(FORMS)
    assert selection.selected == tuple(FORMS.values())


def test_the_useful_tools_are_chosen_in_the_given_order_and_all_when_all_fit():
    selection = chooser(2).select(
        "book a taxi, and tell me about the weather in the city"
    )
    assert (selection.names, selection.deferred) == (
        ("get_weather", "book_taxi"),
        (MAIL, MONEY, HOTEL),
    )
    assert chooser(5).select("weather").selected == tuple(TOOLS)
    assert ToolSelector([], 10).select("weather").selected == ()
    assert chooser(2).select([]).names == ("send_email", "get_weather")


def test_always_comes_first_and_in_a_small_window_is_what_is_left():
    """Tools are given by a name, by some, or as they are."""
    for always in ("find_hotel", ["find_hotel"], [HOTEL]):
        assert chooser(2, always=always).select("weather").names == (
            "find_hotel",
            "get_weather",
        )
    selector = chooser(3, always=["find_hotel"])
    assert selector.select("weather", max_tool_tokens=1).names == ("find_hotel",)
    assert selector.select("weather", max_tool_tokens=0).names == ()


def test_a_tool_that_is_too_big_is_skipped_and_reported():
    big = definition("weather_report", "weather " * 50)
    with capture_logs() as logs:
        selector = ToolSelector([big, WEATHER, MAIL], 15, counter=by_words)
    selection = selector.select("weather")
    assert selection.names == ("get_weather", "send_email")
    assert [(log["event"], log["tools"]) for log in logs] == [
        ("tools.skipped", ("weather_report",))
    ]


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (
            lambda: chooser(2, ranker=len),
            r"ranker=<built-in function len>: .*rank\(query, tools\)",
        ),
        (lambda: ToolSelector([MAIL, MAIL], 10), "send_email"),
        (lambda: chooser(0), "max_tool_tokens=0"),
        (lambda: chooser(10, None, ["unknown"]), "unknown"),
        (
            lambda: ToolSelector(TOOLS, 10, None, ["send_email", "book_taxi"]),
            "always needs",
        ),
    ],
)
def test_what_cannot_work_is_refused(refused, told):
    with pytest.raises(ConfigError, match=told):
        refused()


@pytest.mark.parametrize(
    ("room", "query", "previous", "names"),
    [
        (2, "weather and hotel", ["get_weather", "find_hotel"], None),
        (2, "good morning to you", ["book_taxi"], None),
        # A request that names a bit of everything is no clear wish.
        (
            1,
            "email weather city taxi address hotel nights money currency",
            ["send_email"],
            None,
        ),
        (
            2,
            f"{SAY_WEATHER} {BOOK_TAXI}",
            ["get_weather", "send_email"],
            ("get_weather", "book_taxi"),
        ),
        (
            4,
            f"{BOOK_TAXI} {SAY_WEATHER}",
            UNUSED,
            (*UNUSED, "get_weather", "book_taxi"),
        ),
    ],
)
def test_the_set_stays_while_it_serves_the_request_and_what_is_needed_is_added_after_the_others(
    room, query, previous, names
):
    """What serves one part stays when another part needs room."""
    selection = chooser(room).select(query, previous=previous)
    assert selection.names == tuple(names or previous)


def test_what_a_search_found_is_loaded_before_what_earlier_requests_called():
    earlier = [
        HumanMessage("Mail, money, taxi"),
        *calling("send_email", "convert_currency", "book_taxi"),
    ]
    found = ToolMessage(
        "found", artifact={"ctxwin_tools": ["find_hotel"]}, tool_call_id="s"
    )
    messages = [*earlier, HumanMessage("A bed for tonight"), found]
    previous = ["send_email", "convert_currency", "book_taxi"]
    assert chooser(3).select(messages, previous=previous).names == (
        "convert_currency",
        "book_taxi",
        "find_hotel",
    )
    assert chooser(3).select(messages).names == (
        "convert_currency",
        "book_taxi",
        "find_hotel",
    )


def test_what_this_turn_called_stays_before_what_a_wish_needs():
    """What earlier requests called and lost changes nothing."""
    messages = [HumanMessage(BOOK_TAXI), *calling("send_email", "find_hotel")]
    assert chooser(2).select(messages, previous=["send_email", "find_hotel"]).names == (
        "send_email",
        "find_hotel",
    )
    messages = [
        HumanMessage("Mail"),
        *calling("send_email"),
        HumanMessage("Good morning to you"),
    ]
    previous = ("get_weather", "find_hotel")
    assert chooser(2).select(messages, previous=previous).names == previous


async def test_awaited_choices_are_the_same():
    selector = chooser(2)
    assert await selector.aselect("a taxi to the hotel") == selector.select(
        "a taxi to the hotel"
    )


WORDS = st.sampled_from(
    [
        "send",
        "email",
        "weather",
        "city",
        "convert",
        "money",
        "book",
        "taxi",
        "hotel",
        "the",
    ]
)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)
RUNS = settings(max_examples=50)


@st.composite
def choices(draw):
    """A tool set, its room, what is always there, a query and a previous set."""
    texts = draw(st.lists(TEXTS, min_size=1, max_size=12))
    tools = [
        definition(f"server{number % 3}__tool{number}", text)
        for number, text in enumerate(texts)
    ]
    names = names_of(tools)
    always = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    least = by_words(
        [], tools=[one for one in tools if one["function"]["name"] in always]
    )
    room = draw(st.integers(max(1, least), least + 25))
    previous = draw(st.lists(st.sampled_from(names), unique=True, max_size=6))
    return (
        tools,
        ToolSelector(tools, room, always=always, counter=by_words),
        always,
        draw(TEXTS),
        previous,
    )


@RUNS
@given(choices())
def test_every_choice_is_a_part_of_the_tools_that_fits(choice):
    """Selected and deferred are a partition, within the room, with everything that is always there."""
    tools, selector, always, query, previous = choice
    selection = selector.select(query, previous=previous)
    assert sorted(names_of((*selection.selected, *selection.deferred))) == sorted(
        names_of(tools)
    )
    assert (
        selection.tokens
        == by_words([], tools=selection.selected)
        <= selector.max_tool_tokens
    )
    assert set(always) <= set(selection.names)
    assert selection.names == names_of(selection.selected)


@RUNS
@given(choices())
def test_every_choice_is_deterministic_settles_and_keeps_what_was_there_first(choice):
    """Asked again and again, tools do not take turns. Additions come last, and what stays keeps its order."""
    _, selector, _, query, previous = choice
    selection = selector.select(query, previous=previous)
    assert selector.select(query, previous=previous) == selection
    again = selector.select(query, previous=selection.names)
    assert selector.select(query, previous=again.names).names == again.names
    stayed = tuple(name for name in previous if name in selection.names)
    assert selection.names[: len(stayed)] == stayed


@pytest.mark.parametrize("request_", ["Now refund the ticket", "now get me the refund"])
def test_a_change_of_topic_loads_the_tool_that_it_names(request_):
    """One word is enough where it names few tools; small talk changes nothing."""
    refund = definition("refund_payment", "Give money back.")
    selector = ToolSelector([*TOOLS, refund], 2, counter=one_each)
    first = selector.select([HumanMessage("an email please")])
    messages = [
        HumanMessage("an email please"),
        AIMessage("It is sent."),
        HumanMessage(request_),
    ]
    assert "refund_payment" not in first.names
    changed = selector.select(messages, previous=first.names).names
    assert {*changed} - {*first.names} == {"refund_payment"}
    messages[-1] = HumanMessage("Thank you, that is kind.")
    assert selector.select(messages, previous=first.names).names == first.names


# tools that the model looks for

SEARCHED = [
    definition("mail__send", "Send an email to a recipient."),
    definition("mail__search", "Search the inbox for emails."),
    definition("weather: today", "Say what the weather is today. Give a city."),
    definition("bank__transfer", "Transfer money to another account."),
]


class State(MessagesState):
    """What the tool reads of a graph's state."""

    context_tools: list[str]


def searching(room=2):
    return ToolSelector(SEARCHED, room, counter=one_each)


def searched(*names, since=()):
    result = ToolMessage("found", artifact={"ctxwin_tools": [*names]}, tool_call_id="s")
    return [
        HumanMessage("hello there"),
        call("search_tools", "s", query="x"),
        result,
        *since,
    ]


async def test_it_names_matching_tools_with_the_first_sentence_of_their_description():
    """And the same when it is awaited."""
    search = searching().search_tools
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
    selector = ToolSelector(tools, 16, always=["ask"], counter=by_words)
    assert selector.search_tools.invoke({"query": "weather"}).splitlines()[1:] == [
        "- weather_map: Map of the weather."
    ]


def test_in_a_graph_it_leaves_out_what_is_loaded():
    graph = StateGraph(State)
    graph.add_node("tools", ToolNode([searching().search_tools]))
    graph.add_edge(START, "tools")
    state = {
        "messages": [call("search_tools", "s", query="email")],
        "context_tools": ["mail__send"],
    }
    said = graph.compile().invoke(state)["messages"][-1].text
    assert (
        said
        == "Found; you can call these now:\n- mail__search: Search the inbox for emails."
    )


def test_what_was_found_takes_the_place_of_unused_tools_for_this_request_alone():
    """Unknown names are ignored."""
    chosen = searching().select(
        searched("bank__transfer"), previous=["mail__send", "mail__search"]
    )
    assert "bank__transfer" in chosen.names
    assert not {"mail__send", "mail__search"}.issubset(chosen.names)
    chosen = searching().select(searched("rm_rf", "nothing"), previous=["mail__send"])
    assert chosen.names == ("mail__send",)
    messages = searched(
        "bank__transfer",
        since=[AIMessage("Done."), HumanMessage("thanks a lot")],
    )
    assert searching().select(messages, previous=["mail__send"]).names == (
        "mail__send",
    )
