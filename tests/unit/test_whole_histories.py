"""Do callers that pass the whole history with each call pay as little as those with a checkpointer?"""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from structlog.testing import capture_logs

from langchain_ctxwin import ContextEngine, ModelLimits, TokenEstimator
from langchain_ctxwin.agent.storage import MAX_HISTORIES, NAMESPACE, Histories, RunPlace
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.util import run
from support.agents import PATIENCE, RUNS, WAYS, engine_of, is_refused, on_both
from support.fakes import ScriptedChatModel, tool_loop
from support.graphs import chat_on

WINDOW = 1500
TURNS = 24
WORDS = " ".join(f"w{number}" for number in range(60))
CONFIG = {"configurable": {"thread_id": "1"}}
DAMAGED = {
    "view": {"context_view": {"start": 7, "pinned": 7, "clamped": [1]}},
    "record": {"context_record": {"lines": 7}, "context_view": []},
    "others": {"context_counts": {"measured": 7, "limits": [1]}, "context_guard": "x", "context_tools": [{}]},
    "foreign": {"messages": [{"type": "human", "content": "INJECTED"}], "llm_input_messages": [7]},
    "nested": {"context_guard": json.loads("[" * 900 + "]" * 900)},
    "list": [["a"], 7],
}
WEIRD_IDS = ["id", "first", "lines", "context_view", "summary 1", "#3", "said"]
CALLS = [{"name": "deploy", "args": {"to": place}, "id": place} for place in ("a", "b")]
ODD_ARGS = [{"m": {(1, 2): 3}}, {"m": {1, 2}}]


@tool
def look(name: str) -> str:
    """Look at something."""
    return f"{name}: {WORDS}"


class Writer:
    """A summarizer that counts its calls."""

    def __init__(self):
        self.calls = 0

    def summarize(self, messages, *, previous, max_tokens):
        self.calls += 1
        return f"summary {self.calls} of {len(messages)} messages"


class Broken(InMemoryStore):
    """A store that fails."""

    def batch(self, ops):
        raise ConnectionError("the store is down")


def questions(turns=TURNS):
    return [f"question {number} {WORDS}" for number in range(turns)]


class Caller:
    """Talks to an agent; with `is_saved` a checkpointer keeps the history, else the caller, perhaps `as_texts` only."""

    def __init__(self, adapter="nodes", mode="background", *, is_saved=False, as_texts=False, has_tools=False, **given):
        self.adapter, self.mode, self.is_saved, self.as_texts = adapter, mode, is_saved, as_texts
        self.store, self.is_async, self.config = map(given.get, ("store", "is_async", "config"))
        self.saver = InMemorySaver() if is_saved else False
        self.tools = [look] if has_tools else []
        self.writer = Writer()
        self.model = ScriptedChatModel(input_limit=WINDOW, **({"policy": tool_loop(steps=2)} if has_tools else {}))
        self.history = []
        self.restart()

    def restart(self):
        """Another process: what was remembered in this one is gone."""
        self.jobs = SummaryJobs()
        engine = engine_of(WINDOW, TokenEstimator(), self.writer, summarize=self.mode, jobs=self.jobs)
        if self.adapter == "middleware":
            middleware = [ContextWindowMiddleware(engine)]
            saver = self.saver or None
            self.agent = create_agent(
                self.model, self.tools, middleware=middleware, checkpointer=saver, store=self.store
            )
        else:
            call = self.model.bind_tools(self.tools) if self.tools else self.model
            self.agent = chat_on(engine, call, tools=self.tools, checkpointer=self.saver, store=self.store)

    def say(self, question):
        self.history.append(("user", question))
        given = {"messages": [self.history[-1]] if self.is_saved else list(self.history)}
        config = CONFIG if self.is_saved else self.config
        state = asyncio.run(self.agent.ainvoke(given, config)) if self.is_async else self.agent.invoke(given, config)
        answer = state["messages"][-1]
        if self.as_texts:
            self.history.append(("assistant", answer.text))
        else:
            self.history = [message.model_copy(update={"id": None}) for message in state["messages"]]
        self.jobs.drain(PATIENCE)
        return answer

    def talk(self, *, restarts=False, turns=TURNS):
        for question in questions(turns):
            if restarts:
                self.restart()
            self.say(question)
        return self

    @property
    def requests(self):
        return [[(m.type, m.text) for m in request.messages] for request in self.model.requests]


@on_both
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        *((mode, {"has_tools": has_tools}) for mode in ("background", "inline", "off") for has_tools in (False, True)),
        ("background", {"is_async": True}),
        ("inline", {"config": CONFIG}),
    ],
    ids=str,
)
def test_the_same_requests_are_sent_as_with_a_checkpointer(adapter, mode, options):
    """What is known of messages is found by what they say; a thread id without a checkpointer is a label."""
    saved, whole = (Caller(adapter, mode, is_saved=is_saved, **options).talk() for is_saved in (True, False))
    assert whole.requests == saved.requests
    assert whole.writer.calls == saved.writer.calls > (0 if mode != "off" else -1)


@on_both
@pytest.mark.parametrize("has_tools", [False, True])
def test_texts_without_ids_sizes_and_tool_calls_are_enough(adapter, has_tools):
    """What left in the middle of a turn of tool calls leaves again, at most."""
    saved = Caller(adapter, is_saved=True, has_tools=has_tools).talk()
    texts = Caller(adapter, as_texts=True, has_tools=has_tools).talk()
    assert not is_refused(texts.model)
    assert 0 < texts.writer.calls <= saved.writer.calls * (2 if has_tools else 1)


@pytest.mark.parametrize(("adapter", "is_async"), WAYS)
def test_a_store_serves_callers_whose_processes_change(adapter, is_async):
    saved = Caller(adapter, is_saved=True, is_async=is_async).talk()
    whole = Caller(adapter, store=InMemoryStore(), is_async=is_async).talk(restarts=True, turns=3)
    assert whole.store.search(NAMESPACE) == []  # most conversations are short
    whole.history.clear()
    whole.talk(restarts=True)
    assert whole.writer.calls == saved.writer.calls > 0
    assert len(whole.store.search(NAMESPACE)) == 1


def test_another_history_is_not_told_of():
    """Nor of what a message said before it was edited."""
    caller = Caller(as_texts=True).talk()
    caller.history = [*caller.history[:4], ("user", "Forget it."), ("assistant", "Done.")]
    before = len(caller.requests)
    caller.talk(turns=4)
    told = str(caller.requests[before:])
    assert ("question 9 " in told, "summary" in told) == (False, False)
    caller = Caller(mode="off")
    caller.say("The password is hunter-2-7731.")
    caller.talk()
    assert "hunter-2-7731" in str(caller.requests[-1])
    caller.history[:2] = [("user", "There is no password."), ("assistant", "Noted.")]
    caller.say("Go on.")
    assert "hunter-2-7731" not in str(caller.requests[-1])


@on_both
@pytest.mark.parametrize("session", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_session_in_the_store_costs_the_saving_only(adapter, session):
    store = InMemoryStore()
    caller = Caller(adapter, mode="inline", store=store).talk()
    until = time.monotonic() + PATIENCE
    while not (stored := store.search(NAMESPACE)) and time.monotonic() < until:
        time.sleep(0.01)
    (item,) = stored
    written = {**json.loads(item.value["written"]), **session} if isinstance(session, dict) else session
    store.put(NAMESPACE, item.key, {**item.value, "written": json.dumps(written)})
    caller.restart()
    assert caller.say("What now?").text
    assert "INJECTED" not in str(caller.requests[-1])
    assert not is_refused(caller.model)


@pytest.mark.parametrize("damage", ["written", "key", "gone", "down"])
def test_a_store_that_fails_or_holds_something_odd_costs_the_saving_and_a_warning(damage):
    store = Broken() if damage == "down" else InMemoryStore()
    caller = Caller(store=store)
    with capture_logs() as logs:
        for question in questions():
            caller.restart()
            caller.say(question)
            for item in store.search(NAMESPACE) if damage != "down" else ():
                if damage == "gone":
                    store.delete(NAMESPACE, item.key)
                else:
                    store.put(NAMESPACE, item.key, {**item.value, damage: '[["a"], 7]'})
    known = {"summary.not_read", "summary.not_stored", "context.summary_failed"}
    assert damage != "down" or {log["event"] for log in logs if log["log_level"] == "warning"} <= known
    assert not is_refused(caller.model)


@pytest.mark.parametrize("mode", ["inline", "background"])
def test_what_a_summary_quotes_of_a_system_prompt_stays_with_that_prompt(mode):
    prompt, jobs, writer = "", SummaryJobs(), Writer()
    window = 1_400  # one at whose turns both rounds want the same summaries
    engine = engine_of(window, TokenEstimator(), writer, summarize=mode, jobs=jobs)
    model = ScriptedChatModel(input_limit=window)
    agent = chat_on(engine, model, prompt=lambda state, runtime: prompt, checkpointer=False)
    calls = []
    for prompt in ("one", "one", "two"):  # noqa: B007  # read by the agent
        history = []
        for question in questions():
            answer = agent.invoke({"messages": [*history, HumanMessage(question)]})["messages"][-1]
            history += [HumanMessage(question), AIMessage(answer.text)]
            jobs.drain(PATIENCE)
        calls.append(writer.calls)
    assert calls[0] == calls[1] < calls[2] == 2 * calls[0]


def histories():
    return Histories(ContextEngine(ModelLimits(context_window=WINDOW)))


def summary_of(histories, messages):
    """What is found of a history that comes again."""
    return run(histories.found({"messages": messages}, RunPlace())).get("context_summary")


@pytest.mark.parametrize("name", WEIRD_IDS)
def test_an_id_may_be_spelled_like_anything(name):
    """Ids are exchanged where ids stand, not where a text or a key is spelled like one."""

    def session(key):
        start = {"id": key, "index": 2}
        view = {"start": start, "cleared": [key], "clamped": {key: {}}, "pinned": [[key, 0]]}
        lines = [["said", "said", key, 0]]
        return {"context_view": view, "context_record": {"lines": lines}, "context_summary": name}

    known = histories()
    texts = [HumanMessage("Hi", id=name), AIMessage("Hello."), HumanMessage("Go on.")]
    known.keep({**session(name), "messages": texts}, RunPlace())
    again = [m.model_copy(update={"id": f"m{n}"}) for n, m in enumerate(texts)]
    found, expected = run(known.found({"messages": again}, RunPlace())), session("m0")
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([HumanMessage("Hi", name="alice")], [HumanMessage("Hi", name="bob")]),
        ([ToolMessage("broken", tool_call_id="a")], [ToolMessage("broken", tool_call_id="a", status="error")]),
        (
            [AIMessage("", tool_calls=CALLS), ToolMessage("ok", tool_call_id="a")],
            [AIMessage("", tool_calls=CALLS), ToolMessage("ok", tool_call_id="b")],
        ),
        ([ChatMessage("Hi", role="tester")], [ChatMessage("Hi", role="critic")]),
        ([HumanMessage("Hi")], [SystemMessage("Hi")]),
        # such calls come from tests and from other frameworks
        *(([AIMessage("", tool_calls=[{"name": "f", "args": args, "id": "c"}])], []) for args in ODD_ARGS),
    ],
    ids=["name", "status", "call", "role", "type", "odd keys", "a set"],
)
def test_all_that_a_record_tells_of_tells_histories_apart(one, other):
    known = histories()
    tail = [AIMessage("Done."), HumanMessage("Go on.")]
    known.keep({"messages": [*one, *tail], "context_summary": "what one did"}, RunPlace())
    assert summary_of(known, [*other, *tail]) is None
    assert summary_of(known, [*one, *tail]) == "what one did"


def test_memory_is_bounded_and_short_conversations_do_not_crowd_out_long_ones():
    """Counts alone cost less to lose than a summary."""
    known = histories()
    for number in range(2 * MAX_HISTORIES):
        short = [HumanMessage(f"short {number}"), AIMessage("hi")]
        if number == 0:
            known.keep({"messages": [*short, HumanMessage("and?")], "context_summary": "long"}, RunPlace())
        known.keep({"messages": short, "context_counts": {"messages": 2}}, RunPlace())
    assert summary_of(known, [HumanMessage("short 0"), AIMessage("hi"), HumanMessage("and?")]) == "long"
    talks = [[HumanMessage(f"hello {n}"), AIMessage("hi"), HumanMessage("and?")] for n in range(MAX_HISTORIES + 1)]
    for messages in talks:
        known.keep({"messages": messages, "context_summary": f"they said {messages[0].text}"}, RunPlace())
    assert (summary_of(known, talks[0]), summary_of(known, talks[-1])) == (None, f"they said hello {MAX_HISTORIES}")


@RUNS
@given(
    kept=st.lists(st.integers(0, 400), min_size=1, max_size=24),
    edits=st.lists(st.tuples(st.integers(0, 23), st.sampled_from(["edit", "cut", "repeat"])), max_size=6),
)
def test_whatever_callers_do_to_their_histories_each_request_fits(kept, edits):
    """Histories are cut, edited and sent twice; no request is refused, and each ends in its question."""
    caller, changes = Caller(mode="inline", as_texts=True), dict(edits)
    for number, words in enumerate(kept):
        change = changes.get(number)
        if change == "edit" and caller.history:
            caller.history[number % len(caller.history)] = ("user", f"edited {number}")
        elif change == "cut":
            caller.history = caller.history[2 * (len(caller.history) // 4) :]
        elif change == "repeat":
            caller.history = caller.history[: 2 * (len(caller.history) // 3)]
        caller.say(f"question {number} {'fox ' * words}")
        assert caller.requests[-1][-1][1].startswith(f"question {number} ")
    assert not is_refused(caller.model)
