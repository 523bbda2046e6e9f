"""Do callers that pass the whole history with each call pay as little as those with a checkpointer?"""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from structlog.testing import capture_logs

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits
from langchain_ctxwin.agent.histories import MAX_HISTORIES, NAMESPACE, Histories, Place
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.util.work import run
from support.fakes import ScriptedChatModel, tool_loop
from support.graphs import chat_on

WINDOW = 1500
TURNS = 24
PATIENCE = 20.0
WORDS = " ".join(f"w{number}" for number in range(60))
CONFIG = {"configurable": {"thread_id": "1"}}
MODES = ["background", "inline", "off"]
ADAPTERS = ["nodes", "middleware"]


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


class Caller:
    """Talks to an agent; with `is_saved` a checkpointer keeps the history, else the caller, perhaps `as_texts` only."""

    def __init__(
        self, adapter="nodes", mode="background", *, is_saved=False, as_texts=False, has_tools=False, store=None
    ):
        self.adapter, self.mode, self.is_saved, self.store = adapter, mode, is_saved, store
        self.as_texts = as_texts
        self.saver = InMemorySaver() if is_saved else False
        self.tools = [look] if has_tools else []
        self.writer = Writer()
        self.model = ScriptedChatModel(input_limit=WINDOW, **({"policy": tool_loop(steps=2)} if has_tools else {}))
        self.history = []
        self.restart()

    def restart(self):
        """Another process: what was remembered in this one is gone."""
        self.jobs = SummaryJobs()
        config = ContextConfig(output_reserve=0, summarize=self.mode)
        engine = ContextEngine(
            ModelLimits(context_window=WINDOW), summarizer=self.writer, config=config, jobs=self.jobs
        )
        if self.adapter == "middleware":
            middleware = [ContextWindowMiddleware(engine)]
            self.agent = create_agent(
                self.model, self.tools, middleware=middleware, checkpointer=self.saver or None, store=self.store
            )
        else:
            call = self.model.bind_tools(self.tools) if self.tools else self.model
            self.agent = chat_on(engine, call, tools=self.tools, checkpointer=self.saver, store=self.store)

    def given(self, question):
        self.history.append(("user", question))
        return {"messages": [self.history[-1]] if self.is_saved else list(self.history)}

    def say(self, question):
        return self.heard(self.agent.invoke(self.given(question), CONFIG if self.is_saved else None))

    async def asay(self, question):
        return self.heard(await self.agent.ainvoke(self.given(question), CONFIG if self.is_saved else None))

    def heard(self, state):
        answer = state["messages"][-1]
        if self.as_texts:
            self.history.append(("assistant", answer.text))
        else:
            self.history = [message.model_copy(update={"id": None}) for message in state["messages"]]
        self.jobs.drain(PATIENCE)
        return answer

    @property
    def requests(self):
        return [[(m.type, m.text) for m in request.messages] for request in self.model.requests]


def questions(turns=TURNS):
    return [f"question {number} {WORDS}" for number in range(turns)]


def until_stored(store):
    """What a store holds, once the thread that writes it is done."""
    deadline = time.monotonic() + PATIENCE
    while not (found := store.search(NAMESPACE)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("has_tools", [False, True], ids=["chat", "tools"])
def test_the_same_requests_are_sent_as_with_a_checkpointer(adapter, mode, has_tools):
    """Messages get new ids with each call; what is known of them is found by what they say."""
    saved, whole = (Caller(adapter, mode, is_saved=is_saved, has_tools=has_tools) for is_saved in (True, False))
    for question in questions():
        saved.say(question)
        whole.say(question)
    assert whole.requests == saved.requests
    assert whole.writer.calls == saved.writer.calls > (0 if mode != "off" else -1)


def test_async_callers_pay_as_little():
    """The same requests, the same calls."""
    saved, whole = Caller(is_saved=True), Caller()

    async def talk():
        for question in questions():
            await saved.asay(question)
            await whole.asay(question)

    asyncio.run(talk())
    assert whole.requests == saved.requests
    assert whole.writer.calls == saved.writer.calls > 0


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_texts_without_ids_and_sizes_are_enough(adapter):
    """What is known of sizes is found again, too: no request is refused, and no more summaries are written."""
    saved, texts = Caller(adapter, is_saved=True), Caller(adapter, as_texts=True)
    for question in questions():
        saved.say(question)
        texts.say(question)
    assert not any(request.refused for request in texts.model.requests)
    assert 0 < texts.writer.calls <= saved.writer.calls


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_caller_that_leaves_tool_calls_out_is_known_by_the_rest(adapter):
    """Chat clients keep questions and answers only; what left in the middle of a turn leaves again, at most."""
    saved, texts = (
        Caller(adapter, is_saved=is_saved, as_texts=not is_saved, has_tools=True) for is_saved in (True, False)
    )
    for question in questions():
        saved.say(question)
        texts.say(question)
    assert not any(request.refused for request in texts.model.requests)
    assert texts.writer.calls <= 2 * saved.writer.calls


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_store_serves_callers_whose_processes_change(adapter):
    """Each call may reach another process; none writes again what one of them wrote."""
    saved, whole = Caller(adapter, is_saved=True), Caller(adapter, store=InMemoryStore())
    for question in questions():
        saved.say(question)
        whole.restart()
        whole.say(question)
    assert whole.writer.calls == saved.writer.calls > 0
    assert len(whole.store.search(NAMESPACE)) == 1


async def test_an_async_caller_finds_its_history_in_the_store():
    """The event loop waits for no other thread."""
    whole = Caller(store=InMemoryStore())
    for question in questions():
        whole.restart()
        await whole.asay(question)
    assert 0 < whole.writer.calls <= 2


def test_another_history_is_not_told_of():
    """What was said after the last common message stays where it was said."""
    caller = Caller(as_texts=True)
    for question in questions():
        caller.say(question)
    caller.history = [*caller.history[:4], ("user", "Forget it."), ("assistant", "Done.")]
    before = len(caller.requests)
    for question in questions(4):
        caller.say(question)
    told = "".join(text for request in caller.requests[before:] for _, text in request)
    assert "question 9 " not in told
    assert "summary" not in told


def test_a_message_that_is_edited_begins_another_history():
    """The record must not tell what was taken back."""
    caller = Caller(mode="off")
    caller.say("The password is hunter-2-7731.")
    for question in questions():
        caller.say(question)
    assert "hunter-2-7731" in str(caller.requests[-1])
    caller.history[0] = ("user", "There is no password.")
    caller.history[1] = ("assistant", "Noted.")
    caller.say("Go on.")
    assert "hunter-2-7731" not in str(caller.requests[-1])


DAMAGED = {
    "view": {"context_view": {"start": 7, "pinned": 7, "clamped": [1]}},
    "record": {"context_record": {"lines": 7}, "context_view": []},
    "others": {"context_counts": {"measured": 7, "limits": [1]}, "context_guard": "x", "context_tools": [{}]},
    "foreign": {"messages": [{"type": "human", "content": "INJECTED"}], "llm_input_messages": [7]},
    "nested": {"context_guard": json.loads("[" * 900 + "]" * 900)},
    "list": [["a"], 7],
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("session", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_session_in_the_store_costs_the_saving_only(adapter, session):
    """Somebody wrote something else into the item of a history: the turn goes on from the messages."""
    store = InMemoryStore()
    caller = Caller(adapter, mode="inline", store=store)
    for question in questions():
        caller.say(question)
    (item,) = until_stored(store)
    written = {**json.loads(item.value["written"]), **session} if isinstance(session, dict) else session
    store.put(NAMESPACE, item.key, {**item.value, "written": json.dumps(written)})
    caller.restart()
    assert caller.say("What now?").text
    assert "INJECTED" not in str(caller.requests[-1])
    assert not any(request.refused for request in caller.model.requests)


@pytest.mark.parametrize("damage", ["value", "key", "gone"])
def test_a_store_that_holds_something_odd_costs_the_saving_only(damage):
    """The turn goes on, and the next process finds what this one stored."""
    store = InMemoryStore()
    caller = Caller(store=store)
    for question in questions():
        caller.restart()
        caller.say(question)
        for item in store.search(NAMESPACE):
            if damage == "gone":
                store.delete(NAMESPACE, item.key)
            else:
                store.put(NAMESPACE, item.key, {**item.value, "written" if damage == "value" else "key": '[["a"], 7]'})
    assert not any(request.refused for request in caller.model.requests)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_thread_id_without_a_checkpointer_is_a_label(adapter):
    """Servers pass one with every call; it keeps nothing, so the history is looked for all the same."""
    saved, whole = Caller(adapter, "inline", is_saved=True), Caller(adapter, "inline")
    for question in questions():
        saved.say(question)
        whole.heard(whole.agent.invoke(whole.given(question), CONFIG))
    assert whole.writer.calls == saved.writer.calls > 0


class Quoting(Writer):
    """Writes who spoke: what no other history may show."""

    def summarize(self, messages, *, previous, max_tokens):
        self.calls += 1
        return f"talk of {' '.join(sorted({message.name for message in messages if message.name}))}"


def long_history(name=None):
    return [
        message
        for number in range(14)
        for message in (HumanMessage(f"question {number} {WORDS}", name=name), AIMessage(f"answer {number}"))
    ]


def test_speakers_tell_histories_apart():
    """Who said something is part of what was said."""
    engine = ContextEngine(
        ModelLimits(context_window=WINDOW),
        summarizer=Quoting(),
        config=ContextConfig(output_reserve=0, summarize="inline"),
    )
    model = ScriptedChatModel(input_limit=WINDOW)
    agent = chat_on(engine, model, checkpointer=False)
    for name in ("alice", "bob"):
        agent.invoke({"messages": [*long_history(name), HumanMessage("And?", name=name)]})
    assert "talk of alice" not in str(model.requests[-1].messages)


@pytest.mark.parametrize("mode", ["inline", "background"])
def test_what_a_summary_quotes_of_a_system_prompt_stays_with_that_prompt(mode):
    """A second tenant with the same history and another prompt gets a summary of its own."""
    prompt, jobs, writer = "", SummaryJobs(), Writer()
    engine = ContextEngine(
        ModelLimits(context_window=WINDOW),
        summarizer=writer,
        config=ContextConfig(output_reserve=0, summarize=mode),
        jobs=jobs,
    )
    model = ScriptedChatModel(input_limit=WINDOW)
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


WEIRD_IDS = ["id", "first", "lines", "context_view", "summary 1", "#3", "said"]


@pytest.mark.parametrize("name", WEIRD_IDS)
def test_an_id_may_be_spelled_like_anything(name):
    """Ids are exchanged where ids stand, not where a text or a key is spelled like one."""
    histories = Histories(ContextEngine(ModelLimits(context_window=WINDOW)))
    session = {
        "context_view": {
            "start": {"id": name, "index": 2},
            "cleared": [name],
            "clamped": {name: {}},
            "pinned": [[name, 0]],
        },
        "context_record": {"lines": [["said", "said", name, 0]]},
        "context_summary": name,
    }
    texts = [HumanMessage("Hi"), AIMessage("Hello."), HumanMessage("Go on.")]
    histories.keep({**session, "messages": [m.model_copy(update={"id": name}) for m in texts[:1]] + texts[1:]}, Place())
    found = run(
        histories.found({"messages": [m.model_copy(update={"id": f"m{n}"}) for n, m in enumerate(texts)]}, Place())
    )
    assert found["context_summary"] == name
    assert found["context_view"]["start"]["id"] == found["context_view"]["cleared"][0] == "m0"
    assert found["context_view"]["pinned"] == [["m0", 0]]
    assert found["context_view"]["clamped"] == {"m0": {}}
    assert found["context_record"]["lines"] == [["said", "said", "m0", 0]]


CALLS = [{"name": "deploy", "args": {"to": place}, "id": place} for place in ("a", "b")]


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
    ],
    ids=["name", "status", "call", "role", "type"],
)
def test_all_that_a_record_tells_of_tells_histories_apart(one, other):
    """What one of them did is not told in the other."""
    histories = Histories(ContextEngine(ModelLimits(context_window=WINDOW)))
    tail = [AIMessage("Done."), HumanMessage("Go on.")]
    histories.keep({"messages": [*one, *tail], "context_summary": "what one did"}, Place())
    assert run(histories.found({"messages": [*other, *tail]}, Place())) == {}
    assert run(histories.found({"messages": [*one, *tail]}, Place()))["context_summary"] == "what one did"


def test_short_conversations_do_not_crowd_out_long_ones():
    """Counts alone cost less to lose than a summary."""
    histories = Histories(ContextEngine(ModelLimits(context_window=WINDOW)))
    long = {
        "messages": [HumanMessage("Hi"), AIMessage("Hello."), HumanMessage("Go on.")],
        "context_summary": "greetings",
    }
    histories.keep(long, Place())
    for number in range(2 * MAX_HISTORIES):
        short = [HumanMessage(f"hello {number}"), AIMessage("hi")]
        histories.keep({"messages": short, "context_counts": {"messages": 2}}, Place())
    assert run(histories.found({"messages": long["messages"]}, Place()))["context_summary"] == "greetings"


@pytest.mark.parametrize("args", [{"m": {(1, 2): 3}}, {"m": {1, 2}}], ids=["keys", "set"])
def test_calls_that_no_provider_could_have_made_are_remembered(args):
    """They come from tests and from other frameworks."""
    histories = Histories(ContextEngine(ModelLimits(context_window=WINDOW)))
    call = {"name": "look", "args": args, "id": "c"}
    messages = [HumanMessage("Hi"), AIMessage("", tool_calls=[call]), ToolMessage("seen", tool_call_id="c")]
    histories.keep({"messages": messages, "context_summary": "a look"}, Place())
    assert run(histories.found({"messages": messages}, Place()))["context_summary"] == "a look"


class Broken(InMemoryStore):
    """A store that fails."""

    def batch(self, ops):
        raise ConnectionError("the store is down")


def test_a_store_that_fails_costs_a_warning():
    """No turn ends for it."""
    caller = Caller(store=Broken())
    with capture_logs() as logs:
        for question in questions():
            caller.say(question)
    assert {log["event"] for log in logs if log["log_level"] == "warning"} <= {
        "summary.not_read",
        "summary.not_stored",
        "context.summary_failed",
    }
    assert not any(request.refused for request in caller.model.requests)


def test_a_history_without_a_compaction_is_not_remembered():
    """Most conversations are short."""
    caller = Caller(store=InMemoryStore())
    for question in questions(3):
        caller.say(question)
    assert caller.store.search(NAMESPACE) == []


def test_memory_is_bounded():
    """The oldest histories are forgotten."""
    histories = Histories(ContextEngine(ModelLimits(context_window=WINDOW)))
    states = [
        {
            "messages": [HumanMessage(f"hello {number}"), AIMessage("hi"), HumanMessage("and?")],
            "context_summary": f"they said hello {number}",
        }
        for number in range(MAX_HISTORIES + 1)
    ]
    for state in states:
        histories.keep(state, Place())
    first, last = ({"messages": states[index]["messages"]} for index in (0, -1))
    assert run(histories.found(first, Place())) == {}
    assert run(histories.found(last, Place()))["context_summary"] == f"they said hello {MAX_HISTORIES}"


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
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
    assert not any(request.refused for request in caller.model.requests)
