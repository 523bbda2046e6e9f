"""The ladder of the hard path, the soft path, and clamping."""

import json

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.compaction import first_that, portion
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import BudgetExceededError
from support.conversations import CharCounter

FILLER = "lorem ipsum dolor " * 20  # 90 tokens


class Short:
    def summarize(self, messages, *, previous, max_tokens):
        return f"{previous}[{messages[0].id}..{messages[-1].id}]"


def engine_of(window=600, **config):
    settings = ContextConfig(output_reserve=0, **config)
    limits = ModelLimits(context_window=window)
    return ContextEngine(limits=limits, counter=CharCounter(), summarizer=Short(), config=settings)


def steps(number, *, text=FILLER, args=None):
    """Return one question and `number` tool steps."""
    messages = [HumanMessage("the question", id="q")]
    for i in range(number):
        call = {"name": "read", "args": args or {"path": f"f{i}"}, "id": f"x{i}"}
        messages.append(AIMessage("", tool_calls=[call], id=f"c{i}"))
        messages.append(ToolMessage(f"{i} {text}", tool_call_id=f"x{i}", id=f"r{i}"))
    return messages


def turns(number):
    messages = []
    for i in range(number):
        messages += [HumanMessage(f"question {i} {FILLER}", id=f"q{i}"), AIMessage(f"answer {i}", id=f"a{i}")]
    return [*messages, HumanMessage("now", id="now")]


def forced(engine, messages, state=None):
    before = engine.measure(messages, session=state)
    compaction = engine.emergency(before)
    update = engine.apply(compaction, before)
    after = engine.measure(messages, session=update)
    assert find_faults(engine.build(after)) == []
    assert after.total_tokens == compaction.tokens_after <= after.budget.input_limit
    return compaction, after, update


def test_a_request_that_fits_is_left_alone():
    """Neither path acts."""
    engine = engine_of(10_000)
    window = engine.measure(turns(3))
    assert (engine.plan(window), engine.emergency(window)) == (None, None)


def test_old_results_of_named_tools_are_cleared_before_anything_leaves():
    """As many as the low-water mark needs, in one batch, never the newest step."""
    compaction, after, _ = forced(engine_of(1000, clear_tools=("read",), keep=0.5), steps(11))
    assert compaction.actions == ("old tool results cleared: 9",)
    assert after.messages[-1].content == f"10 {FILLER}"
    assert after.messages[2].content.startswith("[Tool result cleared: ")
    assert compaction.dropped_messages == 0


def test_results_of_other_tools_are_not_cleared():
    """The oldest steps leave instead, and those that stay are whole."""
    compaction, after, _ = forced(engine_of(1000, clear_tools=("list",), keep=0.5), steps(11))
    shown = [message.content for message in after.messages if message.type == "tool"]
    assert compaction.actions == (f"messages dropped: {compaction.dropped_messages}",)
    assert shown == [f"{number} {FILLER}" for number in range(11 - len(shown), 11)]
    assert after.session.view.cleared == frozenset()


def test_oldest_turns_leave_into_the_record():
    """It says how many messages left, and what they said."""
    compaction, after, _ = forced(engine_of(600, pin_first_user=False), turns(10))
    lines = after.priced_view.preamble.record.split("\n")
    assert (compaction.dropped_turns, compaction.dropped_messages) == (10, 20)
    assert lines[-2:] == ["(20 left out)", "</record>"]
    assert lines[1].startswith("user: Question ")
    assert after.session.view.record.tokens == sum(map(after.request.price, turns(10)[:20]))
    assert after.report["dropped_turns"] == 10


def test_oldest_steps_of_one_turn_leave():
    """The question and the newest step stay."""
    compaction, after, _ = forced(engine_of(400), steps(30))
    assert [after.messages[0].id, after.messages[-1].id] == ["q", "r29"]
    assert (compaction.dropped_turns, compaction.dropped_messages > 0) == (0, True)


def test_a_compaction_goes_to_the_low_water_mark():
    """Not to the edge, or the next message would compact again."""
    _, after, _ = forced(engine_of(600, pin_first_user=False), turns(10))
    assert after.history_tokens <= 0.5 * (600 - after.budget.fixed_tokens)


def test_one_long_question_is_clamped_last():
    """Head, tail and id are shown."""
    messages = [HumanMessage("begin " + "x" * 9000 + " end", id="big")]
    compaction, after, _ = forced(engine_of(), messages)
    (shown,) = after.messages
    assert compaction.actions == ("messages clamped: 1",)
    assert shown.content.startswith("begin x")
    assert shown.content.endswith("x end")
    assert "in the history as message big" in shown.content


def test_long_results_are_clamped_before_the_question():
    """The question stays verbatim while anything else can give."""
    question = HumanMessage("why? " + "y" * 800, id="q")
    messages = [question, *steps(1, text="z" * 90_000)[1:]]
    _, after, _ = forced(engine_of(), messages)
    assert after.messages[0] == question
    assert len(after.messages[2].content) < 2400


def test_long_arguments_of_an_answered_call_are_clamped_as_json():
    """Their shape stays."""
    messages = steps(1, text="short", args={"text": "z" * 90_000, "n": 1})
    _, after, _ = forced(engine_of(), messages)
    args = after.messages[1].tool_calls[0]["args"]
    assert (args["n"], len(args["text"]) < 2400) == (1, True)
    json.dumps(args)


def test_a_giant_newest_result_does_not_push_out_the_conversation():
    """It is cut, and earlier turns stay."""
    messages = [*turns(2)[:-1], *steps(1, text="z" * 90_000)]
    _, after, _ = forced(engine_of(1000), messages)
    assert "q1" in [m.id for m in after.messages]


def test_a_giant_result_is_cut_even_when_an_unreadable_message_follows():
    """A trailing empty answer is not the newest step."""
    messages = [*turns(2)[:-1], *steps(1, text="z" * 90_000), AIMessage("", id="empty")]
    _, after, _ = forced(engine_of(1000), messages)
    assert "q1" in [m.id for m in after.messages]


def test_an_unanswered_call_stays():
    """A call that waits for a human is the newest step."""
    messages = [*turns(8), AIMessage("", tool_calls=[{"name": "ask", "args": {}, "id": "w"}], id="wait")]
    _, after, _ = forced(engine_of(), messages)
    assert "wait" in [m.id for m in after.messages]


def test_a_rung_that_makes_the_request_larger_is_not_taken():
    """A result that is shorter than the stub in its place is not cleared."""
    messages = steps(120, text="done")
    compaction, after, _ = forced(engine_of(600, clear_tools=("read",)), messages)
    assert compaction.actions == (f"messages dropped: {compaction.dropped_messages}",)
    assert after.session.view.cleared == frozenset()


def test_a_request_that_cannot_fit_is_refused_with_the_table():
    """Fixed regions alone are too much."""
    engine = engine_of(60)
    window = engine.measure([HumanMessage("hi")], system_prompt=FILLER)
    with pytest.raises(BudgetExceededError, match=r"(?s)system.*What to change"):
        engine.emergency(window)


def test_a_summary_covers_what_left():
    """The next one starts where it ended."""
    engine = engine_of(pin_first_user=False)
    messages = turns(6)
    window = engine.measure(messages)
    plan = engine.plan(window)
    assert (plan.kind, plan.snapshot[0]) == ("summarize", 0)
    state = engine.apply(plan, window)
    last = messages[plan.snapshot[1] - 1].id
    assert state["context_summary"].startswith(f"[q0..{last}]")
    assert state["context_view"]["covered"]["through"]["id"] == last
    grown = [*messages, AIMessage("ok"), *[m.model_copy(update={"id": f"n-{m.id}"}) for m in turns(5)]]
    window = engine.measure(grown, session=state)
    assert engine.plan(window).snapshot[0] == plan.snapshot[1]


def test_what_a_summary_covers_is_counted_once():
    """A question that stayed pinned and leaves later was summarized already: it only joins what left."""
    engine = engine_of(400)
    messages = steps(8)
    window = engine.measure(messages)
    state = engine.apply(engine.plan(window), window)
    assert engine.measure(messages, session=state).session.view.uncovered_tokens == 0
    grown = [*messages, AIMessage("done", id="d"), *turns(8)]
    compaction, after, _ = forced(engine_of(400, pin_first_user=False), grown, state)
    view, through = after.session.view, state["context_view"]["covered"]["through"]["index"]
    pinned = {position.index for position in view.pinned}
    left = [index for index in range(view.start.index) if index not in pinned]
    assert view.record.messages == len(left)
    assert view.record.tokens == sum(after.request.price(grown[index]) for index in left)
    assert compaction.dropped_messages == sum(index > through for index in left)


def test_the_number_of_messages_triggers_too():
    """Whatever their size."""
    engine = engine_of(100_000, trigger_messages=6)
    plan = engine.plan(engine.measure(turns(10)))
    assert plan.reason == "21 messages are past the trigger of 6"
    assert 21 - plan.snapshot[1] <= 3


def test_a_summary_that_cannot_pay_is_not_planned():
    """A single short turn has nothing to give."""
    engine = engine_of(100)
    assert engine.plan(engine.measure([HumanMessage("x" * 350)])) is None


def test_summaries_can_be_switched_off():
    """Compaction then only drops."""
    engine = engine_of(summarize="off")
    assert engine.plan(engine.measure(turns(10))) is None


def test_an_absolute_cap_holds_beside_the_shares():
    """A huge window is not filled because it is there."""
    engine = engine_of(1_000_000, max_history_tokens=400)
    assert engine.plan(engine.measure(turns(10))) is not None


@pytest.mark.parametrize(("share", "room", "tokens"), [(0.5, 100, 50), (1, 100, 100), (30, 100, 30), (300, 100, 100)])
def test_a_setting_is_a_share_or_tokens(share, room, tokens):
    """Tokens are capped by the room."""
    assert portion(share, room) == tokens


def test_bisection_finds_the_first_value():
    """None when there is none."""
    assert first_that([1, 2, 3, 4], lambda value: value >= 3) == 3
    assert first_that([1, 2], lambda value: False) is None
    assert first_that([], lambda value: True) is None
