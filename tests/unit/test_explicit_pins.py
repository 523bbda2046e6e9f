"""Marked messages, `pin_when` and constraints: verbatim in every request, or an error that names them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.outcome import seen
from langchain_ctxwin.core.priced_view import pin
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import BudgetExceededError, ConfigError
from support.conversations import CharCounter, conversations, payload, ready
from support.fakes import ScriptedChatModel

WORDS = "lorem ipsum dolor sit amet "
FLOOR_TOKENS = 110  # a message clamped to its floor, with the marker and its frame
RULE = "Never book before nine."
WINDOWS = st.sampled_from((400, 800, 2000))
RUNS = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


class Digest:
    """A summarizer that says how much it was given."""

    def summarize(self, messages, *, previous, max_tokens):
        return f"{previous} {len(messages)} more messages".strip()[-max_tokens:]


def engine_of(window=800, *, pin_when=None, counter=None, **config):
    """Return an engine whose input limit is `window`."""
    config = {"output_reserve": 0, "summarize": "off", **config}
    return ContextEngine(
        ModelLimits(context_window=window),
        counter or CharCounter(),
        Digest(),
        ContextConfig(**config),
        pin_when=pin_when,
    )


def text(what, tokens):
    """Return a text of about so many tokens."""
    return f"{what} " + (WORDS * tokens)[: 4 * tokens]


def chat(turns=10, **replaced):
    """Return a history of questions q0.. and answers a0.. of about 50 tokens, some messages replaced by id."""
    messages = [HumanMessage("start", id="first"), AIMessage("ready", id="ready")]
    for number in range(turns):
        messages.append(HumanMessage(text(f"question {number}", 50), id=f"q{number}"))
        messages.append(AIMessage(text(f"answer {number}", 50), id=f"a{number}"))
    messages.append(HumanMessage("the current question", id="now"))
    return [replaced.get(message.id, message) for message in messages]


def user(key, tokens=0, *, what="keep this"):
    return HumanMessage(text(what, tokens), id=key)


def sent(engine, messages, state=None):
    """Return what the engine sends, by id, the window, and the state."""
    window = engine.measure(messages, session=state)
    state = {**(state or {}), **seen(window)}
    if compaction := engine.emergency(window):
        state |= engine.apply(compaction, window)
        window = engine.measure(messages, session=state)
    return {message.id: message.content for message in engine.build(window)}, window, state


def refusal_of(engine, messages):
    with pytest.raises(BudgetExceededError) as refused:
        engine.emergency(engine.measure(messages))
    return refused.value


# --- pin_when


def test_a_message_for_which_pin_when_holds_stays_through_every_compaction():
    """It needs no mark."""
    engine = engine_of(pin_when=lambda message: "never book" in message.content)
    messages = chat(q3=HumanMessage("never book before nine", id="q3"))
    state = None
    for number in range(5):
        messages = [*messages, *(m.model_copy(update={"id": f"{number}-{m.id}"}) for m in chat()[2:])]
        messages = [m for i, m in enumerate(messages) if m.content != "never book before nine" or m.id == "q3"]
        shown, window, state = sent(engine, messages, json.loads(json.dumps(state)))
        assert shown["q3"] == "never book before nine"
        assert window.report["compactions"] >= number + 1


def tool_loop(steps=12):
    """Return one turn that makes the same call again and again."""
    messages = [HumanMessage("go", id="go")]
    for number in range(steps):
        call = {"name": "policy" if number == 0 else "read", "args": {}, "id": f"x{number}"}
        messages.append(AIMessage("", tool_calls=[call], id=f"c{number}"))
        result = ToolMessage(text(f"{number}", 90), tool_call_id=f"x{number}", name=call["name"], id=f"r{number}")
        messages.append(result)
    return messages


@pytest.mark.parametrize("number", range(0, 10, 3))
def test_a_result_for_which_pin_when_holds_is_neither_cleared_nor_superseded(number):
    """As if it were marked."""
    messages = tool_loop()
    shown, window, _ = sent(engine_of(pin_when=lambda message: message.id == f"r{number}"), messages)
    assert shown[f"r{number}"] == text(f"{number}", 90)
    assert window.session.compactions == 1


def test_pin_when_and_a_mark_give_the_same_request_and_state():
    """There is one definition of an explicit pin."""
    messages = tool_loop()
    marked = [pin(message) if message.id == "r4" else message for message in messages]
    shown, _, state = sent(engine_of(), marked)
    assert sent(engine_of(pin_when=lambda message: message.id == "r4"), messages)[0::2] == (shown, state)


def test_pin_when_is_asked_once_about_a_message():
    """However often the growing history is measured and compacted."""
    asked = []
    engine = engine_of(pin_when=lambda message: asked.append(message.id))
    messages, state = chat(), None
    for stop in range(1, len(messages) + 1, 2):
        _, _, state = sent(engine, messages[:stop], state)
    assert asked == [message.id for message in messages]


def test_a_new_predicate_takes_effect_at_once_on_what_had_left():
    """A session that another engine began counts one more compaction, once."""
    messages = chat()
    shown, _, state = sent(engine_of(), messages)
    assert "q2" not in shown
    engine = engine_of(pin_when=lambda message: message.id == "q2")
    shown, window, state = sent(engine, messages, json.loads(json.dumps(state)))
    assert shown["q2"] == messages[6].content
    assert window.report["compactions"] == 2
    assert sent(engine, messages, state)[1].report["compactions"] == 2


def test_a_predicate_that_fails_names_the_message_and_what_to_do():
    """Before any money is spent."""
    engine = engine_of(pin_when=lambda message: message.content["no such key"])
    with pytest.raises(ConfigError) as failed:
        engine.measure([HumanMessage("hi", id="m0")])
    assert str(failed.value) == (
        "pin_when raised TypeError (string indices must be integers, not 'str') for the human message 'm0': "
        "make it return True or False for every message"
    )
    assert isinstance(failed.value.__cause__, TypeError)


async def _always(message):
    return True


@pytest.mark.parametrize("pin_when", [_always, "human", 3])
def test_a_predicate_that_is_no_plain_function_is_refused(pin_when):
    """A coroutine would count as true for every message."""
    with pytest.raises(ConfigError, match="pass a plain function"):
        engine_of(pin_when=pin_when)


async def test_an_agent_keeps_what_pin_when_says():
    """Sync and async, in every request of a conversation that is compacted."""
    rule = f"never book before nine {WORDS}"
    for is_async in (False, True):
        model = ScriptedChatModel(input_limit=400)
        agent = create_context_agent(
            model,
            [],
            limits=ModelLimits(400),
            config=ContextConfig(output_reserve=0, summarize="off", pin_first_user=False),
            checkpointer=InMemorySaver(),
            pin_when=lambda message: message.content == rule,
        )
        thread = {"configurable": {"thread_id": "1"}}
        for number in range(12):
            asked = {"messages": [("user", rule if number == 1 else text(f"question {number}", 60))]}
            state = await agent.ainvoke(asked, thread) if is_async else agent.invoke(asked, thread)
        assert len(state["messages"]) == 24
        requests_ = [[message.content for message in request.messages] for request in model.requests[1:]]
        assert all(rule in contents for contents in requests_)
        assert not any(text("question 0", 60) in contents for contents in requests_[-3:])


# --- what is pinned after it was shortened


def test_a_cleared_result_that_is_pinned_is_verbatim_again():
    """It counts as one compaction, because the prefix changes, and only once."""
    engine, messages = engine_of(1000, clear_tools=("read",), keep=0.5), tool_loop()
    window = engine.measure(messages)
    state = engine.apply(engine.emergency(window), window)
    gone = state["context_view"]["cleared"][-1]
    marked = [pin(message) if message.id == gone else message for message in messages]
    shown, window, state = sent(engine, marked, json.loads(json.dumps(state)))
    assert shown[gone] == next(message.content for message in messages if message.id == gone)
    compactions = window.report["compactions"]
    assert compactions >= 2
    assert sent(engine, marked, state)[1].report["compactions"] == compactions


def test_a_clamped_question_that_is_pinned_is_verbatim_again():
    """The room is larger for the pin than it was for the message."""
    engine = engine_of()
    big = user("big", 500, what="a long question")
    messages = [big, AIMessage(text("answer", 400), id="a"), HumanMessage("go on", id="now")]
    window = engine.measure(messages)
    state = engine.apply(engine.emergency(window, target_tokens=300), window)
    assert "big" in state["context_view"]["clamped"]
    shown, _, state = sent(engine, [pin(big), *messages[1:]], state)
    assert shown["big"] == big.content
    assert "big" not in state["context_view"]["clamped"]


# --- one that alone exceeds the room


def test_one_pin_that_alone_exceeds_the_room_is_clamped_and_reported():
    """Head, tail and id; the compaction names it."""
    engine = engine_of()
    messages = chat(q3=pin(user("q3", 900)))
    window = engine.measure(messages)
    compaction = engine.emergency(window)
    assert "pin q3 clamped: it alone exceeds the room" in compaction.actions
    shown, _, state = sent(engine, messages)
    assert "characters left out; in the history as message q3" in shown["q3"]
    assert shown["now"] == "the current question"
    assert state["context_view"]["clamped"]["q3"]["pin"] is True


def test_a_clamped_pin_stays_clamped_alike():
    """Later requests extend the one before, also after a round trip of the state."""
    engine = engine_of()
    messages = chat(q3=pin(user("q3", 900)))
    shown, _, state = sent(engine, messages)
    messages += [AIMessage("yes", id="yes"), HumanMessage("and?", id="and")]
    later, window, _ = sent(engine, messages, json.loads(json.dumps(state)))
    assert (later["q3"], window.report["compactions"]) == (shown["q3"], 1)


def test_a_small_pin_stays_verbatim_beside_one_that_is_clamped():
    """Only what exceeds the room by itself is cut."""
    small, large = pin(user("q2", 100)), pin(user("q3", 900))
    shown, _, _ = sent(engine_of(), chat(q2=small, q3=large))
    assert shown["q2"] == small.content
    assert shown["q3"] != large.content


def test_everything_else_is_cut_before_a_pin():
    """The current question down to its floor, because the pin fits beside that."""
    kept, now = pin(user("q3", 600)), user("now", 400, what="a long question")
    shown, _, _ = sent(engine_of(), chat(q3=kept, now=now))
    assert shown["q3"] == kept.content
    assert len(shown["now"]) < len(now.content)


# --- together too much


def test_pins_that_do_not_fit_together_are_named():
    """With id, kind, beginning, size, the limit and what to do."""
    messages = chat(
        q3=pin(user("q3", 500)), q5=pin(user("q5", 400, what="my policy")), a6=pin(AIMessage("ok", id="a6"))
    )
    error = refusal_of(engine_of(), messages)
    headline, table, kept, advice = str(error).split("\n\n")
    assert headline == (
        "pinned messages and constraints need 919 of 800 tokens, the rest at its smallest 55: "
        "unpin or shorten some of them, or raise context_window"
    )
    assert table.splitlines()[0].split() == ["region", "tokens", "of", "limit"]
    assert kept.splitlines() == [
        "Verbatim in every request:",
        '- q3 (human) "keep this lorem ipsum dolor sit amet lor...": 507 tokens',
        '- q5 (human) "my policy lorem ipsum dolor sit amet lor...": 407 tokens',
        '- a6 (ai) "ok": 5 tokens',
    ]
    assert advice.splitlines()[:2] == [
        "What to change:",
        "- unpin or shorten pinned messages, drop or shorten constraints: the list above has their sizes",
    ]
    assert error.report["input_limit"] == 800
    assert error.report["total_tokens"] == 974


def test_a_constraint_and_a_pin_that_do_not_fit_together_are_named():
    """Constraints are never clamped."""
    error = refusal_of(engine_of(constraints=(text("rule", 500),)), chat(q3=pin(user("q3", 400))))
    assert '- constraint "rule lorem ipsum dolor sit amet lorem ip...": 506 tokens' in str(error)
    assert '- q3 (human) "keep this' in str(error)


def test_many_pins_are_named_up_to_a_screenful():
    """The largest; the others are summed up."""
    replaced = {f"q{number}": pin(user(f"q{number}", 40 + number)) for number in range(25)}
    kept = str(refusal_of(engine_of(), chat(25, **replaced))).split("\n\n")[2].splitlines()
    assert len(kept) == 22
    assert kept[1].startswith("- q24 (human)")
    assert kept[-1].startswith("- 5 more: ")


def test_a_refusal_for_another_reason_does_not_blame_the_pins():
    """They are listed all the same, because they could make room."""
    engine = engine_of(constraints=(RULE,))
    with pytest.raises(BudgetExceededError) as refused:
        engine.emergency(engine.measure([HumanMessage("hi", id="now")], system_prompt=text("prompt", 900)))
    assert str(refused.value).startswith("fixed regions need ")
    assert f'- constraint "{RULE}": 10 tokens' in str(refused.value)


def test_a_pinned_current_question_is_not_cut_to_make_room_for_other_pins():
    """It is an explicit pin like any other one."""
    error = refusal_of(engine_of(), chat(q3=pin(user("q3", 500)), now=pin(user("now", 400))))
    assert "- now (human)" in str(error)


def test_a_first_question_that_nobody_marked_is_cut_before_anything_is_refused():
    """It is kept by a setting, not explicitly."""
    first, kept = user("first", 500), pin(user("q3", 600))
    shown, _, _ = sent(engine_of(), chat(first=first, q3=kept))
    assert shown["q3"] == kept.content
    assert len(shown["first"]) < len(first.content)


def test_pins_that_probably_fit_are_sent():
    """Nothing is refused or cut on a mere suspicion."""
    kept = pin(user("q3", 2000))
    messages = chat(q3=kept)
    counter = TokenEstimator()
    alone = engine_of(10**6, counter=counter).measure([*chat(1)[:2], kept, messages[-1]])
    limit = (alone.total_tokens + alone.priced_view.upper_tokens) // 2 + 60
    assert limit < alone.priced_view.upper_tokens
    shown, window, _ = sent(engine_of(limit, counter=counter), messages)
    assert shown["q3"] == kept.content
    assert window.over_by > 0


# --- whatever the conversation


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A random conversation, and which of its messages are explicit pins, half of them through `pin_when`."""

    messages: list[AnyMessage]
    pins: frozenset[int]
    chosen: list[AnyMessage] = field(default_factory=list)

    def pin_when(self, message):
        return any(message is other for other in self.chosen)


@st.composite
def pinned_conversations(draw, *, max_pins=4, **kinds):
    messages = draw(conversations(pins=False, **kinds))
    pins = draw(st.sets(st.integers(0, len(messages) - 1), max_size=max_pins))
    marked = draw(st.sets(st.sampled_from(sorted(pins)))) if pins else set()
    messages = [pin(message) if index in marked else message for index, message in enumerate(messages)]
    return Pinned(messages=messages, pins=frozenset(pins), chosen=[messages[index] for index in pins - marked])


def requests(engine, messages, *, forced=False, is_async=False):
    """Yield history, window and state of every request of a conversation whose state passes through JSON."""

    def apply(compaction, window):
        return asyncio.run(engine.aapply(compaction, window)) if is_async else engine.apply(compaction, window)

    state = {}
    for stop in range(1, len(messages) + 1):
        history = messages[:stop]
        if not ready(history):
            continue
        window = engine.measure(history, session=json.loads(json.dumps(state)))
        state = state | seen(window)
        target = window.priced_view.upper_tokens * 2 // 3 if forced else None
        for make in (engine.plan, lambda window, target=target: engine.emergency(window, target_tokens=target)):
            if compaction := make(window):
                state = state | apply(compaction, window)
                window = engine.measure(history, session=json.loads(json.dumps(state)))
        yield history, window, state


def until_refused(steps):
    try:
        yield from steps
    except BudgetExceededError:
        return


def found(window, message):
    """Return the message of the request that stands for `message`, or None; a repeated call id is another one there."""
    if message.id is not None:
        return next((other for other in window.messages if other.id == message.id), None)
    if not message.content:
        return None  # one empty message looks like another
    return next((other for other in window.messages if payload(other)[:2] == payload(message)[:2]), None)


@RUNS
@given(
    case=pinned_conversations(huge=True),
    window=WINDOWS,
    summarize=st.sampled_from(("inline", "off")),
    forced=st.booleans(),
    is_async=st.booleans(),
)
def test_every_explicit_pin_is_in_every_request_byte_for_byte(case, window, summarize, forced, is_async):
    """Or it is reported as one that alone exceeds the room; constraints always."""
    engine = engine_of(window, pin_when=case.pin_when, summarize=summarize, constraints=(RULE,))
    steps = requests(engine, case.messages, forced=forced, is_async=is_async)
    for history, measured, _ in until_refused(steps):
        assert f"- {RULE}" in engine.build(measured)[0].content
        everything = engine_of(10**6).measure(history)
        for index in case.pins & set(range(everything.request.first, len(history))):
            clamp = measured.priced_view.view.clamped.get(message_id(history, index))
            before, after = found(everything, history[index]), found(measured, history[index])
            assert (before is None) == (after is None) or clamp is not None
            assert clamp is None or clamp.of_pin
            assert before is None or clamp is not None or payload(after)[:2] == payload(before)[:2]


@RUNS
@given(case=pinned_conversations(huge=True, broken=False), summarize=st.sampled_from(("inline", "off")))
def test_only_a_pin_that_alone_exceeds_the_room_is_clamped(case, summarize):
    """With no other pin, and without what the others were cut down to, it would not fit either."""
    limit = 2000
    engine = engine_of(limit, pin_when=case.pin_when, summarize=summarize, constraints=(RULE,))
    known = set()
    for history, measured, _ in until_refused(requests(engine, case.messages)):
        clamps = {key for key, clamp in measured.priced_view.view.clamped.items() if clamp.of_pin}
        for key in clamps - known:
            message = next(message for message in history if message.id == key)
            room = limit - measured.budget.summary_tokens - 6 * FLOOR_TOKENS  # at most what the rest can still take
            assert CharCounter()([message]) > room
        known |= clamps


@RUNS
@given(case=pinned_conversations(max_pins=1, huge=True, broken=False), window=st.sampled_from((1200, 2000)))
def test_a_single_pin_never_causes_a_refusal(case, window):
    """What it cannot have of the room is clamped."""
    engine = engine_of(window, pin_when=case.pin_when)
    for _, measured, _ in requests(engine, case.messages):
        assert measured.over_by == 0


@RUNS
@given(case=pinned_conversations(huge=True, broken=False), window=WINDOWS)
def test_a_refusal_names_every_pin_in_the_request(case, window):
    """And what to do."""
    engine = engine_of(window, pin_when=case.pin_when, constraints=(RULE,))
    refused, stop = refused_at(engine, case.messages)
    if refused is None:
        return
    named = [case.messages[index].id for index in case.pins if index < stop]
    assert all(f"- {key} (" in str(refused) for key in named)
    assert f'- constraint "{RULE}"' in str(refused)
    assert "What to change:\n- " in str(refused)


def refused_at(engine, messages):
    """Return the refusal that ends a conversation, if any, and how long its history was."""
    stop = 0
    try:
        for history, _, _ in requests(engine, messages):
            stop = len(history)
    except BudgetExceededError as refused:
        return refused, next(more for more in range(stop + 1, len(messages) + 1) if ready(messages[:more]))
    return None, stop


@RUNS
@given(case=pinned_conversations(), window=WINDOWS)
def test_a_pin_does_not_move_between_compactions(case, window):
    """Each request extends the one before byte for byte."""
    engine = engine_of(window, pin_when=case.pin_when, summarize="inline")
    last, compactions = [], 0
    for _, measured, _ in until_refused(requests(engine, case.messages)):
        request = list(map(payload, engine.build(measured)))
        now = measured.report["compactions"]
        if now == compactions:
            assert request[: len(last)] == last
        last, compactions = request, now


@RUNS
@given(case=pinned_conversations(), window=WINDOWS, data=st.data())
def test_a_pin_that_comes_later_takes_effect_at_once(case, window, data):
    """Whatever happened to the message before."""
    engine = engine_of(window)
    for history, _, state in until_refused(requests(engine, case.messages)):
        index = data.draw(st.integers(0, len(history) - 1))
        marked = [pin(message) if i == index else message for i, message in enumerate(history)]
        everything = engine_of(10**6).measure(marked)
        before = found(everything, marked[index])
        if before is None or index < everything.request.first:
            continue
        after = found(engine.measure(marked, session=state), marked[index])
        is_old = message_id(history, index) in {key for key, how in _clamped(state).items() if how.get("pin")}
        assert is_old or payload(after)[:2] == payload(before)[:2]


def _clamped(state):
    return (state.get("context_view") or {}).get("clamped") or {}


@RUNS
@given(case=pinned_conversations(huge=True), window=WINDOWS, summarize=st.sampled_from(("inline", "off")))
def test_sync_and_async_leave_the_same_state(case, window, summarize):
    """Pins included."""
    engine = engine_of(window, pin_when=case.pin_when, summarize=summarize)
    states = [
        [state for _, _, state in until_refused(requests(engine, case.messages, is_async=is_async))]
        for is_async in (False, True)
    ]
    assert states[0] == states[1]
