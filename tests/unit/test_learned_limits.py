"""Which stated limits are believed, by whom, and how is a wrong one forgotten?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin import (
    BudgetExceededError,
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ContextOverflow,
    ModelLimits,
    ModelRegistry,
    ModelRouter,
    RoutedChatModel,
    ToolSelector,
)
from langchain_ctxwin.core.limits import (
    LEAST_LIMIT_TOKENS,
    MOST_TIMES_OFF,
    NamedLimits,
    for_everybody,
    stated_limit,
    unrefuted,
)
from langchain_ctxwin.models.sources import ExplicitSource, LearnedSource
from langchain_ctxwin.routing.candidates import conversation_key
from support.fakes import (
    ScriptedChatModel,
    SdkError,
    core_overflow,
    exact_count,
    llama_overflow,
    openai_overflow,
)
from support.routing import router, scripted
from support.tool_sets import definition

WINDOW = 8192
MODEL = "scripted"
LONG = "alpha beta gamma delta " * 100
SMALL = {"context_window": 1000}


def engine_of(window=WINDOW, **options):
    return ContextEngine(
        NamedLimits(ModelLimits(window), MODEL),
        exact_count,
        config=ContextConfig(output_reserve=0),
        **options,
    )


def nodes_of(engine, model, **options):
    """Return a function that asks in a thread; its state is kept in `threads`."""
    nodes = ContextNodes(engine, **options)
    node, threads = nodes.model_node(model), {}

    def ask(text, thread="mine"):
        state = threads.setdefault(thread, {"messages": []})
        state["messages"] = [
            *state["messages"],
            HumanMessage(text, id=f"{thread}-{len(state['messages'])}"),
        ]
        update = node.invoke(state)
        threads[thread] = {
            **state,
            **update,
            "messages": [*state["messages"], *update["messages"]],
        }
        return threads[thread]

    return ask


def limit_of_others(engine):
    return engine.measure([HumanMessage("hello", id="x")]).budget.input_limit


# One conversation against all


CLAIM = "maximum context length is 4096 tokens. However, your messages resulted in 9000 tokens."


def rejected(text):
    return SdkError(
        f"Error code: 400 - content policy: this text was rejected: {text}",
        status_code=400,
    )


def test_a_text_that_claims_a_limit_reaches_no_other_conversation():
    """A provider that quotes the request in its error states what a person wrote; only that conversation obeys it."""
    engine = engine_of()
    model = ScriptedChatModel()
    ask = nodes_of(engine, model)
    for number in range(5):
        model.faults.append(rejected(CLAIM))
        ask(f"{number} {LONG} {CLAIM}")
    assert limit_of_others(engine) == WINDOW


@pytest.mark.parametrize(
    ("learned", "limit"), [(None, WINDOW), (LearnedSource(), 4_096)]
)
def test_a_limit_that_conversations_heard_holds_for_all_by_way_of_a_memory_that_was_passed(
    learned, limit
):
    engine = engine_of(learned=learned)
    for thread in ("one", "two"):
        nodes_of(engine, ScriptedChatModel(faults=[openai_overflow(5_000, 4_096)]))(
            LONG, thread
        )
    assert limit_of_others(engine) == limit


def test_a_limit_far_below_the_declared_one_stays_in_its_conversation():
    engine = engine_of(window=128_000)
    model = ScriptedChatModel(input_limit=600)
    ask = nodes_of(engine, model)
    for number in range(5):
        state = ask(f"{number} {LONG}")
    assert state["context_counts"]["limits"] == {MODEL: {"context_window": 600}}
    assert [request.refused for request in model.requests].count(True) == 1
    assert limit_of_others(engine) == 128_000


@pytest.mark.parametrize("overflow", [core_overflow, openai_overflow, llama_overflow])
def test_a_small_server_is_learned_by_everybody(overflow):
    learned = LearnedSource()
    engine = engine_of(learned=learned)
    model = ScriptedChatModel(input_limit=512, overflow=overflow)
    for thread in ("one", "two"):
        ask = nodes_of(engine, model)
        for number in range(6):
            ask(f"{number} {LONG[:400]}", thread)
    assert [request.refused for request in model.requests].count(True) == 1
    assert learned.recall(MODEL) == {"context_window": 512}


# What contradicts a limit


def test_a_limit_below_what_was_accepted_is_not_learned():
    engine, model = engine_of(), ScriptedChatModel()
    ask = nodes_of(engine, model)
    for number in range(8):
        state = ask(f"{number} {LONG}")
    accepted = state["context_counts"]["anchor"]["tokens"]
    model.faults.append(openai_overflow(9_000, 1_000))
    state = ask("next")
    assert state["context_counts"].get("limits") != {MODEL: {"context_window": 1000}}
    assert all(
        tokens > accepted
        for tokens in state["context_counts"].get("limits", {}).get(MODEL, {}).values()
    )
    assert model.requests[-1].tokens <= 1000 < accepted
    assert limit_of_others(engine) == WINDOW


limits = st.dictionaries(
    st.sampled_from(["context_window", "max_input_tokens"]), st.integers(1, 10**6)
)


@given(learned=limits, declared=st.integers(1, 10**6), accepted=st.integers(0, 10**6))
def test_what_is_believed_is_part_of_what_was_stated(learned, declared, accepted):
    told, kept = (
        for_everybody(learned, ModelLimits(declared)),
        unrefuted(learned, accepted),
    )
    assert told.items() <= learned.items()
    assert kept.items() <= learned.items()
    assert all(declared <= MOST_TIMES_OFF * tokens for tokens in told.values())
    assert all(
        tokens >= LEAST_LIMIT_TOKENS for tokens in (*told.values(), *kept.values())
    )
    assert unrefuted(kept, accepted) == kept
    stated = stated_limit(
        ContextOverflow(limit=declared), ModelLimits(WINDOW), accepted_tokens=accepted
    )
    assert set(stated.values()) <= {declared}
    assert not stated or accepted <= 1.01 * declared


# How a wrong one heals


def test_an_accepted_request_above_a_learned_limit_removes_it_everywhere():
    learned = LearnedSource()
    learned.learn(MODEL, SMALL)
    engine = engine_of(learned=learned)
    prompt = LONG * 3  # more than the limit that was learned
    ask = nodes_of(engine, ScriptedChatModel(), system_prompt=prompt)
    stored = {
        "messages": [],
        "context_counts": {"limits": {MODEL: SMALL, "other": SMALL}},
    }
    node = ContextNodes(engine, system_prompt=prompt).model_node(ScriptedChatModel())
    update = node.invoke({**stored, "messages": [HumanMessage("hello", id="1")]})
    assert update["context_counts"]["limits"] == {"other": SMALL}
    assert learned.recall(MODEL) == {}
    # stored beside the anchor of a larger request
    counts = {**update["context_counts"], "limits": {MODEL: SMALL}}
    messages = [HumanMessage("hello", id="1"), *update["messages"]]
    again = engine.measure(
        messages, system_prompt=prompt, session={"context_counts": counts}
    )
    assert again.budget.input_limit == WINDOW
    learned.learn(MODEL, SMALL)
    nodes_of(engine, ScriptedChatModel(model_name="other"), system_prompt=prompt)(
        "hello"
    )
    # a fallback that takes more has a window of its own
    assert learned.recall(MODEL) == SMALL
    assert ask("hello", "another")["context_counts"]["anchor"]["tokens"] > 1000


def test_a_learned_limit_below_the_fixed_regions_is_tried_and_not_obeyed():
    """No request could keep to it, so the provider decides; it says so again where it is true."""
    learned = LearnedSource()
    learned.learn(MODEL, {"context_window": 500})
    engine = engine_of(learned=learned)
    window = engine.measure([HumanMessage("hello", id="1")], system_prompt=LONG * 2)
    assert (window.budget.input_limit, window.over_by) == (WINDOW, 0)
    assert (
        engine.learn(window, ContextOverflow(limit=500, actual=700)).budget.input_limit
        == 500
    )
    own = engine_of(window=500)
    with pytest.raises(BudgetExceededError):  # only what was learned may be wrong
        own.emergency(
            own.measure([HumanMessage("hello", id="1")], system_prompt=LONG * 2)
        )


class Forgetless:
    """The protocol asks for two methods; another one may fail."""

    def recall(self, model):
        return {}

    def learn(self, model, limits):
        raise AssertionError("nothing was refused")


class Broken(LearnedSource):
    def accepted(self, model, tokens):
        raise OSError("disk full")


@pytest.mark.parametrize(
    ("memory", "said"),
    [(Forgetless, []), (Broken, [("limits.not_withdrawn", "OSError")])],
)
def test_a_memory_that_does_not_forget_ends_no_conversation(memory, said):
    with capture_logs() as logs:
        assert nodes_of(engine_of(learned=memory()), ScriptedChatModel())("hello")[
            "messages"
        ]
    assert [(log["event"], log["reason"]) for log in logs] == said


# State from outside


@pytest.mark.parametrize(
    ("stored", "text", "prompt", "limit"),
    [
        *(
            ({"context_window": n, "max_input_tokens": n}, LONG, "", WINDOW)
            for n in (1, LEAST_LIMIT_TOKENS - 1)
        ),
        *(
            ({"context_window": n}, "hello", LONG, None)
            for n in (LEAST_LIMIT_TOKENS, 300)
        ),
        (SMALL, "hello", "", 1000),
    ],
)
def test_a_stored_limit_ends_no_conversation_and_is_kept_to_where_it_can_be(
    stored, text, prompt, limit
):
    engine = engine_of()
    session = {"context_counts": {"limits": {MODEL: stored}}}
    window = engine.measure(
        [HumanMessage(text, id="1")], system_prompt=prompt, session=session
    )
    assert engine.emergency(window) is None
    assert window.budget.input_limit == (limit or window.budget.input_limit)


# The registry and its source


def registry_of(**limits):
    learned = LearnedSource()
    return ModelRegistry([ExplicitSource({}), learned, _Listed(limits)]), learned


class _Listed:
    """A provider's list."""

    tier = "provider"

    def __init__(self, limits):
        self.listed = ExplicitSource({MODEL: limits}).fetch(None)

    def fetch(self, name):
        return self.listed


@pytest.mark.parametrize(
    ("limits", "learned_limits"),
    [
        ([300], {}),
        ([WINDOW * MOST_TIMES_OFF + 1], {}),
        ([1000, 300], {"context_window": 1000}),  # not by way of the one before
    ],
)
def test_a_registry_learns_no_limit_far_from_the_declared_one(limits, learned_limits):
    known, learned = registry_of(context_window=WINDOW)
    known.refresh()
    for limit in limits:
        known.learn(MODEL, openai_overflow(10**7, limit))
    assert learned.recall(MODEL) == learned_limits
    known.learn(MODEL, {"context_window": 300})
    assert learned.recall(MODEL) == {"context_window": 300}


def test_a_registry_forgets_a_limit_below_what_was_accepted():
    known, learned = registry_of(context_window=WINDOW)
    for name in (MODEL, f"acme/{MODEL}"):
        learned.learn(name, SMALL)
        known.accepted(name, 2000)
        assert learned.recall(name) == {}


def test_a_withdrawn_limit_stays_withdrawn_for_other_processes(tmp_path):
    path = tmp_path / "learned.json"
    one, other = LearnedSource(path), LearnedSource(path)
    one.learn(MODEL, SMALL)
    assert one.flush()
    other.refresh()
    one.accepted(MODEL, 2000)
    assert one.flush()
    other.learn("another", SMALL)
    assert other.flush()
    one.refresh()
    assert [source.recall(MODEL) for source in (one, other, LearnedSource(path))] == [
        {},
        {},
        {},
    ]
    other.learn(MODEL, {"context_window": 4096})
    assert other.flush()
    assert LearnedSource(path).recall(MODEL) == {"context_window": 4096}


# Routed models


def routed(small):
    large = scripted("large", 128_000)
    return RoutedChatModel(router(small, large, chances={"small": 0.9, "large": 0.5}))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (rejected(CLAIM), f"{LONG} {CLAIM}"),
        (openai_overflow(9_000, 300), "hello"),
        (SdkError("the prompt is too long", status_code=400), "hello"),
    ],
)
def test_neither_a_claim_nor_a_refusal_of_little_takes_a_window_from_a_routed_candidate(
    error, text
):
    model = routed(scripted("small", WINDOW, faults=[error]))
    model.invoke(text)
    assert model.router.candidate("small").limits == ModelLimits(WINDOW)
    assert (
        model.invoke("another conversation").response_metadata["route"]["model"]
        == "small"
    )


@pytest.mark.parametrize("how", ["invoke", "stream"])
def test_an_answer_heals_a_routed_candidate(how):
    small = scripted("small", WINDOW)
    model = routed(small)
    refusal = ContextOverflow(limit=1000, actual=1200)
    route = model.router.route("hello")
    conversation = conversation_key([HumanMessage(LONG * 3)])
    model.router.refused(route, refusal, conversation)
    assert model.router.candidate("small", conversation).limits.context_window == 1000
    list(model.stream(LONG * 3, route="small")) if how == "stream" else model.invoke(
        LONG * 3, route="small"
    )
    assert model.router.candidate("small", conversation).limits == ModelLimits(WINDOW)


def test_a_router_tells_its_registry_what_was_accepted():
    learned = LearnedSource()
    known = ModelRegistry([learned, _Listed({"context_window": WINDOW})])
    model = RoutedChatModel(ModelRouter([ScriptedChatModel()], known))
    learned.learn(MODEL, SMALL)
    model.invoke(LONG * 3)
    assert learned.recall(MODEL) == {}


# Limits that nobody states


REAL_TOKENS = 8_000
QUESTION = "alpha beta gamma delta " * 200


class TooLargeError(Exception):
    """What some hosts send: a code, no figures."""

    code = "context_length_exceeded"
    status_code = 400


class Host:
    """Counts four characters a token and refuses silently."""

    def __init__(self):
        self.refused = 0

    def __call__(self, messages):
        if sum(len(message.text) for message in messages) // 4 > REAL_TOKENS:
            self.refused += 1
            raise TooLargeError("Your input exceeds the context window of this model.")
        return AIMessage("ok")


@pytest.mark.parametrize("factor", [2, 4, 16])
def test_few_refusals_teach_a_limit_that_nobody_states(factor):
    host = Host()
    nodes = ContextNodes(
        ContextEngine(ModelLimits(factor * REAL_TOKENS, max_output_tokens=1000))
    )
    node, state, refusals = nodes.model_node(host), {"messages": []}, []
    for number in range(60):
        state["messages"] = [
            *state["messages"],
            HumanMessage(QUESTION, id=f"q{number}"),
        ]
        state |= nodes.budget_check.invoke(state)
        if nodes.route_on_budget(state) != "build_messages":
            state |= {
                **getattr(nodes, nodes.route_on_budget(state)).invoke(state),
                "context_pending": {},
            }
        update = node.invoke(state)
        state = {
            **state,
            **update,
            "messages": [*state["messages"], *update["messages"]],
        }
        refusals.append(host.refused)
    assert refusals[-1] <= 4
    assert refusals[30] == refusals[-1]


@pytest.mark.parametrize(("is_stated", "limit"), [(True, 8_000), (False, 32_000)])
def test_only_what_a_provider_stated_is_told_to_other_conversations(is_stated, limit):
    limits, config = (
        NamedLimits(ModelLimits(32_000), "m"),
        ContextConfig(output_reserve=0),
    )
    engine = ContextEngine(limits, config=config, learned=LearnedSource())
    history = [
        message
        for n in range(40)
        for message in (HumanMessage(QUESTION, id=f"q{n}"), AIMessage("ok", id=f"a{n}"))
    ]
    window = engine.measure([*history, HumanMessage("next", id="n")])
    state = engine.recover(
        window,
        ContextOverflow(limit=8_000, actual=None, kind="input"),
        is_stated=is_stated,
    )
    assert engine.measure(history, session=state).budget.input_limit == 8_000
    assert engine.measure([HumanMessage("hi", id="x")]).budget.input_limit == limit


def test_a_refusal_that_states_the_limit_we_kept_to_does_not_shrink_it():
    """Our limit without the reserve is one for input; read as the window, the reserve would come off twice."""
    engine = ContextEngine(
        limits=ModelLimits(context_window=4096, max_output_tokens=512),
        counter=exact_count,
    )
    window = engine.measure([HumanMessage("hi", id="1")])
    assert window.budget.input_limit == 3584
    learned = engine.learn(
        window, ContextOverflow(limit=3584, actual=3600, kind="input")
    )
    assert learned.budget.input_limit == 3584


def test_a_refusal_is_told_to_others_once_where_tools_are_chosen():
    """Also where the same tools are chosen again."""
    told = []

    class Memory:
        def learn(self, model, limits):
            told.append(dict(limits))

        def recall(self, model):
            return {}

    selector = ToolSelector([definition("look", "Looks.")], max_tool_tokens=200)
    model = scripted(MODEL, 2_000, overflow=llama_overflow)
    ask = nodes_of(engine_of(learned=Memory()), model, tool_selector=selector)
    ask(LONG * 8)
    assert [request.refused for request in model.requests] == [True, False]
    assert told == [{"context_window": 1_500}]
