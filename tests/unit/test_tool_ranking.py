"""Are tools ranked by the right words, and for every part of what is asked?"""

from fractions import Fraction

import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.tools.ranking import needs_of
from langchain_ctxwin.tools.selector import NOTHING_FOUND
from support.tool_sets import definition, one_each


class Fixed:
    """A ranker that always returns the same."""

    def __init__(self, *scores):
        self.scores, self.asked = scores, []

    def rank(self, query, tools):
        self.asked.append(query)
        return list(self.scores)


MAIL = definition("send_email", "Send an email to a recipient.")
WEATHER = definition("forecast", "Says what the weather does.")
MONEY = definition(
    "exchange", "Turns one currency into another.", amount="How many coins"
)
RIDE = definition("cab", "Orders a taxi.")
TOOLS = [MAIL, WEATHER, MONEY, RIDE]


def best(query, *, room=1, tools=TOOLS, previous=(), **options):
    return (
        ToolSelector(tools, room, counter=one_each, **options)
        .select(query, previous=previous)
        .names
    )


HELP = definition("please_help", "Help: I need help, please.")
VALUED = definition("second", "Sets it.", unit="Its unit")
VALUED["function"]["parameters"]["properties"]["unit"]["enum"] = [
    "celsius",
    "fahrenheit",
]


@pytest.mark.parametrize(
    ("query", "tools", "name"),
    [
        ("use the exchange", TOOLS, "exchange"),
        ("what does the weather do", TOOLS, "forecast"),
        ("number of coins", TOOLS, "exchange"),
        ("in fahrenheit", [definition("first", "Sets it."), VALUED, MAIL], "second"),
        ("user name", [definition("aaa"), definition("getUserName")], "getUserName"),
        (
            "orders that are open",
            [definition("aaa"), definition("list_open_orders")],
            "list_open_orders",
        ),
        (
            "conversion",
            [
                definition("a", "Draws."),
                definition("b", "Converts."),
                definition("c", "Writes."),
            ],
            "b",
        ),
        ("help", [MAIL, HELP], "please_help"),
        (
            "weather on 1 May 2023",
            [definition("year_2023", "Events of 2023."), WEATHER],
            "forecast",
        ),
    ],
)
def test_a_tool_is_found_by_parts_of_its_name_its_description_and_its_parameters(
    query, tools, name
):
    """The values that a parameter can have are words of its tool; other forms of a word are found by their letters.

    Words that any request could have rank last, and its numbers rank nothing.
    """
    assert best(query, tools=tools) == (name,)


def test_every_part_of_a_request_gets_its_tool():
    mails = [
        definition(f"email_{number}", "Send an email to a recipient with a text.")
        for number in range(4)
    ]
    query = "Send an email with this text to the recipient and the other recipient, and then order a taxi."
    assert "cab" in best(query, room=3, tools=[*mails, RIDE])


def test_a_custom_ranker_decides_by_one_score_per_tool():
    ranker = Fixed(np.float32(0), 1, Fraction(3), float("nan"))
    assert best("weather", ranker=ranker) == ("exchange",)
    assert ranker.asked == ["weather"]
    with pytest.raises(ConfigError, match=r"Fixed\.rank returned 1 values for 4"):
        best("weather", ranker=Fixed(1))


def test_scores_of_zero_or_less_are_no_match():
    """For choices and for searches: the given order fills the room, and nothing is shown."""
    selector = ToolSelector(
        TOOLS, 2, counter=one_each, ranker=Fixed(-0.9, -0.5, 0, -0.1)
    )
    assert selector.select("weather").names == ("send_email", "forecast")
    assert selector.select("weather", previous=["cab", "exchange"]).names == (
        "cab",
        "exchange",
    )
    assert selector.search_tools.invoke({"query": "weather"}) == NOTHING_FOUND


def test_what_the_model_plans_counts_as_a_request():
    call = {"name": "write_todos", "args": {}, "id": "t"}
    messages = [
        HumanMessage("Prepare my trip to Rome"),
        AIMessage("First the forecast.", tool_calls=[call]),
    ]
    needs = needs_of([*messages, ToolMessage("ok", tool_call_id="t")])
    assert needs.parts == ("Prepare my trip to Rome", "First the forecast.")
    assert needs.called == ("write_todos",)
