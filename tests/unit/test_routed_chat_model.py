"""Is the routed chat model a chat model like any other, whatever happens to its candidates?"""

from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_tests.unit_tests import ChatModelUnitTests
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel, Field

from langchain_ctxwin import ModelInfo, ModelLimits, classify_overflow
from langchain_ctxwin.errors import (
    ConfigError,
    NoModelFitsError,
)
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from support.fakes import (
    ScriptedChatModel,
    core_overflow,
    echo,
    openai_overflow,
    script,
)
from support.routing import (
    FAILURES,
    BreakingChatModel,
    add,
    answered,
    busy,
    every_way,
    invalid,
    likely,
    router,
    scripted,
)

MANY = 99


class Person(BaseModel):
    """A person."""

    name: str


class RecordingModel(BaseChatModel):
    """Writes down with what arguments it was called, and formats tools in a way of its own."""

    model_name: str = "recording"
    max_output_tokens: int | None = None
    calls: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "recording"

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        return self.bind(
            functions=[one.name for one in tools], mode=tool_choice, **kwargs
        )

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.calls.append({"stop": stop, **kwargs})
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok"))])


class NoTools(ScriptedChatModel):
    """Has no tool calling."""

    def bind_tools(self, tools, **kwargs):
        raise NotImplementedError


def routed(*models, chances=None, **options):
    """Return a routed model over these, with chances by name."""
    return RoutedChatModel(router(*models, chances=chances, **options))


def two(small=None, large=None, **options):
    """Return a routed model over a cheap small and a dear large candidate of equal chances, and the two."""
    first, second = (
        scripted("small", 8_192, **(small or {})),
        scripted("large", 128_000, **(large or {})),
    )
    return (
        routed(first, second, **{"chances": {"small": 1, "large": 1}, **options}),
        first,
        second,
    )


def graph_of(answer):
    """Return a graph of one node."""
    builder = StateGraph(MessagesState).add_node(
        "n", lambda state: {"messages": [answer(state)]}
    )
    return builder.add_edge(START, "n").compile()


def route_of(message):
    return message.response_metadata["route"]


@every_way
def test_an_answer_is_that_of_the_candidate_with_the_route(how):
    """Text, usage and the real model's name come through; the route says which and why."""
    model, small, large = two()
    answer = answered(model, "hello", how)
    alone = answered(scripted("small", 8_192), "hello", how)
    assert (answer.content, answer.usage_metadata) == (
        alone.content,
        alone.usage_metadata,
    )
    assert answer.response_metadata["model_name"] == "small"
    assert route_of(answer) == {
        "model": "small",
        "reason": "cheapest that is strong enough for high complexity",
        "rejected": {"large": "fits, but costs no less"},
        "fallbacks": [],
        "estimated_tokens": route_of(answer)["estimated_tokens"],
        "estimated_cost": route_of(answer)["estimated_cost"],
        "bucket": "text/high",
    }
    assert (len(small.requests), len(large.requests)) == (1, 0)


@every_way
@pytest.mark.parametrize("failure", FAILURES)
def test_another_candidate_answers_when_one_fails(failure, how):
    """Rates, trouble, credentials, a missing model, time-outs and connections concern one provider."""
    model, small, _ = two(small={"faults": [FAILURES[failure]() for _ in range(MANY)]})
    answer = answered(model, "hello", how)
    route = route_of(answer)
    [tried] = route["fallbacks"]
    assert (answer.text, route["model"], tried[:7]) == (
        echo([HumanMessage("hello")], []).text,
        "large",
        "small: ",
    )
    assert route["rejected"]["small"].startswith("failed (")
    answered(model, "hello", how)
    assert len(small.requests) == 1, "the conversation stays with who answered"


@every_way
@pytest.mark.parametrize("overflow", [core_overflow, openai_overflow])
def test_an_overflow_leads_to_a_larger_window_and_is_learned(overflow, how):
    model, small, _ = two(small={"input_limit": 500, "overflow": overflow})
    answer = answered(model, "word " * 2_000, how)
    assert (route_of(answer)["model"], route_of(answer)["fallbacks"]) == (
        "large",
        ["small: had too small a window"],
    )
    answered(model, "word " * 2_000, how)
    assert len(small.requests) == 1, "its own conversation knows"
    assert model.router.candidate("small").limits.context_window == 8_192
    answered(model, "WORD " * 2_000, how)
    assert len(small.requests) == 2, "others meet it themselves"
    assert route_of(answered(model, "hi", how))["model"] == "small"


@every_way
@pytest.mark.parametrize(
    "error",
    [invalid(), TypeError("bad"), ConfigError("wrong")],
)
def test_an_error_of_the_request_or_of_code_is_raised_at_once(error, how):
    model, _, large = two(small={"faults": [error]})
    with pytest.raises(type(error)):
        answered(model, "hello", how)
    assert large.requests == []
    assert route_of(answered(model, "hello again", how))["model"] == "small"


def named(name):
    """Return a cheap candidate of which only the name is known, and whose integration does not exist."""
    return ModelInfo(name=name, provider="nowhere", context_window=128_000)


@every_way
@pytest.mark.parametrize(
    "first",
    [lambda: scripted("first", 8_192, kind=NoTools), lambda: named("first")],
    ids=["no tools", "no package"],
)
def test_a_candidate_that_cannot_be_called_is_followed_by_the_next(first, how):
    """Its integration has no tool calling, or is not installed."""
    candidates = {"first": first(), "large": scripted("large", 128_000)}
    model = RoutedChatModel(
        ModelRouter(candidates, **likely({"first": 1, "large": 0.9}))
    )
    route = route_of(answered(model.bind_tools([add]), "hello", how))
    expected = ("large", ["first: could not be called"])
    assert (route["model"], route["fallbacks"]) == expected


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_a_stream_that_broke_is_not_started_again(how):
    """What was shown cannot be taken back; the break is raised."""
    breaking = scripted("breaking", 8_192, kind=BreakingChatModel)
    model = routed(
        breaking, scripted("large", 128_000), chances={"breaking": 1, "large": 0.9}
    )
    with pytest.raises(ConnectionError) as caught:
        answered(model, "hello", how)
    assert caught.value.__notes__ == ["routing asked breaking: it failed"]


@every_way
def test_a_candidate_can_be_asked_for_by_name_and_has_fallbacks(how):
    """Also one that a node decided for, with a reason."""
    decided = {"model": "large", "reason": "as the node decided"}
    for route, reason in (("large", "asked for by name"), (decided, decided["reason"])):
        model, *_ = two()
        assert (
            route_of(answered(model.bind(route=route), "hi", how))["reason"] == reason
        )
        model, *_ = two(large={"faults": [busy()]})
        assert (
            route_of(answered(model.bind(route=route), "hi", how))["model"] == "small"
        )
    assert route_of(two()[0].invoke("hi", route="large"))["model"] == "large"
    with pytest.raises(ConfigError, match="use one of small, large"):
        model.invoke("hi", route="nobody")


def test_a_request_that_is_too_large_for_all_is_refused_here_and_one_that_may_fit_is_sent():
    model, small, large = two(large={"input_limit": 60_000})
    with pytest.raises(NoModelFitsError, match="none of 2 candidates"):
        model.invoke("word " * 200_000)
    assert small.requests == large.requests == []
    with pytest.raises(Exception, match="exceeds the maximum") as caught:
        model.invoke("word " * 88_000)
    assert (classify_overflow(caught.value).limit, len(large.requests)) == (60_000, 1)


@every_way
def test_when_what_remains_is_too_small_the_last_error_is_raised(how):
    """With a note on what was tried."""
    error = busy()
    model, small, _ = two(large={"faults": [error]})
    with pytest.raises(type(error)) as caught:
        answered(model, "word " * 10_000, how)
    assert caught.value.__notes__ == ["routing asked large: it failed"]
    assert small.requests == []


def test_a_conversation_stays_with_its_model_by_thread_and_by_first_message():
    """The thread of the surrounding graph, or the first message tells conversations apart."""
    liked = {"small": 0.9, "large": 0.1}
    model, *_ = two(chances=liked)
    config = {"configurable": {"thread_id": "t"}}
    graph = graph_of(lambda state: model.invoke(state["messages"]))

    def asked(text):
        state = graph.invoke({"messages": [("user", text)]}, config)
        return route_of(state["messages"][-1])["model"]

    assert asked("hi") == "small"
    model.invoke("first")
    liked.update(small=0.1, large=0.9)
    following = [HumanMessage("first"), AIMessage("x"), HumanMessage("more")]
    assert asked("other") == route_of(model.invoke(following))["model"] == "small"
    assert route_of(model.invoke("other"))["model"] == "large"


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_tools_are_formatted_by_the_candidate(how):
    """Each integration has its own form for tools and the choice among them; other arguments pass through."""
    recording = RecordingModel(
        profile={"max_input_tokens": 8_192}, max_output_tokens=10, calls=[]
    )
    model = RoutedChatModel(router(recording))
    answered(
        model.bind_tools([add], tool_choice="any", strict=True).bind(
            stop=["x"], max_tokens=5, temperature=0.3
        ),
        "hi",
        how,
    )
    expected = {
        "functions": ["add"],
        "mode": "any",
        "strict": True,
        "temperature": 0.3,
        "max_output_tokens": 5,
    }
    assert recording.calls == [{**expected, "stop": ["x"]}]


def test_structured_output_works():
    """The base implementation goes through the tools of whichever candidate answers."""
    call = AIMessage(
        "", tool_calls=[{"name": "Person", "args": {"name": "Ada"}, "id": "1"}]
    )
    model, *_ = two(
        small={"policy": script(call), "faults": [busy()]},
        large={"policy": script(call)},
    )
    found = model.with_structured_output(Person).invoke("who?")
    assert found == Person(name="Ada")


@every_way
def test_tokens_are_counted_once_also_in_a_graph(how):
    """Handlers of the surrounding run would also see a run inside ours; there is none."""
    for is_inside in (False, True):
        counted, (model, *_) = (
            UsageMetadataCallbackHandler(),
            two(small={"faults": [busy()]}),
        )
        if is_inside:
            graph = graph_of(lambda _, model=model: answered(model, "hello", how))
            graph.invoke({"messages": [("user", "hi")]}, {"callbacks": [counted]})
        else:
            answered(model.with_config(callbacks=[counted]), "hello", how)
        assert counted.usage_metadata == {
            "large": scripted("large", 128_000).invoke("hello").usage_metadata
        }


@every_way
def test_a_candidate_that_does_not_stream_answers_in_one_piece_and_as_it_is(how):
    """What it says beside its text included."""
    said = AIMessage(
        "a text for more than one chunk",
        additional_kwargs={"parsed": Person(name="Ada")},
    )
    model, *_ = two(
        small={"disable_streaming": True, "policy": lambda *_: said.model_copy()}
    )
    answer = answered(model, "hello", how)
    assert (answer.text, answer.additional_kwargs) == (
        said.text,
        said.additional_kwargs,
    )
    assert [chunk.text for chunk in model.stream("hello") if chunk.text] == [said.text]


def test_the_model_states_the_smallest_limits():
    """A profile that is safe under any middleware; limits that our own engine reads."""
    model, *_ = two()
    assert model.profile == {"max_input_tokens": 8_192}
    assert ModelLimits.of(model) == model.limits == ModelLimits(8_192)


@pytest.fixture
def benchmark():
    """Run once what the suite would time: nothing here asserts on time."""
    return lambda work: work()


class TestRoutedChatModel(ChatModelUnitTests):
    """LangChain's own suite over two candidates of different windows."""

    @property
    def chat_model_class(self):
        return RoutedChatModel

    @property
    def chat_model_params(self):
        return {"router": router(scripted("small", 8_192), scripted("large", 128_000))}
