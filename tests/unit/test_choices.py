"""Do nodes and middleware send each request to a model that takes it, with the tools that it needs?"""

import asyncio
from itertools import product

import pytest
from langchain_core.tools import StructuredTool

from langchain_ctxwin import (
    RoutingConfig,
    TokenEstimator,
)
from langchain_ctxwin.agent.step import COMPACTS
from langchain_ctxwin.routing import RoutedChatModel
from langchain_ctxwin.tools import ToolSelection, ToolSelector
from support.agents import THREAD, agent_on, call, is_refused, on_both, values
from support.fakes import ScriptedChatModel, core_overflow, script
from support.routing import router, scripted

ROOM_TOKENS = 250  # two or three of the tools below
WORDS = "the quick brown fox jumps over the lazy dog " * 40  # about 400 tokens
RAIN = "Will it rain in Oslo?"


def on(adapter, model, tools=(), **options):
    """Return an agent; the one of `router=` is told the candidates apart from its model, which never answers."""
    if adapter != "router=":
        return agent_on(adapter, model, tools, **options)
    spare = ScriptedChatModel(faults=[AssertionError("the router's candidates answer")])
    return agent_on("middleware", spare, tools, router=model.router, **options)


ROUTED = ("nodes", "middleware", "router=")
adapters = pytest.mark.parametrize("adapter", ROUTED)


def routed(*models, **options):
    """Return a routed model whose candidates are equally good, so that the cheapest that fits answers."""
    return RoutedChatModel(
        router(*models, chances={one.model_name: 0.9 for one in models}, **options)
    )


def selector(room_tokens=ROOM_TOKENS, *more, **options):
    return ToolSelector([*small_tools(), *more], room_tokens, **options)


DESCRIPTIONS = {
    "alarm_clock": "Set an alarm for a time of day.",
    "book_flight": "Book a flight between two airports.",
    "convert_money": "Convert an amount of money from one currency to another.",
    "find_recipe": "Find recipes for given ingredients.",
    "order_taxi": "Order a taxi to an address.",
    "play_music": "Play a song or an album.",
    "weather_forecast": "Forecast of rain, wind and temperature for a city.",
}


def small_tools():
    return [named(name, description) for name, description in DESCRIPTIONS.items()]


def named(name, description):
    return StructuredTool.from_function(
        lambda text: f"{name}: {text}", name=name, description=description
    )


def turns(agent, *texts):
    """Play turns and return which model answered each."""
    answers = [
        agent.invoke({"messages": [("user", text)]}, THREAD)["messages"][-1]
        for text in texts
    ]
    return [answer.response_metadata["route"]["model"] for answer in answers]


def shown_by(model, agent, *texts):
    """Play turns and return the names of the tools in each request."""
    for text in texts or (RAIN,):
        agent.invoke({"messages": [("user", text)]}, THREAD)
    return [
        [tool["function"]["name"] for tool in request.tools]
        for request in model.requests
    ]


@adapters
@pytest.mark.parametrize(
    ("when_full", "window", "answered", "is_compacted"),
    [
        ("move", 16_000, ["small"] * 3 + ["large"] * 3, False),
        ("move", 4_000, ["small"] * 3 + ["large"] * 9, True),
        ("compact", 16_000, ["small"] * 8, True),
    ],
)
def test_a_full_conversation_is_compacted_or_moves_as_the_setting_says(
    adapter, when_full, window, answered, is_compacted
):
    """What is sent always fits."""
    small, large = scripted("small", 2_000), scripted("large", window)
    model = routed(small, large, config=RoutingConfig(when_full=when_full))
    agent = on(adapter, model)
    assert turns(agent, *[WORDS] * len(answered)) == answered
    assert not is_refused(small, large)
    is_kept = values(agent)["context_model"]["reason"] == COMPACTS
    assert is_kept is (when_full == "compact")
    assert (values(agent)["context_report"]["compactions"] > 0) is is_compacted


@adapters
def test_windows_that_are_smaller_than_stated_are_compacted_for(adapter):
    models = [
        scripted(name, 16_000, input_limit=1_500, overflow=core_overflow)
        for name in ("one", "two")
    ]
    assert len(turns(on(adapter, routed(*models)), *[WORDS] * 6)) == 6


def test_nodes_and_middleware_send_the_same_requests_sync_and_async():
    async def played(adapter, is_async):
        small, large = scripted("small", 2_000), scripted("large", 4_000)
        agent = on(adapter, routed(small, large), tool_selector=selector())
        for text in ("Weather in Oslo?", *[WORDS] * 8, "Play a song."):
            given = {"messages": [("user", text)]}
            await agent.ainvoke(given, THREAD) if is_async else agent.invoke(
                given, THREAD
            )
        return [
            [(request.tokens, request.tools) for request in model.requests]
            for model in (small, large)
        ]

    first, *others = [
        asyncio.run(played(*way)) for way in product(ROUTED, (False, True))
    ]
    assert others == [first] * 5


@on_both
def test_a_request_shows_the_tools_that_it_needs_and_keeps_the_set_while_it_serves(
    adapter,
):
    model, own = scripted("model", 8_000), named("ask_user", "Ask the user.")
    agent = on(adapter, model, [own], tool_selector=selector())
    first, *later = shown_by(model, agent, RAIN, "And in Bergen?", "Thanks!")
    assert first[:2] == ["ask_user", "search_tools"]
    assert "weather_forecast" in first
    assert values(agent)["context_tools"] == first[2:]
    assert len(first) - 1 < len(DESCRIPTIONS)
    assert later == [first, first]


@on_both
def test_a_tool_that_the_model_searched_for_is_shown_and_can_be_called(adapter):
    searches, plays = (
        call("search_tools", "c1", query="play a song"),
        call("play_music", "c2", text="Yesterday"),
    )
    model = scripted("model", 8_000, policy=script(searches, plays, "Playing."))
    first, second, _ = shown_by(
        model, agent := on(adapter, model, tool_selector=selector())
    )
    assert "play_music: Yesterday" in [
        message.text for message in values(agent)["messages"]
    ]
    assert ("play_music" in first, "play_music" in second) == (False, True)


@on_both
def test_tools_take_at_most_half_of_what_a_prompt_leaves_and_the_others_can_be_found(
    adapter,
):
    model = scripted("model", 1_000)
    (shown,) = shown_by(
        model, agent := on(adapter, model, tool_selector=selector(100_000))
    )
    report = values(agent)["context_report"]
    assert (shown[0], "weather_forecast" in shown) == ("search_tools", True)
    assert len(shown) <= len(DESCRIPTIONS)
    search_tokens = TokenEstimator()([], tools=[selector().search_tools])
    assert report["tool_tokens"] <= report["input_limit"] / 2 + search_tokens
    # about 800 of 1,500 tokens
    model, prompt = (scripted("model", 2_000), "the quick brown fox " * 190)
    (beside,) = shown_by(
        model, on(adapter, model, tool_selector=selector(100_000), system_prompt=prompt)
    )
    assert 1 < len(beside) < len(DESCRIPTIONS)


@on_both
@pytest.mark.parametrize("real_tokens", [1_000, 600])
def test_tools_are_chosen_anew_within_a_limit_that_a_refusal_states(
    adapter, real_tokens
):
    """In the same turn, also where the definitions alone exceed that limit; those of later turns stay within it."""
    more = [
        named(f"tune_{n}", f"Tune the strings of instrument {n}. " * 4)
        for n in range(20)
    ]
    model = scripted("model", 8_000, input_limit=real_tokens, overflow=core_overflow)
    agent = on(adapter, model, tool_selector=selector(100_000, *more))
    shown = shown_by(model, agent, RAIN, "Play a song.", "Order a taxi.")
    assert [request.refused for request in model.requests] == [
        True,
        False,
        False,
        False,
    ]
    assert len(shown[0]) > len(shown[1])
    assert [message.type for message in values(agent)["messages"]] == [
        "human",
        "ai",
    ] * 3
    assert values(agent)["context_report"]["input_limit"] <= real_tokens


class Fickle(ToolSelector):
    """Chooses one tool, and another one each time."""

    def select(self, *_, previous=(), **options):
        new = next(tool for tool in self.tools if tool.name not in previous)
        names = (new.name,)
        return ToolSelection(selected=(new,), deferred=(), tokens=0, names=names)


@on_both
def test_a_request_that_was_refused_is_smaller_with_other_tools_too(adapter):
    def refused(tokens, limit):
        return ValueError("Input is too long for requested model.")

    model = scripted("model", 8_000, input_limit=5_000, overflow=refused)
    agent = on(adapter, model, tool_selector=Fickle(small_tools(), ROOM_TOKENS))
    agent.invoke({"messages": [("user", "word " * 6_500)]}, THREAD)
    first, *others = [request.tokens for request in model.requests]
    assert max(others) < 0.8 * first


@adapters
def test_a_question_stays_whole_where_all_windows_are_smaller_than_stated(adapter):
    models = [
        scripted(name, 60_000, input_limit=limit, overflow=core_overflow)
        for name, limit in (("one", 1_200), ("two", 3_000))
    ]
    agent = on(adapter, routed(*models))
    assert turns(agent, WORDS, WORDS * 3, WORDS * 5)[-1] == "two"
    assert models[-1].requests[-1].messages[-1].text == WORDS * 5
