"""A conversation that grows and is rewritten while its summaries come as a test says, checked after each request."""

import asyncio
import json
from contextvars import copy_context
from dataclasses import replace
from types import SimpleNamespace

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits, pin
from langchain_ctxwin.agent.step import AgentStep
from langchain_ctxwin.agent.storage import NOWHERE, RunPlace
from langchain_ctxwin.core.compaction import dropped_positions
from langchain_ctxwin.core.turns import last_user
from langchain_ctxwin.core.view import View
from langchain_ctxwin.errors import BudgetExceededError, SummarizationError
from langchain_ctxwin.summarize.jobs import SummaryJobs, SummaryStore, attempt
from langchain_ctxwin.testing import request_faults
from langchain_ctxwin.util.work import arun, run
from support.conversations import CharCounter, payload

COUNTER = CharCounter()
PROMPT = "You are a careful assistant."
TOOLS = [
    {
        "type": "function",
        "function": {"name": "read", "description": "Reads.", "parameters": {}},
    }
]
MARKER_TOKENS = 40  # stand for what left: a record without lines, an answer
SESSION = (
    *("context_view", "context_record", "context_summary", "context_pending"),
    *("context_counts", "context_guard", "context_report"),
)
TEXTS = (
    "good",
    "placeholder",
    "novel",
    "long",
    "contradiction",
    "empty",
    "none",
    "raise",
)
"""What the summarizer writes, or does instead."""


class Writer:
    """A summarizer of changing quality; it knows of each of its texts what it was made from."""

    def __init__(self):
        self.kind = "good"
        self.made = {}
        """Number of a text -> contents by message id, and the summary before it."""

    def summarize(self, messages, *, previous, max_tokens):
        if self.kind == "raise":
            raise RuntimeError("down")
        if self.kind in {"empty", "none"}:
            return "  " if self.kind == "empty" else None
        number = len(self.made)
        self.made[number] = ({m.id: m.content for m in messages}, previous)
        body = {
            "good": f"{len(messages)} messages were exchanged.",
            "placeholder": "Conversation summary unavailable.",
            "contradiction": "The user withdrew every question.",
            "long": "and then " * (max_tokens * 4 // 9 * 2),
            "novel": "once upon a time " * 4000,
        }[self.kind]
        return f"<<{number}>> {body}"

    def origin(self, summary):
        """What a shown summary was made from."""
        return self.made[int(summary[2 : summary.index(">>")])]


class Steps:
    """The steps of an engine outside of a graph; `setup` is what an adapter would know."""

    def __init__(self, engine, **setup):
        self.engine, self.setup = engine, setup

    def step(self, state, place=NOWHERE):
        return AgentStep(state=state, engine=self.engine, place=place, **self.setup)

    def take(self, verb, state, place=NOWHERE, *, is_async=False):
        """Take a step, `prepare` or `summarize`, and return what is news."""
        step = self.step(state, place)
        work = getattr(step, verb)()
        asyncio.run(arun(work)) if is_async else run(work)
        return step.news

    def request(self, state):
        return self.step(state).request()


RUNNING = SimpleNamespace(written=None, failure="")


class Desk(SummaryJobs):
    """Background jobs that end when and as a test says."""

    def __init__(self):
        self.open = {}
        self.ended = {}
        self.started = []

    def start(self, key, write, *, timeout_seconds, store=None, thread_id=""):
        if key not in self.open and key not in self.ended:
            self.started.append(key)
            self.open[key] = (write, store)
        return True

    def find(self, key):
        return self.ended.get(key) or (RUNNING if key in self.open else None)

    def forget(self, key):
        self.ended.pop(key, None)

    def finish(self):
        for key, (write, store) in list(self.open.items()):
            try:
                written = copy_context().run(attempt, write)
            except SummarizationError as error:
                self.ended[key] = SimpleNamespace(written=None, failure=str(error))
            else:
                self.ended[key] = SimpleNamespace(written=written, failure="")
                if store:
                    store.put(key, written)
            del self.open[key]


class Conversation:
    """A history that grows and is rewritten, driven through the steps, checked after each request."""

    def __init__(self, window, *, is_async, has_store, **config):
        self.window, self.is_async = window, is_async
        self.writer = Writer()
        self.place = (
            RunPlace("t", SummaryStore(InMemoryStore(), "t"))
            if has_store
            else RunPlace()
        )
        self.config = ContextConfig(output_reserve=0, **config)
        self.history, self.session, self.previous = [], {}, None
        self.rewritten, self.is_exact = False, True
        self.saved, self.calls, self.serial = [], [], 0
        self.late = set()  # results that no request may show, nor the summarizer see
        self.restart()

    def restart(self):
        """Another process: what was being written is lost."""
        self.jobs = Desk()
        self.engine = ContextEngine(
            ModelLimits(context_window=self.window),
            COUNTER,
            self.writer,
            self.config,
            jobs=self.jobs,
        )
        self.flow = Steps(self.engine, system_prompt=PROMPT, all_tools=TOOLS)

    def measure(self, state):
        return self.engine.measure(
            state["messages"], system_prompt=PROMPT, tools=TOOLS, session=state
        )

    def text(self, chars):
        self.serial += 1
        return f"number {self.serial} " + "lorem " * (chars // 6)

    def add(self, message, *, pinned=False):
        message.id = f"m{self.serial}"
        self.history.append(pin(message) if pinned else message)

    def act(self, event):
        name, *given = event
        getattr(self, name)(*given)

    def ask(self, chars, how):
        text = self.text(chars)
        image = {"type": "image", "base64": "QUJD" * 900, "mime_type": "image/png"}
        content = [{"type": "text", "text": text}, image] if how == "image" else text
        self.add(HumanMessage(content), pinned=how == "pin")
        self.request()

    def step(self, sizes, order):
        """One AI message with parallel calls, ids reused now and then, results in any order."""
        if last_user(self.history) is None:
            return
        names = [f"c{self.serial % 7}{number}" for number in range(len(sizes))]
        calls = [{"name": "read", "args": {"path": name}, "id": name} for name in names]
        self.text(0)
        self.add(AIMessage("", tool_calls=calls))
        for name, chars in zip(names[::order], sizes, strict=True):
            text = self.text(chars)
            self.add(ToolMessage(text, tool_call_id=name))
        self.request()

    def abandon(self, chars):
        """A call that waits for a human, who asks something else; its result comes too late."""
        if last_user(self.history) is None:
            return
        self.text(0)
        self.add(
            AIMessage(
                "",
                tool_calls=[{"name": "read", "args": {}, "id": f"late{self.serial}"}],
            )
        )
        late = f"late{self.serial}"
        self.ask(chars, "")
        text = self.text(40)
        self.add(ToolMessage(text, tool_call_id=late))
        self.late.add(self.history[-1].id)

    def answer(self, chars):
        if last_user(self.history) is None:
            return
        text = self.text(chars)
        self.add(AIMessage(text))
        state = {**self.session, "messages": self.history}
        self.keep(self.awaited("summarize", state))

    def edit(self, where, chars):
        if self.history:
            index = where % len(self.history)
            self.history[index] = self.history[index].model_copy(
                update={"content": self.text(chars)}
            )
            self.rewritten = True

    def remove(self, where):
        if self.history:
            removed = self.history.pop(where % len(self.history))
            calls = {call["id"] for call in getattr(removed, "tool_calls", [])}
            self.late |= {
                m.id
                for m in self.history
                if m.type == "tool" and m.tool_call_id in calls
            }
            self.rewritten = True

    def fork(self, where):
        """Go back to an earlier checkpoint; what the process knows stays."""
        if self.saved:
            history, self.session = self.saved[where % len(self.saved)]
            self.history, self.rewritten, self.previous = list(history), True, None

    def finish(self, kind):
        self.writer.kind = kind
        self.jobs.finish()

    def lose(self, kind):
        self.restart()
        self.writer.kind = kind

    def awaited(self, name, state):
        return self.flow.take(name, state, self.place, is_async=self.is_async)

    def keep(self, update):
        session = {
            key: value
            for key, value in {**self.session, **update}.items()
            if key in SESSION
        }
        self.session = json.loads(json.dumps(session))
        assert self.session == session

    def request(self):
        """Take the steps before a model call and check what must hold."""
        if last_user(self.history) is None:
            return
        before, failed = self.session, set(self.jobs.ended)
        state = {**before, "messages": list(self.history)}
        try:
            update = self.awaited("prepare", state)
        except BudgetExceededError:
            self.check_refusal()
            raise
        self.keep(update)
        sent = self.flow.request({**self.session, "messages": self.history})
        self.check_request(sent)
        self.check_bookkeeping(before)
        self.check_stability(before, sent)
        self.saved.append((list(self.history), self.session))
        self.previous, self.rewritten = [payload(message) for message in sent], False
        if failed != self.jobs.ended.keys():
            return  # a failure that was noted is forgotten: whoever takes the step again, tries again
        again = {**before, **self.awaited("prepare", state), "messages": self.history}
        assert again.get("context_view") == self.session.get("context_view")
        assert [payload(m) for m in self.flow.request(again)] == self.previous

    def check_refusal(self):
        """Without any session the same history is refused as well, but for the markers of what had left."""
        fresh = self.measure({"messages": self.history})
        for limit in (self.window, self.window - MARKER_TOKENS):
            try:
                self.engine.emergency(replace(fresh, input_limit=limit))
            except BudgetExceededError:
                return
        raise AssertionError("a request was refused that would have fit")

    def check_request(self, sent):
        assert request_faults(sent) == []
        assert COUNTER(sent, tools=TOOLS) <= self.window
        question = self.history[last_user(self.history)]
        shown = next(message for message in sent if message.id == question.id)
        clamped = self.session.get("context_view", {}).get("clamped", {})
        if question.id not in clamped:
            assert shown.content == question.content

    def check_bookkeeping(self, before):
        """Every message is in the view, pinned, or counted by the record; a summary covers only what left."""
        window = self.measure({**self.session, "messages": self.history})
        view = window.session.view
        start, covered = (
            window.parts.start_of(view),
            view.covered.index if view.covered else -1,
        )
        assert covered < max(start, 1)
        self.check_record(
            window, self.measure({**before, "messages": self.history}).session.view
        )
        assert self.session.get("context_summary") or covered < 0
        # One whose messages were removed stays, and covers nothing.
        assert (
            covered >= 0 or not self.is_exact or not self.session.get("context_summary")
        )
        told, summary = {}, self.session.get("context_summary")
        while summary:
            given, summary = self.writer.origin(summary)
            told = {**given, **told}
        assert {m.id for m in self.history[: covered + 1]} <= told.keys() | self.late

    def check_record(self, window, old):
        """It counts each message that left, once, and says nothing of messages that are gone."""
        view = window.session.view
        added = dropped_positions(window.parts, old, window.view)
        back = dropped_positions(window.parts, window.view, old)
        assert view.record.messages == max(
            0, old.record.messages + len(added) - len(back)
        )
        self.is_exact = (self.is_exact and not self.rewritten) or old == View()
        if self.is_exact:
            assert view.record.messages == len(
                dropped_positions(window.parts, View(), window.view)
            )
        assert {line.source for line in view.record.lines} <= {
            message.id for message in self.history
        }

    def check_stability(self, before, sent):
        old, new = (
            View.from_json(before.get("context_view") or {}),
            View.from_json(self.session.get("context_view") or {}),
        )
        if old.start and old.start.find(self.history) is not None:
            assert new.start.index >= old.start.find(self.history)
        same = before.get("context_guard", {}).get("compactions") == self.session.get(
            "context_guard", {}
        ).get("compactions")
        if same and not self.rewritten and self.previous:
            assert [payload(message) for message in sent][
                : len(self.previous)
            ] == self.previous
