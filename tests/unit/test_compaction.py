"""What leaves a request and in which order, what a summarizer is given, and how a failing one is asked less."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextOverflow,
    ModelLimits,
    create_context_agent,
)
from langchain_ctxwin.core.fitting import first_part, take_while_fits
from langchain_ctxwin.core.plan import request_until, shown_part
from langchain_ctxwin.core.session import Pending, Session
from langchain_ctxwin.core.turns import read_history
from langchain_ctxwin.core.view import View
from langchain_ctxwin.testing import request_faults
from support import agents
from support.agents import WORD, call, called
from support.conversations import FILLER, CharCounter, turns
from support.fakes import ScriptedChatModel, exact_count


class Writer:
    """A summarizer that names what it was given."""

    def summarize(self, messages, *, previous, max_tokens):
        return f"{previous}[{messages[0].id}..{messages[-1].id}]"


def engine_of(window=600, **config):
    return agents.engine_of(window, summarizer=Writer(), **config)


def steps(number, *, text=FILLER, args=None):
    """Return one question and `number` tool steps."""
    messages = [HumanMessage("the question", id="q")]
    for i in range(number):
        messages += called(i, f"{i} {text}", **(args or {"path": f"f{i}"}))
    return messages


def forced(engine, messages, state=None):
    before = engine.measure(messages, session=state)
    compaction = engine.emergency(before)
    after = engine.measure(messages, session=engine.apply(compaction, before))
    assert request_faults(engine.build(after)) == []
    assert after.total_tokens == compaction.tokens_after <= after.budget.input_limit
    return compaction, after


# ---- what leaves ----------------------------------------------------------------------------------------------------


def test_old_results_of_named_tools_are_cleared_before_anything_leaves():
    """As many as the low-water mark needs, in one batch, never the newest step."""
    compaction, after = forced(
        engine_of(1000, clear_tools=("read",), keep=0.5), steps(11)
    )
    assert len(after.view.cleared) == 9
    assert after.messages[-1].content == f"10 {FILLER}"
    assert after.messages[2].content.startswith("[Tool result cleared: ")
    assert compaction.dropped == []


def test_a_tool_is_told_by_its_own_call_where_a_server_gives_all_calls_one_id():
    """Results of tools that are not named stay."""
    history = [HumanMessage("Compare them.", id="q")]
    for number, name in enumerate(["plan", "log", "log"]):
        result = ToolMessage(WORD * 200, tool_call_id="same", id=f"r{number}")
        history += [call(name, "same"), result]
    _, after = forced(engine_of(clear_tools=("log",), keep=0.9), history)
    shown = {message.id: message.content for message in after.messages}
    assert [shown["r0"], shown["r2"]] == [WORD * 200] * 2
    assert shown["r1"].startswith("[Tool result cleared")


def test_oldest_turns_leave_into_the_record_down_to_the_low_water_mark():
    """Not to the edge, or the next message would compact again; the record says how much left, and what was said."""
    compaction, after = forced(engine_of(600, pin_first_user=False), turns(10))
    lines = after.record.split("\n")
    assert (compaction.dropped_turns, len(compaction.dropped)) == (9, 18)
    assert lines[-2:] == ["(18 messages left out)", "</record>"]
    assert lines[1].startswith("user: question ")
    assert after.report["dropped_turns"] == 9
    assert after.history_tokens <= 0.6 * (600 - after.budget.fixed_tokens)


def test_a_cap_of_the_history_bounds_the_record_of_what_left_too():
    """In a large window it would take more than what left, and so nothing would leave."""
    rules = [HumanMessage(f"Never ship parcel {n} before noon.") for n in range(500)]
    engine = agents.engine_of(100_000, max_history_tokens=2_000)
    report = engine.fit([*rules, *turns(9)]).report
    assert 0 < report["record_tokens"] < 0.7 * 2_000


def test_long_results_and_arguments_are_clamped_before_the_question():
    """It stays verbatim while anything else can give."""
    question = HumanMessage("why? " + "y" * 800, id="q")
    _, after = forced(engine_of(), [question, *steps(1, text="z" * 90_000)[1:]])
    assert after.messages[0] == question
    assert len(after.messages[2].content) < 2400
    _, after = forced(engine_of(), steps(1, text="short", args={"body": "z" * 90_000}))
    assert len(after.messages[1].tool_calls[0]["args"]["body"]) < 2400


GIANT = [*turns(2)[:-1], *steps(1, text="z" * 90_000)]
WAITING = AIMessage("", tool_calls=[{"name": "ask", "args": {}, "id": "w"}], id="wait")
NOTE = SystemMessage("Be brief.", id="s")
OLD = [HumanMessage("q", id="q"), *called(1, "old " * 900)]


NEWEST = {
    "a giant newest result is cut": (GIANT, 1000, "q"),
    "also before a message that nobody can read": (
        [*GIANT, AIMessage("", id="empty")],
        1000,
        "q",
    ),
    "a call that waits for a human is the newest step": (
        [*turns(8), WAITING],
        600,
        "wait",
    ),
    "also before a system note": (
        [*OLD, WAITING, NOTE],
        500,
        "wait",
    ),
    "a late system note does not hide a result": (
        [*OLD, *called(9, "NEW " * 300), NOTE],
        600,
        "r9",
    ),
}


@pytest.mark.parametrize(("messages", "window", "stays"), NEWEST.values(), ids=NEWEST)
def test_what_else_is_newest_does_not_push_it_out(messages, window, stays):
    _, after = forced(engine_of(window), messages)
    assert stays in [m.id for m in after.messages]


# ---- what is summarized ---------------------------------------------------------------------------------------------


def test_a_summary_covers_what_left_and_the_next_one_starts_where_it_ended():
    engine = engine_of(pin_first_user=False)
    messages = turns(6)
    window = engine.measure(messages)
    plan = engine.plan(window)
    assert (plan.kind, plan.snapshot[0]) == ("summarize", 0)
    state = engine.apply(plan, window)
    last = messages[plan.snapshot[1] - 1].id
    assert state["context_summary"].startswith(f"[q0..{last}")
    assert state["context_view"]["covered"] == plan.snapshot[1]
    grown = [
        *messages,
        AIMessage("ok"),
        *[m.model_copy(update={"id": f"n-{m.id}"}) for m in turns(5)],
    ]
    window = engine.measure(grown, session=state)
    assert engine.plan(window).snapshot[0] == plan.snapshot[1]


NEEDS = {
    "a short history": ({}, 5, [None, None, None, None]),
    "one past `prepare`": ({}, 6, [None, None, "ahead", None]),
    "one that nearly fills the room": ({}, 9, [None, None, "ahead", "ahead"]),
    "one past a trigger": ({"trigger": 0.3}, 9, ["soft"] * 4),
    "too many messages": ({"trigger_messages": 6}, 4, ["soft"] * 4),
    "one that does not fit": ({"trigger": 0.3}, 10, ["hard"] * 4),
}


@pytest.mark.parametrize(("config", "count", "levels"), NEEDS.values(), ids=NEEDS)
def test_what_a_request_needs_depends_on_its_size_and_on_who_writes_summaries(
    config, count, levels
):
    window = engine_of(1000, **config).measure(turns(count))
    needs = [window.need(one) for one in ("", "inline", "background", "provider")]
    assert [need and need.level for need in needs] == levels


DUE = {
    "a request that fits": ({"window": 10_000}, 3, False),
    "a turn that has nothing to give": ({"window": 100}, 0, False),
    "switched off": ({"summarize": "off"}, 10, False),
    "an absolute cap": ({"window": 1_000_000, "max_history_tokens": 400}, 10, True),
    "the number of messages": ({"window": 100_000, "trigger_messages": 6}, 10, True),
}


@pytest.mark.parametrize(("config", "count", "is_planned"), DUE.values(), ids=DUE)
def test_a_summary_is_planned_when_it_is_due_and_pays(config, count, is_planned):
    engine = engine_of(**config)
    window = engine.measure(turns(count) if count else [HumanMessage("x" * 350)])
    plan = engine.plan(window)
    assert (plan is not None) is is_planned
    assert (engine.emergency(window) is None) is (window.over_by == 0)
    if "trigger_messages" in config:
        assert plan.reason == "21 messages are past 6 of trigger_messages=6"
        assert 21 - plan.snapshot[1] <= 3


@given(
    sizes=st.lists(st.integers(0, 9)),
    budget=st.integers(0, 30),
    how=st.sampled_from(("stop", "skip")),
)
def test_whole_items_are_kept_while_they_fit(sizes, budget, how):
    fit = take_while_fits(sizes, budget, int, on_overflow=how)
    assert sum(fit.kept) == fit.tokens <= budget
    assert sorted((*fit.kept, *fit.dropped)) == sorted(sizes)
    assert how == "skip" or [*fit.kept, *fit.dropped] == sizes
    refused = fit.dropped if how == "skip" else fit.dropped[:1]
    assert all(fit.tokens + size > budget for size in refused)


# ---- what a summarizer is given, and what is made of its text --------------------------------------------------------

HISTORY = [
    HumanMessage("left", id="q0"),
    AIMessage("gone", id="a0"),
    HumanMessage("read the log", id="q1"),
    *called(1, "error 7 " * 400),
    AIMessage("It fails.", id="a2"),
    HumanMessage("why?", id="q2"),
]
VIEW = {
    "start": {"id": "q1", "index": 2},
    "clamped": {"r1": {"head_chars": 40, "tail_chars": 40}},
}


def inline_engine(summarizer=None, window=4_000):
    options = {
        "counter": exact_count,
        "summarizer": summarizer,
        "summarize": "inline",
        "pin_first_user": False,
    }
    return agents.engine_of(window, **options)


def test_a_summarizer_is_given_what_the_view_shows_and_the_request_that_a_provider_has_in_its_cache():
    """What had left is given as it was, and a request begins where the view does."""
    engine = inline_engine()
    window = engine.measure(HISTORY, session={"context_view": VIEW})
    given = shown_part(window, 0, 6)
    assert [message.id for message in given] == ["q0", "a0", "q1", "a1", "r1", "a2"]
    assert given[4] == window.messages[2]
    assert len(given[4].text) < 300
    request = request_until(window, 6).assembled()
    assert request == engine.build(window)[:-1]
    assert request[-1].id == "a2"
    assert request_until(window, 2) is None


@pytest.mark.parametrize(
    ("text", "room", "kept"),
    [
        ("one\ntwo", 7, "one\ntwo"),
        ("one\ntwo", 6, "one"),
        ("port 8080 is open", 12, "port ..."),
        ("8080808080", 6, ""),
    ],
)
def test_a_text_is_cut_by_lines_then_by_words_and_never_inside_a_value(
    text, room, kept
):
    assert first_part(text, room, len) == kept


def failed_at(count, history):
    return Session(guard={"ineffective": count, "asked": len(history) - 1})


def test_after_two_failures_no_summary_is_tried_until_the_next_user_message():
    history = [HumanMessage("a question")]
    step, question = AIMessage("a step"), HumanMessage("next")
    assert not failed_at(1, history).has_given_up(history)
    # the steps of a long turn are no new chance
    assert failed_at(2, history).has_given_up([*history, *[step] * 50])
    assert not failed_at(2, history).has_given_up([*history, step, question])


@pytest.mark.parametrize(
    ("covered", "first", "is_kept"),
    [
        (1, 0, False),
        (2, 0, True),
        (4, 0, False),
        (6, 0, False),
        (0, 0, False),
        (0, 2, True),
    ],
)
def test_a_summary_on_its_way_has_to_begin_where_the_one_before_it_ends(
    covered, first, is_kept
):
    """Or with the history: otherwise it would leave messages out, or tell them twice."""
    chat = [
        kind(f"text {n}", id=f"m{2 * n + m}")
        for n in range(4)
        for m, kind in enumerate((HumanMessage, AIMessage))
    ]
    history = replace(read_history(chat), first=first)
    view = View(covered=covered)
    digest = history.checksums[6]
    pending = Pending(
        key="key", start=2, stop=6, digest=digest, since=0.0, max_tokens=100
    )
    assert pending.is_of(history, view) is is_kept


# Cases that a careful reader found: each once lost something, or said something untrue.


@pytest.mark.parametrize(
    ("limits", "reserve", "overflow", "input_limit"),
    [
        (
            ModelLimits(8192, max_output_tokens=1024),
            None,
            ContextOverflow(4096, 7000, "input"),
            4096 - 1024,
        ),
        (
            ModelLimits(16_384),
            4096,
            ContextOverflow(4096, 9096, "input_plus_output", 4096),
            3072,
        ),
    ],
    ids=[
        "room for the answer",
        "a reserve that it cannot hold becomes the usual share",
    ],
)
def test_a_learned_joint_limit_leaves_room_for_the_answer(
    limits, reserve, overflow, input_limit
):
    engine = ContextEngine(
        limits,
        CharCounter(),
        config=ContextConfig(summarize="off", output_reserve=reserve),
    )
    learned = engine.learn(engine.measure(turns(16)), overflow)
    state = learned.session.to_json()
    report = engine.measure(turns(16), session=state).report
    assert (report["context_window"], report["input_limit"]) == (4096, input_limit)


def test_the_first_question_fits_however_many_tokens_its_characters_have():
    text = "".join(chr(0x4E00 + number * 7 % 0x1A00) for number in range(60_000))
    model = ScriptedChatModel(input_limit=8_192)
    agent = create_context_agent(
        model, [], limits=ModelLimits(context_window=8_192, max_output_tokens=512)
    )
    agent.invoke({"messages": [HumanMessage(text)]})
    assert [request.refused for request in model.requests] == [False]
