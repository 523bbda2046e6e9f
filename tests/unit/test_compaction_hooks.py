"""What has an application a say in before a compaction, and what is it told after one?"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, ContextConfig, ContextEngine, ModelLimits, create_context_agent
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.core.record import render_record
from langchain_ctxwin.core.view import View, message_id
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from support.conversations import CharCounter, conversations
from support.fakes import ScriptedChatModel, exact_count

THREAD = {"configurable": {"thread_id": "t1"}}
WORD = "fox "
LIMIT = 1_000


class Asked:
    """A hook that remembers what it was asked, and answers as it is told."""

    def __init__(self, answer=lambda compaction: compaction):
        self.compactions = []
        self.answer = answer

    def __call__(self, window, compaction):
        self.compactions.append(compaction)
        return self.answer(compaction)


def veto(compaction):
    return None


def talk(turns, words=60):
    made = []
    for n in range(turns):
        made += [HumanMessage(f"question {n} " + WORD * words, id=f"q{n}"), AIMessage(WORD * words, id=f"a{n}")]
    return [*made, HumanMessage("And now?", id="now")]


def engine_of(before=None, after=None, *, summarizer=None, window=LIMIT, **config):
    return ContextEngine(
        ModelLimits(context_window=window),
        counter=CharCounter(),
        summarizer=summarizer,
        config=ContextConfig(output_reserve=0, **config),
        before_compaction=before,
        after_compaction=after,
    )


def made_to_fit(engine, history):
    """Compact a history that is too large; return the window afterwards and the state."""
    window = engine.measure(history)
    state = engine.apply(engine.emergency(window), window)
    return engine.measure(history, session=state), state


def ids(window):
    return [message.id for message in window.messages]


def test_a_compaction_that_a_hook_returns_as_it_is_happens():
    """And it is asked once."""
    hook = Asked()
    window, _ = made_to_fit(engine_of(hook), talk(12))
    assert window.over_by == 0
    assert [c.kind for c in hook.compactions] == ["force"]


def test_a_soft_compaction_can_be_vetoed():
    """Past the trigger, although the request fits."""
    history = talk(6)
    assert engine_of(trigger=0.5).plan(engine_of(trigger=0.5).measure(history)) is not None
    engine = engine_of(Asked(veto), trigger=0.5)
    assert engine.plan(engine.measure(history)) is None


def test_relief_can_be_vetoed():
    """A history past its own bound."""
    engine = engine_of(Asked(veto), max_history_tokens=200)
    window = engine.measure(talk(3))
    assert (engine_of(max_history_tokens=200).relieve(window) is None, engine.relieve(window)) == (False, None)


def test_a_hard_compaction_cannot_be_vetoed():
    """It happens, with a warning."""
    with capture_logs() as logs:
        window, _ = made_to_fit(engine_of(Asked(veto)), talk(12))
    assert window.over_by == 0
    assert [entry["event"] for entry in logs] == ["compaction.hook_ignored"]


def test_spared_messages_stay():
    """Whole, and with the question that they answer or without it; the request still costs what was said."""
    hook = Asked(lambda compaction: compaction.spare("q2", "a7"))
    engine, history = engine_of(hook), talk(12)
    before = engine.measure(history)
    compaction = engine.emergency(before)
    window = engine.measure(history, session=engine.apply(compaction, before))
    assert {"q2", "a7"} <= {*ids(window)}
    assert (window.over_by, window.priced_view.total_tokens) == (0, compaction.tokens_after)


def test_lines_of_the_application_are_in_the_record():
    """And stay in it."""
    hook = Asked(lambda compaction: compaction.with_lines("Ticket 4711 is open."))
    _, state = made_to_fit(engine_of(hook), talk(12))
    assert "open: keep: Ticket 4711 is open." in render_record(state["context_record"]).splitlines()


def test_a_wish_that_cannot_fit_is_passed_over():
    """The request has to fit, whatever is spared."""
    hook = Asked(lambda compaction: compaction.spare(*(f"q{n}" for n in range(12)), *(f"a{n}" for n in range(12))))
    with capture_logs() as logs:
        window, _ = made_to_fit(engine_of(hook), talk(12))
    assert window.over_by == 0
    assert len(window.messages) < 12
    assert [entry["event"] for entry in logs] == ["compaction.hook_ignored"]


def test_a_view_of_the_hooks_own_is_passed_over():
    """It could lose messages, or not fit."""
    hook = Asked(lambda compaction: replace(compaction, view=View()))
    with capture_logs() as logs:
        window, _ = made_to_fit(engine_of(hook), talk(12))
    assert window.over_by == 0
    assert "spare and with_lines" in logs[0]["reason"]


def test_a_reason_in_other_words_is_taken():
    """It is only told."""
    _, state = made_to_fit(engine_of(Asked(lambda c: replace(c, reason="end of phase one"))), talk(12))
    assert state["context_guard"]["reason"] == "end of phase one"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda c: True, "before_compaction returned True: return the compaction, compaction.spare(...)"),
        (lambda c: c.spare("nobody"), "compaction.spare('nobody'): the history has no such message: give the `id`"),
    ],
)
def test_an_answer_that_means_nothing_is_refused(answer, told):
    """With the value and what to return."""
    engine = engine_of(Asked(answer))
    with pytest.raises(ConfigError) as raised:
        engine.emergency(engine.measure(talk(12)))
    assert told in str(raised.value)


async def _async_hook(window, compaction):
    return compaction


@pytest.mark.parametrize("name", ["before_compaction", "after_compaction"])
@pytest.mark.parametrize("hook", [3, _async_hook, Asked])
@pytest.mark.parametrize(
    "make",
    [
        lambda **hooks: ContextEngine(ModelLimits(context_window=LIMIT), **hooks),
        ContextWindowMiddleware,
        lambda **hooks: create_context_agent(ScriptedChatModel(profile={"max_input_tokens": LIMIT}), [], **hooks),
    ],
)
def test_what_is_no_plain_function_is_refused(make, name, hook):
    """When it is given: by engine, middleware and agent alike."""
    with pytest.raises(ConfigError, match=f"^{name}=.*: pass a plain function that takes "):
        make(**{name: hook})


def test_the_event_says_what_happened():
    """Kind, reason, sizes, and the messages that left."""
    events = []
    engine, history = engine_of(None, events.append), talk(12)
    before = engine.measure(history)
    state = engine.apply(engine.emergency(before), before)
    after = engine.measure(history, session=state)
    [event] = events
    assert (event.kind, event.reason, event.thread) == ("force", state["context_guard"]["reason"], "")
    assert (event.tokens_before, event.tokens_after) == (
        before.priced_view.total_tokens,
        after.priced_view.total_tokens,
    )
    assert [m.id for m in event.left] == [m.id for m in history if m.id not in ids(after)]


class Broken:
    """A summarizer that fails."""

    def summarize(self, messages, *, previous, max_tokens):
        raise RuntimeError("no")


class Short:
    """A summarizer that writes a word."""

    def summarize(self, messages, *, previous, max_tokens):
        return "short"


@pytest.mark.parametrize(("summarizer", "kinds"), [(Broken(), []), (Short(), ["summarize"])])
def test_only_what_happened_is_told(summarizer, kinds):
    """A summary that failed changes nothing; sync and async."""
    events = []
    engine = engine_of(None, events.append, summarizer=summarizer, summarize="inline", trigger=0.5)
    window = engine.measure(talk(6))
    engine.apply(engine.plan(window), window)
    asyncio.run(engine.aapply(engine.plan(window), window))
    assert [event.kind for event in events] == kinds * 2


def agent_of(kind, before, after=None):
    model = ScriptedChatModel(input_limit=LIMIT, profile={"max_input_tokens": LIMIT})
    options = {
        "config": ContextConfig(output_reserve=0),
        "counter": exact_count,
        "before_compaction": before,
        "after_compaction": after,
    }
    if kind == "nodes":
        return create_context_agent(model, [], checkpointer=InMemorySaver(), **options)
    middleware = [ContextWindowMiddleware(**options)]
    return create_agent(model, [], middleware=middleware, state_schema=ContextAgentState, checkpointer=InMemorySaver())


def chat(agent, turns):
    for n in range(turns):
        agent.invoke({"messages": [HumanMessage(f"question {n} " + WORD * 90, id=f"q{n}")]}, THREAD)
    return agent.get_state(THREAD).values


@pytest.mark.parametrize("kind", ["nodes", "middleware"])
def test_agents_ask_once_and_tell_once_per_compaction(kind):
    """With the thread."""
    hook, events = Asked(lambda compaction: compaction.spare("q3")), []
    state = chat(agent_of(kind, hook, events.append), 20)
    number = state["context_guard"]["compactions"]
    assert number > 0
    assert (len(hook.compactions), len(events)) == (number, number)
    assert {event.thread for event in events} == {"t1"}
    assert "q3" in [key for key, _ in state["context_view"]["pinned"]]


@pytest.mark.parametrize("kind", ["nodes", "middleware"])
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_hook_that_raises_fails_the_step_and_changes_nothing(kind, at):
    """The exception is the application's own, and the next run begins where this one did."""

    def fail(*_):
        raise KeyError("mine")

    agent = agent_of(kind, fail if at == "before" else None, fail if at == "after" else None)
    with pytest.raises(KeyError, match="mine"):
        chat(agent, 20)
    values = agent.get_state(THREAD).values
    assert values.get("context_guard", {}).get("compactions", 0) == 0
    assert values.get("context_view", {}) == {}


@pytest.mark.parametrize("kind", ["nodes", "middleware"])
def test_with_a_veto_every_request_fits_all_the_same(kind):
    """What may wait is vetoed, what may not happens."""
    hook = Asked(veto)
    with capture_logs() as logs:
        state = chat(agent_of(kind, hook), 20)
    happened = [entry for entry in logs if entry["event"] == "context.compacted"]
    assert state["context_guard"]["compactions"] == len(happened) > 0
    assert all("exceeds" in entry["reason"] for entry in happened)
    assert len(hook.compactions) >= len(happened)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(messages=conversations(huge=True), window=st.sampled_from((200, 400, 800, 2000)), data=st.data())
def test_whatever_a_hook_wishes_the_request_fits_and_costs_what_was_said(messages, window, data):
    """Any messages spared, any lines added, in any conversation."""
    positions = data.draw(st.sets(st.integers(0, len(messages) - 1), max_size=4))
    lines = data.draw(st.lists(st.text(max_size=300), max_size=2))
    spared = [message_id(messages, index) for index in sorted(positions)]
    engine = engine_of(Asked(lambda c: c.spare(*spared).with_lines(*lines)), window=window)
    before = engine.measure(messages)
    try:
        compaction = engine.emergency(before)
    except BudgetExceededError:
        with pytest.raises(BudgetExceededError):  # without the wishes it is no other
            engine_of(window=window).emergency(before)
        return
    if compaction is None:
        return
    after = engine.measure(messages, session=engine.apply(compaction, before))
    assert (after.over_by, after.total_tokens) == (0, compaction.tokens_after)
    assert find_faults(engine.build(after)) == []
