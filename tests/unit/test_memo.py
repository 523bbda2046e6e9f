"""What is remembered is only ever a shortcut."""

import gc
import itertools
import os
import threading

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import CharRatioCounter, ContextEngine, ModelLimits
from langchain_ctxwin.core.outcome import from_answer
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.core.priced_view import pin
from langchain_ctxwin.pricing import Marks
from langchain_ctxwin.util.memo import Lru, PerMessage, Seen, once
from support.forking import forked


class Counted:
    """A price that knows how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self, message):
        self.calls += 1
        return len(str(message.content)) + len(str(getattr(message, "tool_calls", "")))


def test_an_unchanged_message_is_priced_once():
    """Another object with the same text is another message, except a system message, which each request makes anew."""
    count = Counted()
    prices, message = PerMessage(count), HumanMessage("hello")
    assert prices(message) == prices(message) == prices(HumanMessage("hello"))
    assert prices(SystemMessage("s")) == prices(SystemMessage("s"))
    assert count.calls == 3


def test_changes_in_place_are_noticed_and_what_is_gone_is_let_go():
    """Text, blocks inside a list, and call arguments; only living messages are held in mind."""
    prices = PerMessage(Counted())
    text = HumanMessage("a")
    blocks = ToolMessage([{"type": "text", "text": "a"}], tool_call_id="c")
    call = AIMessage("", tool_calls=[{"name": "f", "args": {"x": "a"}, "id": "c"}])
    before = [prices(m) for m in (text, blocks, call)]
    text.content = "longer"
    blocks.content[0]["text"] = "longer"
    call.tool_calls[0]["args"]["x"] = "longer"
    assert [prices(m) for m in (text, blocks, call)] == [price + 5 for price in before]
    del text, blocks, call
    gc.collect()
    assert prices._known == {}


def test_a_small_mapping_forgets_what_was_used_least_recently():
    """Reading counts as use."""
    memo = Lru(2)
    memo.put("a", 1)
    memo.put("b", 2)
    memo.get("a")
    memo.put("c", 3)
    assert [memo.get(key) for key in "abc"] == [1, None, 3]
    assert once(memo, "a", lambda: 9) == 1
    assert once(memo, "new", lambda: 9) == 9


def test_a_thing_is_new_once():
    """Unless so many others were seen since that it was forgotten."""
    seen = Seen(2)
    assert [seen.is_new(thing) for thing in "aabaca"] == [True, False, True, False, True, False]
    assert [seen.is_new(thing) for thing in "dea"] == [True, True, True]


def test_marks_follow_the_history():
    """Appended, replaced and truncated histories give the marks of a fresh look."""
    marks = Marks()
    history = [HumanMessage(str(i), id=str(i)) for i in range(6)]
    assert marks(history) == frozenset()
    pinned = [*history[:2], pin(history[2]), *history[3:]]
    assert marks(pinned) == {2}
    assert marks([*pinned, pin(HumanMessage("7"))]) == {2, 6}
    assert marks(pinned[:2]) == frozenset()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_forked_while_threads_measure_measures_too():
    """The lock that another thread held at that moment stays held in the child, unless it is made anew."""
    memo = Lru(4)
    engine = ContextEngine(limits=ModelLimits(context_window=8_192), counter=CharRatioCounter())
    stop = threading.Event()

    def measure():
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
            engine.measure([HumanMessage(f"question {number}")], system_prompt=f"Be brief: {number}.")

    threads = [threading.Thread(target=measure, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            with memo._lock, forked() as is_child:  # a fork while it is free would prove nothing
                if is_child:
                    engine.measure([HumanMessage("and here")], system_prompt="Be brief.")
                    memo.put("here", 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def answered_state(window=100_000):
    """A conversation after its last answer, and a message that asks on."""
    engine = ContextEngine(limits=ModelLimits(context_window=window), counter=CharRatioCounter())
    messages, state = [], {}
    for number in range(12):
        call = {"name": "look", "args": {"n": number}, "id": f"c{number}"}
        messages += [HumanMessage(f"question {number} " * 9, id=f"q{number}")]
        for reply in (AIMessage("", id=f"a{number}", tool_calls=[call]), AIMessage("Yes, it is.", id=f"b{number}")):
            measured = engine.measure(messages, system_prompt="Be brief.", session=state)
            reply.usage_metadata = {"input_tokens": measured.total_tokens, "output_tokens": 3, "total_tokens": 3}
            state["context_counts"] = from_answer(measured, reply).counts
            messages.append(reply)
            if reply.tool_calls:
                messages.append(ToolMessage(f"item {number} " * 20, tool_call_id=f"c{number}", id=f"t{number}"))
    return [*messages, HumanMessage("And now?", id="last")], state


def measured_anew(messages, state):
    """Measure in another process: other objects, an engine that remembers nothing. Returns what it priced, too."""
    priced = []

    def counter(given, *, tools=None):
        priced.extend(given)
        return CharRatioCounter()(given, tools=tools)

    engine = ContextEngine(limits=ModelLimits(context_window=100_000), counter=counter)
    copies = [message.model_copy(deep=True) for message in messages]
    return engine.measure(copies, system_prompt="Be brief.", session=state), priced


def test_only_what_follows_the_anchor_is_priced():
    """The provider counted the rest; the request and its size are those of a process that knows every message."""
    messages, state = answered_state()
    window, priced = measured_anew(messages, state)
    without = {**state["context_counts"], "anchor": {**state["context_counts"]["anchor"]}}
    del without["anchor"]["checksum"]
    whole, all_priced = measured_anew(messages, {**state, "context_counts": without})
    assert (len(priced), len(all_priced)) == (3, len(messages) + 1)  # the prompt, the last answer, the question
    assert (window.report, window.priced_view.messages()) == (whole.report, whole.priced_view.messages())
    assert window.priced_view.steps == whole.priced_view.steps


@pytest.mark.parametrize("change", ["shorter", "call gone", "message gone", "other prompt"])
def test_an_edited_history_is_priced_anew(change):
    """Whatever was edited since the provider counted it."""
    messages, state = answered_state()
    if change == "shorter":
        messages[3] = messages[3].model_copy(update={"content": "short"})
    elif change == "call gone":
        messages[1] = messages[1].model_copy(update={"tool_calls": []})
    elif change == "message gone":
        del messages[3]
    else:
        state["context_counts"]["anchor"]["digest"] = "of another prompt"
    window, priced = measured_anew(messages, state)
    assert len(priced) > len(messages) / 2
    assert find_faults(window.priced_view.messages()) == []


def test_tools_calls_and_marks_that_change_in_place_are_noticed():
    """A definition that grew, a call that could not be parsed, and a pin that was set without another message."""
    engine = ContextEngine(limits=ModelLimits(context_window=8_192), counter=CharRatioCounter())
    tool = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
    asked = AIMessage("", id="a", invalid_tool_calls=[{"name": "look", "args": "{", "id": "c", "error": None}])
    messages = [HumanMessage("Hi", id="q"), asked, ToolMessage("no", tool_call_id="c"), HumanMessage("So?", id="r")]

    def measured():
        return engine.measure(messages, tools=[tool])

    before = measured().report
    tool["description"] = "Look at everything that there is in the room. " * 9
    assert measured().report["tool_tokens"] > before["tool_tokens"]
    asked.invalid_tool_calls[0]["args"] = "{" * 400
    assert measured().report["history_tokens"] > before["history_tokens"]
    assert measured().request.pins == frozenset()
    messages[0].additional_kwargs.update(pin(messages[0]).additional_kwargs)
    assert measured().request.pins == {0}
