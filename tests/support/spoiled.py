"""Short conversations in a small window, whose summarizer and store a test spoils."""

import asyncio
import threading

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits
from langchain_ctxwin.core.record import RECORD_ID
from langchain_ctxwin.core.view import VIEW
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.testing import request_faults
from support.agents import THREAD
from support.fakes import ScriptedChatModel, exact_count
from support.graphs import chat_on

WINDOW = 450
WORDS = "lorem ipsum dolor sit amet " * 6
PATIENCE = 20.0  # of what waits for a thread; nothing here takes a second
SUMMARY = "A short summary."


class Writer:
    """A summarizer that does one thing, right or wrong, when its gate lets it."""

    def __init__(self, text=f"{SUMMARY} Part {{}}.", *, gate=None):
        self.text, self.gate = text, gate
        self.given = []
        """The texts of the messages of each call, and the summary before them."""
        self.called = threading.Event()

    def summarize(self, messages, *, previous, max_tokens):
        self.given.append(([message.content for message in messages], previous))
        self.called.set()
        if self.gate:
            assert self.gate.wait(PATIENCE)
        if isinstance(self.text, BaseException):
            raise self.text
        return self.text and self.text.format(len(self.given))


def engine_of(writer, jobs=None, *, window=WINDOW, **config):
    settings = ContextConfig(**{"output_reserve": 0, "pin_first_user": False, **config})
    limits = ModelLimits(context_window=window)
    return ContextEngine(
        limits, exact_count, writer, settings, jobs=jobs or SummaryJobs()
    )


class Chat:
    """A conversation on the nodes, one question and answer at a time."""

    def __init__(
        self, writer, *, jobs=None, window=WINDOW, store=None, saver=None, **config
    ):
        self.jobs = jobs or SummaryJobs()
        self.model = ScriptedChatModel(input_limit=window)
        engine = engine_of(writer, self.jobs, window=window, **config)
        self.graph = chat_on(
            engine, self.model, checkpointer=saver or InMemorySaver(), store=store
        )

    @property
    def state(self):
        return self.graph.get_state(THREAD).values

    def ask(self, count=1, *, is_async=False, drain=True):
        """Ask so many questions, letting the summaries finish in between or not; return what was reported."""
        events = []
        for _ in range(count):
            streamed = self.graph.stream(self.question, THREAD, stream_mode="custom")
            events += asyncio.run(self.heard()) if is_async else streamed
            if drain:
                self.jobs.drain(PATIENCE)
        return [event["type"].removeprefix("context.") for event in events]

    async def heard(self):
        return [
            event
            async for event in self.graph.astream(
                self.question, THREAD, stream_mode="custom"
            )
        ]

    @property
    def question(self):
        number = len(self.state.get("messages", ())) // 2
        return {"messages": [HumanMessage(f"question {number} {WORDS}")]}

    def until(self, is_reached):
        """Ask while the summarizer writes, until a function of the events says so."""
        for _ in range(40):
            if is_reached(self.ask(drain=False)):
                return self
        raise AssertionError("not reached in 40 questions")

    @property
    def left(self):
        """How many messages the record counts."""
        return (
            (self.state.get("context_record") or {}).get("left", {}).get("messages", 0)
        )

    @property
    def account(self):
        """What the last request says of messages that left."""
        return next(
            (m.content for m in self.model.requests[-1].messages if m.id == RECORD_ID),
            "",
        )

    @property
    def refusals(self):
        return [
            r.refused
            for r in self.model.requests
            if r.refused or request_faults(list(r.messages))
        ]

    def check(self, turns):
        """Every turn was answered, every request was valid and held its question, no message is gone."""
        state, requests = (
            self.state,
            [list(request.messages) for request in self.model.requests],
        )
        assert [request.refused for request in self.model.requests] == [False] * turns
        assert [request_faults(request) for request in requests] == [[]] * turns
        assert [request[-1].content for request in requests] == [
            f"question {n} {WORDS}" for n in range(turns)
        ]
        assert [m.content for m in state["messages"][::2]] == [
            f"question {n} {WORDS}" for n in range(turns)
        ]
        assert len(state["messages"]) == 2 * turns
        check_record(state)


def check_record(state):
    """What is no longer shown is counted, whether a summary covers it or not, and all of it was said by somebody."""
    view = VIEW.validate_python(state["context_view"])
    before = enumerate(state["messages"][: view.start.index if view.start else 0])
    left = [message for index, message in before if index not in view.pinned]
    counts = state["context_record"]["left"]
    assert counts["messages"] == len(left)
    assert {line[2] for line in state["context_record"]["lines"]} <= {
        message.id for message in left
    }


def pairs(count, words=WORDS, first=0):
    numbers = range(first, first + count)
    said = [
        (
            HumanMessage(f"q{n} {words}", id=f"q{n}"),
            AIMessage(f"a{n} {words}", id=f"a{n}"),
        )
        for n in numbers
    ]
    return [
        *(m for pair in said for m in pair),
        HumanMessage("go on", id=f"last{first + count}"),
    ]
