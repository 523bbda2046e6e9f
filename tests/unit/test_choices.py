"""Do nodes and middleware send each request to a model that takes it, with the tools that it needs?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.embeddings import Embeddings
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from langchain_ctxwin import (
    ContextEngine,
    ContextNodes,
    ContextState,
    ModelLimits,
    create_context_agent,
)
from langchain_ctxwin.agent.choices import with_tools
from langchain_ctxwin.errors import ConfigError, NoModelFitsError
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from langchain_ctxwin.routing import RoutedChatModel
from langchain_ctxwin.tools import ToolSelector
from support.fakes import ScriptedChatModel, SdkError, core_overflow, script
from support.routing import FixedQuality, router, scripted, unavailable

THREAD: Any = {"configurable": {"thread_id": "1"}}
ROOM_TOKENS = 250  # two or three of the tools below
WORDS = "the quick brown fox jumps over the lazy dog " * 40  # about 400 tokens


def from_nodes(model: Any, tools: list[Any], **options: Any) -> Any:
    return create_context_agent(model, tools, checkpointer=InMemorySaver(), **options)


def from_middleware(model: Any, tools: list[Any], *, tool_selector: Any = None) -> Any:
    return create_agent(
        model,
        tools,
        middleware=[ContextWindowMiddleware(tool_selector=tool_selector)],
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )


def with_router_argument(model: RoutedChatModel, tools: list[Any], *, tool_selector: Any = None) -> Any:
    spare = ScriptedChatModel(faults=[AssertionError("the router's candidates answer")])
    return create_agent(
        spare,
        tools,
        middleware=[ContextWindowMiddleware(router=model.router, tool_selector=tool_selector)],
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )


Build = Callable[..., Any]
adapters = pytest.mark.parametrize("build", [from_nodes, from_middleware, with_router_argument])


def routed(*models: ScriptedChatModel) -> RoutedChatModel:
    """A routed model for which every candidate is as good as the others, so that the cheapest that fits answers."""
    return RoutedChatModel(
        router(*models, quality=FixedQuality(dict.fromkeys((one.model_name for one in models), 0.9)))
    )


def small_tools() -> list[BaseTool]:
    def named(name: str, description: str) -> BaseTool:
        return StructuredTool.from_function(lambda text: f"{name}: {text}", name=name, description=description)

    return [
        named("alarm_clock", "Set an alarm for a time of day."),
        named("book_flight", "Book a flight between two airports."),
        named("convert_money", "Convert an amount of money from one currency to another."),
        named("find_recipe", "Find recipes for given ingredients."),
        named("order_taxi", "Order a taxi to an address."),
        named("play_music", "Play a song or an album."),
        named("weather_forecast", "Forecast of rain, wind and temperature for a city."),
    ]


def calling(name: str, **args: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])


def turns(agent: Any, *texts: str) -> list[str]:
    """Play turns and return which model answered each."""
    answers = [agent.invoke({"messages": [("user", text)]}, THREAD)["messages"][-1] for text in texts]
    return [answer.response_metadata["route"]["model"] for answer in answers]


def names_shown(model: ScriptedChatModel) -> list[list[str]]:
    return [[tool["function"]["name"] for tool in request.tools] for request in model.requests]


@adapters
def test_a_conversation_moves_to_the_larger_window_when_it_outgrows_the_smaller(build: Build) -> None:
    small, large = scripted("small", 2_000), scripted("large", 16_000)
    agent = build(routed(small, large), [])
    assert turns(agent, *[WORDS] * 6) == ["small"] * 3 + ["large"] * 3
    assert not any(request.refused for model in (small, large) for request in model.requests)


@adapters
def test_a_conversation_that_no_window_holds_is_compacted_for_the_largest(build: Build) -> None:
    small, large = scripted("small", 2_000), scripted("large", 4_000)
    agent = build(routed(small, large), [])
    assert turns(agent, *[WORDS] * 12)[-1] == "large"
    assert agent.get_state(THREAD).values["context_guard"]["compactions"] >= 1
    assert not any(request.refused for model in (small, large) for request in model.requests)


@adapters
def test_a_conversation_stays_with_its_model_while_that_takes_its_requests(build: Build) -> None:
    cheap, dear = scripted("cheap", 8_000), scripted("dear", 8_000)
    agent = build(routed(cheap, dear), [])
    assert turns(agent, "One?", "Two?", "Three?") == ["cheap"] * 3
    reasons = [
        message.response_metadata["route"]["reason"] for message in agent.get_state(THREAD).values["messages"][1::2]
    ]
    assert reasons[1:] == ["kept: the conversation's prompt cache"] * 2


@adapters
def test_a_model_that_is_down_is_replaced_in_the_same_request(build: Build) -> None:
    down, other = scripted("down", 8_000, faults=[unavailable()]), scripted("other", 8_000)
    agent = build(routed(down, other), [])
    assert turns(agent, "Hello?") == ["other"]


@adapters
def test_a_model_whose_true_window_is_smaller_than_stated_hands_over_to_a_larger_one(build: Build) -> None:
    liar = scripted("liar", 8_000, input_limit=300)
    large = scripted("large", 16_000)
    agent = build(routed(liar, large), [])
    assert turns(agent, WORDS, "And now?") == ["large", "large"]


@adapters
def test_when_every_window_is_smaller_than_stated_the_request_is_compacted_and_sent_again(build: Build) -> None:
    models = [scripted(name, 16_000, input_limit=1_500, overflow=core_overflow) for name in ("one", "two")]
    agent = build(routed(*models), [])
    assert len(turns(agent, *[WORDS] * 6)) == 6


@adapters
def test_a_refusal_without_figures_is_answered_by_smaller_requests_only(build: Build) -> None:
    def refused(tokens: int, limit: int) -> Exception:
        return ContextOverflowError("the input is too long for this model")

    models = [scripted(name, 16_000, input_limit=1_200, overflow=refused) for name in ("one", "two")]
    agent = build(routed(*models), [])
    with contextlib.suppress(ContextOverflowError):
        turns(agent, *[WORDS] * 4)
    for model in models:
        sizes = [request.tokens for request in model.requests if request.refused]
        assert sizes == sorted(set(sizes), reverse=True)


@adapters
def test_a_change_of_the_model_is_reported_whoever_caused_it(build: Build) -> None:
    first, second = scripted("first", 8_000, faults=[unavailable()]), scripted("second", 8_000)
    agent = build(routed(first, second), [])
    events = agent.stream({"messages": [("user", "Hello?")]}, THREAD, stream_mode="custom")
    changes = [(event["before"], event["model"]) for event in events if event["type"] == "context.model_chosen"]
    assert changes == [("", "first"), ("first", "second")]


@adapters
def test_a_request_that_no_candidate_can_do_is_refused_before_any_call(build: Build) -> None:
    models = [scripted(name, 8_000) for name in ("one", "two")]
    for model in models:
        model.profile = {**model.profile, "image_inputs": False}
    agent = build(routed(*models), [])
    image = {"type": "image", "url": "https://example.com/a.png"}
    with pytest.raises(NoModelFitsError, match=r"(?s)one: .*images.*two: .*images"):
        agent.invoke({"messages": [{"role": "user", "content": [image]}]}, THREAD)
    assert [model.requests for model in models] == [[], []]


@adapters
def test_async_runs_send_what_sync_runs_send(build: Build) -> None:
    def played(is_async: bool) -> Any:
        small, large = scripted("small", 2_000), scripted("large", 16_000)
        agent = build(routed(small, large), [], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS))

        async def run() -> None:
            for text in (WORDS, WORDS, WORDS, "Weather in Oslo?"):
                await agent.ainvoke({"messages": [("user", text)]}, THREAD)

        asyncio.run(run()) if is_async else turns(agent, WORDS, WORDS, WORDS, "Weather in Oslo?")
        return [[(request.tokens, request.tools) for request in model.requests] for model in (small, large)]

    assert played(is_async=True) == played(is_async=False)


def test_nodes_and_middleware_send_the_same_requests() -> None:
    def played(build: Build) -> Any:
        small, large = scripted("small", 2_000), scripted("large", 4_000)
        agent = build(routed(small, large), [], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS))
        turns(agent, "Weather in Oslo?", *[WORDS] * 8, "Play a song.")
        return [[(request.tokens, request.tools) for request in model.requests] for model in (small, large)]

    assert played(from_nodes) == played(from_middleware) == played(with_router_argument)


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_a_request_shows_the_tools_that_it_needs_and_a_way_to_find_more(build: Build) -> None:
    model = scripted("model", 8_000)
    agent = build(model, [], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS))
    agent.invoke({"messages": [("user", "Will it rain in Oslo?")]}, THREAD)
    (shown,) = names_shown(model)
    assert shown[0] == "search_tools"
    assert "weather_forecast" in shown
    assert agent.get_state(THREAD).values["context_tools"] == shown[1:]
    assert len(shown) < len(small_tools())


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_a_tool_that_the_model_searched_for_is_shown_and_can_be_called(build: Build) -> None:
    answers = [calling("search_tools", query="play a song"), calling("play_music", text="Yesterday"), "Playing."]
    model = scripted("model", 8_000, policy=script(*answers))
    agent = build(model, [], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS))
    messages = agent.invoke({"messages": [("user", "Will it rain in Oslo?")]}, THREAD)["messages"]
    assert "play_music: Yesterday" in [message.text for message in messages]
    first, second, _ = names_shown(model)
    assert "play_music" not in first
    assert "play_music" in second


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_tools_of_the_agent_itself_are_always_shown(build: Build) -> None:
    model = scripted("model", 8_000)
    ask = StructuredTool.from_function(lambda text: text, name="ask_user", description="Ask the user.")
    agent = build(model, [ask], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS))
    agent.invoke({"messages": [("user", "Will it rain in Oslo?")]}, THREAD)
    agent.invoke({"messages": [("user", "Play a song.")]}, THREAD)
    assert [shown[0] for shown in names_shown(model)] == ["ask_user", "ask_user"]


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_the_set_of_tools_stays_while_it_serves(build: Build) -> None:
    model = scripted("model", 8_000)
    agent = build(model, [], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS))
    for text in ("Will it rain in Oslo?", "And in Bergen?", "Thanks!"):
        agent.invoke({"messages": [("user", text)]}, THREAD)
    first, *later = names_shown(model)
    assert later == [first, first]


def test_tools_take_at_most_half_of_a_small_window() -> None:
    model = scripted("model", 1_000)
    agent = from_nodes(model, [], tool_selector=ToolSelector(small_tools(), 100_000))
    agent.invoke({"messages": [("user", "Will it rain in Oslo?")]}, THREAD)
    report = agent.get_state(THREAD).values["context_report"]
    assert "weather_forecast" in names_shown(model)[-1]
    assert report["tool_tokens"] <= report["input_limit"] / 2 + ToolSelector(small_tools(), 1_000).search_tokens


def test_select_model_chooses_in_a_graph_of_ones_own() -> None:
    small, large = scripted("small", 2_000), scripted("large", 16_000)
    model = routed(small, large)
    nodes = ContextNodes(ContextEngine(limits=model), router=model.router)
    builder = StateGraph(ContextState)
    builder.add_node("select_model", nodes.select_model)
    builder.add_edge(START, "select_model")
    builder.add_edge("select_model", END)
    state = builder.compile().invoke({"messages": [("user", WORDS * 8)]})
    assert state["context_model"]["model"] == "large"


def test_a_model_that_cannot_follow_the_choices_is_refused_when_the_graph_is_built() -> None:
    model, other = routed(scripted("small", 2_000)), routed(scripted("small", 2_000))
    engine = ContextEngine(limits=ModelLimits(8_000))
    selecting = ContextNodes(engine, tool_selector=ToolSelector(small_tools(), ROOM_TOKENS))
    with pytest.raises(ConfigError, match="pass a chat model to which no tools are bound"):
        selecting.model_node(lambda messages: AIMessage(str(len(messages))))
    routing = ContextNodes(engine, router=model.router)
    for stranger in (scripted("small", 2_000), other, lambda messages: AIMessage(str(len(messages)))):
        with pytest.raises(ConfigError, match=r"pass RoutedChatModel\(router\)"):
            routing.model_node(stranger)
    assert routing.model_node(model.bind_tools(small_tools()).with_retry())


@pytest.mark.parametrize("wrong", [{"router": "fast"}, {"tool_selector": [1]}])
def test_what_cannot_choose_is_refused_when_it_is_given(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"pass a (ModelRouter|ToolSelector)"):
        ContextNodes(ContextEngine(limits=ModelLimits(8_000)), **wrong)
    with pytest.raises(ConfigError, match=r"pass a (ModelRouter|ToolSelector)"):
        ContextWindowMiddleware(**wrong)


def test_a_router_and_a_model_for_each_request_contradict_each_other() -> None:
    model = routed(scripted("small", 2_000))
    with pytest.raises(ConfigError, match="leave out model"):
        ContextNodes(ContextEngine(limits=model), router=model.router, model=model)


def test_explicit_limits_hold_for_a_routed_model_too() -> None:
    small, large = scripted("small", 2_000), scripted("large", 16_000)
    agent = from_nodes(routed(small, large), [], limits=ModelLimits(1_000))
    turns(agent, *[WORDS] * 4)
    assert max(model.largest_tokens for model in (small, large)) <= 750


def state_of(agent: Any) -> dict[str, Any]:
    values: dict[str, Any] = agent.get_state(THREAD).values
    return values


@adapters
def test_a_candidate_that_is_busy_once_keeps_its_limit(build: Build) -> None:
    big, small = scripted("big", 16_000), scripted("small", 2_000)
    agent = build(routed(big, small), [])
    turns(agent, *[WORDS] * 5)
    big.faults.append(unavailable())
    assert turns(agent, "And now?") == ["small"]
    assert "limits" not in state_of(agent)["context_counts"]
    assert state_of(agent)["context_report"]["input_limit"] <= 2_000


@adapters
def test_a_conversation_stays_with_the_candidate_that_answered_last(build: Build) -> None:
    first, second = scripted("first", 8_000, faults=[unavailable()]), scripted("second", 8_000)
    agent = build(routed(first, second), [])
    assert turns(agent, "One?", "Two?") == ["second", "second"]
    assert state_of(agent)["context_model"]["model"] == "second"


@adapters
def test_the_tools_of_the_agent_decide_who_may_answer(build: Build) -> None:
    plain, able = scripted("plain", 8_000), scripted("able", 8_000)
    plain.profile = {**plain.profile, "tool_calling": False}
    agent = build(routed(plain, able), small_tools())
    assert turns(agent, "Hello?") == ["able"]
    assert state_of(agent)["context_model"]["model"] == "able"


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_the_length_that_answers_are_asked_for_is_reserved(build: Build) -> None:
    model = routed(scripted("small", 4_000), scripted("large", 16_000))
    model.max_tokens = 3_000
    agent = build(model, [])
    turns(agent, "Hello?")
    assert state_of(agent)["context_report"]["input_limit"] == 1_000


@adapters
def test_a_candidate_that_is_gone_after_a_restart_is_replaced(build: Build) -> None:
    saver = InMemorySaver()

    def restarted(*names: str) -> Any:
        agent = build(routed(*(scripted(name, 8_000) for name in names)), [])
        agent.checkpointer = saver
        return agent

    assert turns(restarted("old", "other"), "One?") == ["old"]
    assert turns(restarted("new", "other"), "Two?") == ["new"]


def test_a_run_that_stopped_before_the_model_goes_on_after_its_candidate_is_gone() -> None:
    saver = InMemorySaver()
    agent = from_nodes(routed(scripted("old", 8_000)), [], interrupt_before=["agent"])
    agent.checkpointer = saver
    agent.invoke({"messages": [("user", "Hello?")]}, THREAD)
    agent = from_nodes(routed(scripted("new", 8_000)), [])
    agent.checkpointer = saver
    assert agent.invoke(None, THREAD)["messages"][-1].response_metadata["route"]["model"] == "new"


def test_what_a_caller_asks_for_by_name_is_taken_and_measured() -> None:
    small, large = scripted("small", 2_000), scripted("large", 16_000)
    model = routed(small, large)
    nodes = ContextNodes(ContextEngine(limits=model), router=model.router)
    node = nodes.model_node(model.bind(route="large"))
    state = {"messages": [HumanMessage("Hello?", id="1")]}
    state |= nodes.budget_check.invoke(state)
    assert state["context_model"]["model"] == "large"
    assert node.invoke(state)["messages"][0].response_metadata["route"]["model"] == "large"


def test_two_model_nodes_that_ask_for_different_candidates_are_refused() -> None:
    model = routed(scripted("small", 2_000), scripted("large", 16_000))
    nodes = ContextNodes(ContextEngine(limits=model), router=model.router)
    nodes.model_node(model.bind(route="large"))
    with pytest.raises(ConfigError, match="make ContextNodes of their own for each"):
        nodes.model_node(model.bind(route="small"))


def test_limits_that_were_set_on_the_engine_hold_with_a_router_too() -> None:
    model = routed(scripted("small", 4_000), scripted("large", 16_000))
    nodes = ContextNodes(ContextEngine(limits=ModelLimits(1_000)), router=model.router)
    assert (
        nodes.budget_check.invoke({"messages": [HumanMessage("Hello?", id="1")]})["context_report"]["input_limit"]
        == 750
    )


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_tools_that_a_small_window_leaves_out_can_be_found(build: Build) -> None:
    model = scripted("model", 1_000)
    agent = build(model, [], tool_selector=ToolSelector(small_tools(), 100_000))
    agent.invoke({"messages": [("user", "Will it rain in Oslo?")]}, THREAD)
    (shown,) = names_shown(model)
    assert shown[0] == "search_tools"
    assert len(shown) <= len(small_tools())


def test_a_tool_that_other_middleware_left_out_stays_out() -> None:
    class WithoutFlights(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=[tool for tool in request.tools if tool.name != "book_flight"]))

    model = scripted("model", 8_000)
    selector = ToolSelector(small_tools(), 100_000)
    agent = create_agent(model, [], middleware=[WithoutFlights(), ContextWindowMiddleware(tool_selector=selector)])
    agent.invoke({"messages": [("user", "Book a flight to Oslo.")]})
    (shown,) = names_shown(model)
    assert "book_flight" not in shown
    assert "weather_forecast" in shown


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_async_runs_await_the_embeddings(build: Build) -> None:
    class Awaited(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise AssertionError("blocks the event loop")

        def embed_query(self, text: str) -> list[float]:
            raise AssertionError("blocks the event loop")

        async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[float(len(text)), 1.0] for text in texts]

        async def aembed_query(self, text: str) -> list[float]:
            return [float(len(text)), 1.0]

    model = scripted("model", 8_000)
    agent = build(model, [], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS, embeddings=Awaited()))
    asyncio.run(agent.ainvoke({"messages": [("user", "Will it rain in Oslo?")]}, THREAD))
    assert len(model.requests) == 1


def test_what_is_bound_to_the_model_stays_bound_when_tools_are_chosen() -> None:
    model = scripted("model", 8_000)
    selector = ToolSelector(small_tools(), ROOM_TOKENS)
    bound = with_tools(model.bind(stop=["X"]).with_retry(), selector.tools)
    assert isinstance(bound, RunnableBindingBase)
    assert bound.kwargs == {"stop": ["X"]}
    bound.invoke("Hello?")
    assert [len(request.tools) for request in model.requests] == [len(small_tools())]


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_a_tool_with_the_name_of_the_search_is_refused(build: Build) -> None:
    own = StructuredTool.from_function(lambda text: text, name="search_tools", description="Search the shed.")
    with pytest.raises(ConfigError, match="'search_tools'"):
        build(scripted("model", 8_000), [own], tool_selector=ToolSelector(small_tools(), ROOM_TOKENS)).invoke(
            {"messages": [("user", "Hello?")]}, THREAD
        )


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_selected_tools_leave_room_beside_a_long_prompt(build: Build) -> None:
    model = scripted("model", 2_000)
    selector = ToolSelector(small_tools(), 100_000)
    prompt = "the quick brown fox " * 200  # about 800 of 1,500 tokens
    if build is from_nodes:
        agent = from_nodes(model, [], tool_selector=selector, system_prompt=prompt)
    else:
        middleware = [ContextWindowMiddleware(tool_selector=selector)]
        agent = create_agent(model, [], system_prompt=prompt, middleware=middleware, checkpointer=InMemorySaver())
    agent.invoke({"messages": [("user", "Will it rain in Oslo?")]}, THREAD)
    (request,) = model.requests
    assert 1 < len(request.tools) < len(small_tools())


@pytest.mark.parametrize("build", [from_nodes, from_middleware])
def test_tools_that_the_provider_runs_are_selected_and_shown(build: Build) -> None:
    definition = {"name": "ocean_tides", "description": "Tides of a harbor.", "parameters": {"type": "object"}}
    model = scripted("model", 8_000)
    selector = ToolSelector([*small_tools(), {"type": "function", "function": definition}], 100_000)
    agent = build(model, [], tool_selector=selector)
    agent.invoke({"messages": [("user", "When is high tide in the harbor?")]}, THREAD)
    (shown,) = names_shown(model)
    assert "ocean_tides" in shown


@adapters
def test_a_candidate_that_asks_for_too_much_output_asks_for_less(build: Build) -> None:
    class Joint(ScriptedChatModel):
        max_tokens: int = 3_000

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            tokens, output = self.counter(messages), kwargs.get("max_tokens", self.max_tokens)
            if tokens + output > 4_000:
                raise SdkError(
                    "This model's maximum context length is 4000 tokens. However, you requested "
                    f"{tokens + output} tokens ({tokens} in the messages, {output} in the completion). Please reduce "
                    "the length of the messages or completion.",
                    status_code=400,
                    code="context_length_exceeded",
                )
            return super()._generate(messages, stop, run_manager, **kwargs)

    model = scripted("joint", 16_000, Joint, input_limit=None)
    agent = build(routed(model), [])
    turns(agent, WORDS * 5)
    assert len(model.requests) == 1
