"""Are tools ranked by the right words, by meaning, and for every part of what is asked?"""

import asyncio
import threading
from fractions import Fraction

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from structlog.testing import capture_logs

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tools import ToolSelector, ranking
from langchain_ctxwin.tools.entries import needs_of
from langchain_ctxwin.tools.selector import NOTHING_FOUND
from support.tool_sets import definition, one_each

TOPICS = ("money", "sky", "travel")
MEANINGS = {
    "currency": "money",
    "euros": "money",
    "weather": "sky",
    "rain": "sky",
    "taxi": "travel",
    "ride": "travel",
}


class Topics(Embeddings):
    """Texts about one topic are alike; counts what it embedded."""

    def __init__(self):
        self.documents, self.queries = [], []

    def embed_documents(self, texts):
        self.documents += texts
        return [self._vector(text) for text in texts]

    def embed_query(self, text):
        self.queries.append(text)
        return self._vector(text)

    def _vector(self, text):
        said = {topic for word, topic in MEANINGS.items() if word in text.lower()}
        return [1.0 if topic in said else 0.0 for topic in TOPICS]


class Ragged(Topics):
    """Answers with too few vectors."""

    def embed_documents(self, texts):
        return super().embed_documents(texts)[:-1]


class Holed(Topics):
    """Its vector of any text with a certain word holds what is no number; without a hole it is down then."""

    def __init__(self, word, hole=None):
        super().__init__()
        self.word, self.hole = word, hole

    def _vector(self, text):
        vector = super()._vector(text)
        if self.word not in text.lower():
            return vector
        if self.hole is None:
            raise ConnectionError("down")
        return [self.hole, *vector[1:]]


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


def test_meaning_finds_what_no_word_says():
    """What is near in meaning is a clear wish; vectors that do not match the tools are not used."""
    assert best("will there be rain", embeddings=Topics()) == ("forecast",)
    assert best("fifty euros please", embeddings=Topics()) == ("exchange",)
    assert best("will there be rain", embeddings=Topics(), previous=["send_email"]) == (
        "forecast",
    )
    assert best("weather", embeddings=Ragged()) == ("forecast",)


async def test_tools_are_embedded_once_and_requests_while_they_are_remembered():
    """Embeddings that fail leave words."""
    embeddings = Topics()
    selector = ToolSelector(TOOLS, 1, counter=one_each, embeddings=embeddings)
    first = selector.select("will there be rain")
    assert await selector.aselect("will there be rain") == first
    assert (len(embeddings.documents), embeddings.queries) == (
        len(TOOLS),
        ["will there be rain"],
    )
    selector = ToolSelector(TOOLS, 1, counter=one_each, embeddings=Holed(""))
    with capture_logs() as logs:
        names = [
            selector.select("weather").names,
            (await selector.aselect("weather")).names,
        ]
    assert names == [("forecast",), ("forecast",)]
    assert [log["event"] for log in logs] == ["tools.embeddings_failed"] * 2


@pytest.mark.parametrize("number", [float, np.float32, np.int64, Fraction])
def test_a_custom_ranker_decides_by_any_real_numbers_and_others_are_refused(number):
    ranker = Fixed(*map(number, (0, 1, 3)), float("nan"))
    assert best("weather", ranker=ranker) == ("exchange",)
    assert ranker.asked == ["weather"]
    for wrong in ([number(1)], ["high", *map(number, (1, 1, 1))]):
        with pytest.raises(ConfigError, match=r"Fixed\.rank"):
            best("weather", ranker=Fixed(*wrong))


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


async def test_the_index_is_built_once_and_not_on_the_event_loop(monkeypatch):
    """It takes seconds for thousands of tools; also when the first of those that wait is cancelled."""
    builders = []

    class Recorded(ranking.WordIndex):
        def __init__(self, entries):
            builders.append(threading.current_thread())
            super().__init__(entries)

    monkeypatch.setattr(ranking, "WordIndex", Recorded)
    selector = ToolSelector(TOOLS, 1, counter=one_each)
    waiting = [asyncio.create_task(selector.aselect("weather")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    assert [(await one).names for one in waiting[1:]] == [("forecast",)] * 2
    assert len(builders) == 1
    assert builders[0] is not threading.main_thread()


def test_what_the_model_plans_counts_as_a_request():
    call = {"name": "write_todos", "args": {}, "id": "t"}
    messages = [
        HumanMessage("Prepare my trip to Rome"),
        AIMessage("First the forecast.", tool_calls=[call]),
    ]
    needs = needs_of([*messages, ToolMessage("ok", tool_call_id="t")])
    assert needs.parts == ("Prepare my trip to Rome", "First the forecast.")
    assert needs.called == ("write_todos",)
