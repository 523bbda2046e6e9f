"""One thread of an agent's graph, played question by question in front of a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph.state import CompiledStateGraph

from langchain_ctxwin.demo.checks import Verdict
from langchain_ctxwin.demo.ledger import Ledger, Recorder
from langchain_ctxwin.demo.questions import Question
from langchain_ctxwin.demo.screen import Screen

MAX_SUPERSTEPS = 1_000
"""Graph steps of one turn, about 250 model calls: a real model that never answers is stopped."""

THREAD = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Runs turns, and keeps the books of them."""

    graph: CompiledStateGraph[Any, Any, Any, Any]
    ledger: Ledger
    recorder: Recorder

    def turn(
        self,
        question: Question,
        screen: Screen,
        verify: Callable[[str], Verdict],
        seen: Callable[[AnyMessage], None] = lambda _: None,
    ) -> None:
        """Run the graph for one question and check the answer.

        Args:
            question: what is asked.
            screen: shows what happens.
            verify: checks the answer.
            seen: hears of every message that is written.
        """
        screen.asked(len(self.ledger.verdicts) + 1, question.text)
        answer = ""
        for mode, chunk in self._stream(question):
            if mode == "custom":
                self.ledger.count_event(chunk)
                screen.happened(chunk)
                continue
            for update in filter(None, chunk.values()):
                answer = self._took(update, screen, seen) or answer
        verdict = verify(answer)
        self.ledger.verdicts.append(verdict)
        screen.answered(answer, verdict, is_strict=self.ledger.has_strict_checks)

    @property
    def history(self) -> list[AnyMessage]:
        """All messages so far."""
        messages: list[AnyMessage] = self.graph.get_state({"configurable": {"thread_id": THREAD}}).values["messages"]
        return messages

    def _stream(self, question: Question) -> Iterator[Any]:
        message = HumanMessage(question.text)
        self.ledger.add(message)
        config: Any = {"configurable": {"thread_id": THREAD}, "callbacks": [self.recorder]}
        config["recursion_limit"] = MAX_SUPERSTEPS
        yield from self.graph.stream({"messages": [message]}, config, stream_mode=["custom", "updates"])

    def _took(self, update: dict[str, Any], screen: Screen, seen: Callable[[AnyMessage], None]) -> str:
        """Note what one node wrote; return the text of a message of the model."""
        screen.measured(update.get("context_report"))
        text = ""
        for message in update.get("messages", ()):
            self.ledger.add(message)
            if isinstance(message, AIMessage):
                screen.stepped(self.ledger, message)
                text = message.text
            seen(message)
        return text
