"""Cases that a careful reader found: each once lost something, or said something untrue."""

import asyncio
import time

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ContextConfig, ContextEngine, ContextNodes, ContextOverflow, ModelLimits, pin
from langchain_ctxwin.core.outcome import from_answer
from langchain_ctxwin.summarize import awrite_summary
from support.conversations import CharCounter
from support.fakes import ScriptedChatModel, script

OFF = ContextConfig(summarize="off")


def engine_of(window=1000, summarizer=None, **settings):
    limits, config = ModelLimits(max_input_tokens=window), ContextConfig(**{"summarize": "off", **settings})
    return ContextEngine(limits, counter=CharCounter(), summarizer=summarizer, config=config)


class Short:
    """A summarizer that names what it was given."""

    def summarize(self, messages, *, previous, max_tokens):
        return f"{previous}[{messages[0].id}..{messages[-1].id}]"


def called(number, text):
    call = {"name": "read", "args": {"n": number}, "id": f"c{number}"}
    return [
        AIMessage("", id=f"a{number}", tool_calls=[call]),
        ToolMessage(text, tool_call_id=f"c{number}", id=f"t{number}"),
    ]


def talk(count, chars=200):
    return [
        m for n in range(count) for m in (HumanMessage("q" * chars, id=f"h{n}"), AIMessage("a" * chars, id=f"r{n}"))
    ]


def compacted(engine, messages, state=None):
    window = engine.measure(messages, session=state)
    return {**(state or {}), **engine.apply(engine.emergency(window), window)}


def texts(engine, messages, state):
    return [message.text for message in engine.build(engine.measure(messages, session=state))]


def test_a_late_system_note_does_not_hide_the_newest_result():
    """The result that the model has not read yet is never cleared, whatever stands behind it."""
    engine = engine_of(900)
    messages = [HumanMessage("question", id="h")]
    messages += [message for n in range(6) for message in called(n, "old " * 400)]
    messages += [*called(9, "NEWEST " * 300), SystemMessage("be brief", id="s")]
    shown = texts(engine, messages, compacted(engine, messages))
    assert any(text.startswith("NEWEST") for text in shown)


def test_a_pending_call_behind_a_system_note_stays():
    """The approval that arrives later finds its call."""
    engine = engine_of(500)
    waiting = AIMessage("y" * 1200, id="p", tool_calls=[{"name": "pay", "args": {}, "id": "cp"}])
    messages = [HumanMessage("question", id="h"), *called(1, "x" * 3000), waiting, SystemMessage("note", id="s")]
    state = compacted(engine, messages)
    messages.append(ToolMessage("APPROVED", tool_call_id="cp", id="tp"))
    assert "APPROVED" in texts(engine, messages, state)


def test_removing_the_covered_message_skips_nothing():
    """What left after the summary is summarized next."""
    engine = engine_of(1100, Short(), summarize="inline", trigger=0.4, keep=0.3, summary_max_tokens=50)
    messages = talk(20)
    window = engine.measure(messages)
    state = engine.apply(engine.plan(window), window)
    covered = state["context_view"]["covered"]["through"]
    messages += talk(40)[40:]
    state = compacted(engine, messages, state)
    messages = [message for message in messages if message.id != covered["id"]]
    messages += [HumanMessage("z" * 1200, id="z")]
    window = engine.measure(messages, session=state)
    plan = engine.plan(window)
    assert plan is not None
    assert plan.snapshot[0] <= covered["index"]


def test_usage_of_something_else_is_not_the_size_of_this_request():
    """A sub-agent's small answer does not make a huge history look small."""
    answer = AIMessage("hi", usage_metadata={"input_tokens": 30, "output_tokens": 1, "total_tokens": 31})
    report = engine_of(20_000).measure([HumanMessage("x" * 100_000), answer, HumanMessage("go")]).report
    assert report["counted_by"] != "usage"
    assert report["total_tokens"] > 20_000


def test_the_anchor_of_one_model_is_not_used_for_another():
    """Tokenizers differ, so a reported size holds for the model that reported it."""
    engine = engine_of(50_000)
    first, second = ScriptedChatModel(model_name="first"), ScriptedChatModel(model_name="second")
    messages = talk(3)
    window = engine.measure([*messages, HumanMessage("x", id="x")], model=first)
    usage = {"input_tokens": 9000, "output_tokens": 1, "total_tokens": 9001}
    reply = AIMessage("ok", id="ok", usage_metadata=usage)
    state = {"context_counts": from_answer(window, reply).counts}
    later = [*messages, HumanMessage("x", id="x"), reply, HumanMessage("go", id="go")]
    assert engine.measure(later, session=state, model=first).report["counted_by"] == "usage"
    assert engine.measure(later, session=state, model=second).report["counted_by"] != "usage"


@pytest.mark.parametrize("keep", [0.5, 1.0, 3000])
def test_a_trigger_by_messages_leaves_room_to_grow(keep):
    """Whatever `keep` is, not every step makes a summary."""
    config = ContextConfig(trigger_messages=10, keep=keep)
    engine = ContextEngine(ModelLimits(max_input_tokens=50_000), counter=CharCounter(), config=config)
    state, messages, made = {}, [], 0
    for message in talk(40):
        messages.append(message)
        window = engine.measure(messages, session=state)
        if plan := engine.plan(window):
            made, state = made + 1, engine.apply(plan, window)
    assert 0 < made <= 16


def test_a_learned_joint_limit_still_leaves_room_for_the_answer():
    """A server that states its whole context gets requests that leave some of it."""
    engine = ContextEngine(ModelLimits(8192, max_output_tokens=1024), counter=CharCounter(), config=OFF)
    messages = talk(16)
    window = engine.measure(messages)
    state = engine.recover(window, ContextOverflow(limit=4096, actual=7000, kind="input"))
    report = engine.measure(messages, session=state).report
    assert (report["context_window"], report["input_limit"]) == (4096, 4096 - 1024)


def test_a_reserve_that_a_learned_window_cannot_hold_becomes_its_usual_share():
    """The configured reserve belonged to a window that does not exist."""
    config = ContextConfig(output_reserve=4096, summarize="off")
    engine = ContextEngine(ModelLimits(16_384), counter=CharCounter(), config=config)
    messages = talk(16)
    state = engine.recover(
        engine.measure(messages),
        ContextOverflow(limit=4096, actual=9096, kind="input_plus_output", requested_output=4096),
    )
    assert engine.measure(messages, session=state).report["input_limit"] == 3072


def test_the_record_counts_a_message_once():
    """A message that is pinned after it left counts as left no more, until it leaves again."""
    engine = engine_of(1000)
    messages = talk(20)
    state = compacted(engine, messages)
    left = state["context_record"]["left"]
    messages[4] = pin(messages[4])
    window = engine.measure(messages, session=state)
    record = window.session.view.record
    assert (record.messages, record.turns) == (left["messages"] - 1, left["turns"] - 1)
    messages[4] = HumanMessage(messages[4].content, id=messages[4].id)
    messages += talk(40)[40:]
    state = compacted(engine, messages, window.session.to_json())
    shown = len(messages) - state["context_view"]["start"]["index"] + len(state["context_view"]["pinned"])
    assert state["context_record"]["left"]["messages"] == len(messages) - shown


def test_the_remaining_question_is_shown_when_the_current_one_is_removed():
    """There is no request without a question."""
    engine = engine_of(800, pin_first_user=False)
    messages = [*talk(3), HumanMessage("QUESTION", id="q")]
    messages += [message for n in range(9) for message in called(n, "x" * 600)]
    state = compacted(engine, messages)
    messages = [message for message in messages if message.id != "q"]
    assert messages[4].text in texts(engine, messages, state)


def test_a_target_that_is_met_needs_no_compaction():
    """None when the request fits."""
    engine = engine_of(3000)
    window = engine.measure(talk(2))
    assert engine.emergency(window, target_tokens=window.total_tokens) is None


def test_callbacks_given_to_the_model_node_reach_the_model():
    """Outside a graph the node's config is the only way."""
    seen = []

    class Watch(BaseCallbackHandler):
        def on_chat_model_start(self, *_args, **_kwargs):
            seen.append("started")

    nodes = ContextNodes(engine_of())
    node = nodes.model_node(ScriptedChatModel(policy=script("fine")))
    node.invoke({"messages": [HumanMessage("hi", id="h")]}, {"callbacks": [Watch()]})
    assert seen == ["started"]


def test_a_question_rewritten_under_its_id_is_sent_as_it_is_now():
    """The id alone does not make a built request current."""
    nodes = ContextNodes(engine_of())
    state = {"messages": [HumanMessage("old", id="h")]}
    state |= nodes.build_messages.invoke(state)
    state["messages"] = [HumanMessage("new", id="h")]
    assert [message.text for message in nodes.model_input(state)] == ["new"]


async def test_a_summarizer_that_is_too_slow_ends_quietly():
    """Its thread finds nobody waiting and says nothing (an exception in a thread fails this test)."""

    class Slow:
        def summarize(self, messages, *, previous, max_tokens):
            time.sleep(0.2)
            return "late"

    with pytest.raises(Exception, match="no summary within"):
        await awrite_summary(Slow(), talk(2), previous="", max_tokens=50, timeout_seconds=0.05)
    await asyncio.sleep(0.3)


def test_a_compaction_inside_the_model_node_is_reported():
    """A state that grew after the check is compacted before the call, and nothing of that is silent."""
    nodes = ContextNodes(engine_of())
    node = nodes.model_node(ScriptedChatModel(policy=script("fine")))
    with capture_logs() as logs:
        update = node.invoke({"messages": talk(20)})
    assert "context.compacted" in [entry["event"] for entry in logs]
    assert update["context_report"]["over_by"] == 0
    assert update["context_record"]["left"]["messages"] == update["context_view"]["start"]["index"] - 1
