"""The scenario: an agent answers questions about half a million tokens of JSON through a small window."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.demo import ruler
from langchain_ctxwin.demo.conversation import Conversation
from langchain_ctxwin.demo.explore import OUTPUT_SHARE
from langchain_ctxwin.demo.ledger import Ledger, Recorder
from langchain_ctxwin.demo.payload import Payload
from langchain_ctxwin.demo.questions import Question
from langchain_ctxwin.demo.reader_model import ReaderModel, newest_cursor
from langchain_ctxwin.demo.result_screen import ResultScreen
from langchain_ctxwin.demo.row_questions import Inquiry, spelled
from langchain_ctxwin.demo.tally import Tally
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tool_results.stores import MemoryResultStore

SYSTEM_PROMPT = (
    "You answer questions about rows that tools return. A result that is too large is shown in part, with a cursor to "
    "read on: search it, or read only the fields that you need. Answer in one sentence, and say only what the tools "
    "returned."
)

AN_HOUR_SECONDS = 3_600.0


@dataclass(slots=True, kw_only=True)
class DemoClock:
    """The time of day, and what the scenario lets pass at once."""

    passed_seconds: float = 0.0

    def __call__(self) -> float:
        """Return seconds since the epoch."""
        return time.time() + self.passed_seconds


class RowTools:
    """The two tools of a payload; neither knows anything about windows."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload

    def tools(self) -> list[BaseTool]:
        """Return the tools; what they refuse reaches the model as a tool error."""
        functions: tuple[Any, ...] = (self.fetch_rows, self.read_row)
        return [StructuredTool.from_function(function, handle_tool_error=True) for function in functions]

    def fetch_rows(self) -> str:
        """Return all rows as JSON."""
        return self._payload.text

    def read_row(self, field: str, value: str) -> str:
        """Return the one row whose field has this value, as JSON."""
        found = next((row for row in self._payload.rows if spelled(row.get(field)) == value), None)
        if found is None:
            raise ToolException(f"there is no row whose {field} is {value!r}: fetch_rows shows what there is")
        return json.dumps(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BigResults:
    """Everything one conversation needs."""

    payload: Payload
    inquiry: Inquiry
    conversation: Conversation
    store: MemoryResultStore
    tally: Tally
    clock: DemoClock = field(default_factory=DemoClock)

    @classmethod
    def set_up(
        cls, payload: Payload, *, window_tokens: int, seed: int = 0, model: BaseChatModel | None = None
    ) -> BigResults:
        """Build the agent; without a model the offline one reads.

        Raises:
            ConfigError: the window leaves no room for input, or the payload is not larger than it.
        """
        limits = ModelLimits(window_tokens, max_output_tokens=max(1, window_tokens // OUTPUT_SHARE))
        input_limit = limits.input_limit(limits.output_reserve())
        clock = DemoClock()
        store = MemoryResultStore(clock=clock)
        guard = ToolResultGuard(store=store, clock=clock)
        tally = Tally.start(payload.text, guard.config, window_tokens=window_tokens, input_limit=input_limit)
        if tally.raw_tokens <= window_tokens:
            raise ConfigError(
                f"{payload.name} has {tally.raw_tokens:,} tokens, the window {window_tokens:,}: give a larger payload"
            )
        tools = RowTools(payload).tools()
        chat = model or ReaderModel(context_window=window_tokens, max_tokens=max(1, limits.output_reserve()))
        definitions = [convert_to_openai_tool(tool) for tool in [*tools, *guard.tools]]
        ledger = Ledger(
            input_limit=input_limit,
            fixed_tokens=ruler.text_tokens(SYSTEM_PROMPT) + ruler.FRAME_TOKENS + ruler.tools_tokens(definitions),
            has_strict_checks=model is None,
        )
        graph = create_context_agent(
            chat,
            tools,
            system_prompt=SYSTEM_PROMPT,
            limits=limits,
            guard=guard,
            checkpointer=InMemorySaver(),
        )
        return cls(
            payload=payload,
            inquiry=Inquiry(payload, seed=seed),
            conversation=Conversation(graph=graph, ledger=ledger, recorder=Recorder(ledger, definitions)),
            store=store,
            tally=tally,
            clock=clock,
        )

    @property
    def ledger(self) -> Ledger:
        """What was sent, and what came of it."""
        return self.conversation.ledger

    @property
    def failures(self) -> list[str]:
        """Checks that did not hold, one line each."""
        return [*self.ledger.failures, *self.tally.failures]

    def headlines(self, model_name: str | None) -> Iterator[str]:
        """Yield the opening lines."""
        size = f"{len(self.payload.rows):,} rows, {self.tally.raw_tokens:,} tokens"
        who = model_name or "An offline model"
        yield f"{who} answers questions about {self.payload.name}: {size} in one tool result"
        limit, window = self.ledger.input_limit, self.tally.window_tokens
        yield f"Window {window:,} tokens = {limit:,} for the request + {window - limit:,} for the answer"

    def play(self, screen: ResultScreen) -> Ledger:
        """Ask all questions.

        Raises:
            BudgetExceededError: the window is too small for what every request holds.
        """
        for question in self._questions(screen):
            self._turn(question, screen)
        return self.ledger

    def _questions(self, screen: ResultScreen) -> Iterator[Question]:
        yield self.inquiry.opening()
        yield from self.inquiry.questions()
        cursor = newest_cursor(self.conversation.history)
        if cursor:  # a real model may have found another way
            yield self.inquiry.borrowed(changed(cursor))
        self.clock.passed_seconds += AN_HOUR_SECONDS
        screen.remarked("An hour passes. Results are kept for ten minutes after they were last read.")
        yield self.inquiry.later()
        yield self.inquiry.closing()

    def _turn(self, question: Question, screen: ResultScreen) -> None:
        def seen(message: AnyMessage) -> None:
            if isinstance(message, ToolMessage):
                self.tally.add(message)
                screen.showed(message)

        self.conversation.turn(question, screen, lambda answer: self.inquiry.verify(answer, question), seen)
        self.tally.store_bytes = max(self.tally.store_bytes, self.store.size_bytes)


def changed(cursor: str) -> str:
    """Return a cursor with one character of its place changed, as somebody would who wants to read elsewhere."""
    result_id, offset, rest = cursor.split(".", 2)
    return f"{result_id}.{offset[:-1]}{'1' if offset[-1] != '1' else '2'}.{rest}"
