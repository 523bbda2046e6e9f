"""How much of what a question needs can the agent still reach? The view and one recall call, on very long chats.

A message counts where its words stand in the request: as it was, or sentence by sentence in the record. Answers report
what was sent, as providers do; without that, a third of the window is kept free for counts that may be wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from common import (
    goals,
    head,
    parser_of,
    pooled,
    row,
    rows_of,
    through,
    usage_of,
)
from langchain_ctxwin import (
    ContextEngine,
    ContextNodes,
    ModelLimits,
    TokenEstimator,
    create_recall_tool,
)
from langchain_ctxwin.core.record import one_line
from langchain_ctxwin.core.standing import sentences
from langchain_ctxwin.replay.playing import keep_last

LIMIT = 8_192  # of the input
RECALL_TOKENS = 2_000
TOOL = f"the view and one recall of {RECALL_TOKENS:,} tokens"
GOALS = {"the view": 0.22, TOOL: 0.82}  # share of the evidence within reach

HELD_OUT = {"locomo-conv-41"}
"""Conversations that were not looked at while tuning."""

LABEL = re.compile(r"^\[#(\d+), [^\]\n]*\]$", re.MULTILINE)
"""The label of a message, or of a part of one."""

State = dict[str, Any]
Shown = list[tuple[str, str]]
"""Ids of messages, and texts of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    messages: list[AnyMessage]
    questions: list[tuple[str, Shown]]
    """With their evidence: what of which messages has to be shown."""


def load(data: Path) -> Iterator[Conversation]:
    for path in sorted((data / "memory_qa").glob("*.jsonl.gz")):
        for found in rows_of(path):
            messages = list(map(_message, found["messages"]))
            said = {message.id: message.content.strip() for message in messages}
            questions = [
                (
                    row["q"],
                    [(key, said[key]) for key in map(message_id, row["evidence"])],
                )
                for row in found["questions"]
                if row["evidence"]
            ]
            yield Conversation(name=found["id"], messages=messages, questions=questions)


def message_id(mid: object) -> str:
    """An id as LangGraph gives: the labels of an answer cost tokens, so short ones would flatter."""
    return str(uuid5(NAMESPACE_OID, str(mid)))


def _message(row: dict[str, Any]) -> AnyMessage:
    kind = HumanMessage if row["role"] == "user" else AIMessage
    return kind(row["content"], id=message_id(row["mid"]), name=row.get("name"))


def fed(nodes: ContextNodes, messages: list[AnyMessage]) -> State:
    """The state after a conversation that came turn by turn."""
    state: State = {"messages": []}
    count = TokenEstimator()
    for message in messages:
        is_answer = isinstance(message, AIMessage)
        if is_answer and state["messages"]:
            state = through(nodes, state)
            message.usage_metadata = usage_of(count(state["llm_input_messages"]))
        state = {**state, "messages": [*state["messages"], message]}
        if is_answer:
            state |= nodes.maybe_summarize.invoke(state)
    return state


def newest(messages: list[AnyMessage]) -> list[AnyMessage]:
    """The newest messages that fit."""
    count = TokenEstimator()
    frame = count([])
    return keep_last(LIMIT - frame, lambda one: count([one]) - frame)(messages)


def recalled(state: State, query: str) -> Shown:
    """What one call of the tool returns."""
    call = {"name": "recall", "args": {"query": query}, "id": "recall-1"}
    calling = AIMessage("", tool_calls=[call], id="calling")
    messages = [*state["messages"], calling]
    tool = create_recall_tool(max_tokens=RECALL_TOKENS)
    runtime = SimpleNamespace(state={**state, "messages": messages}, store=None)
    page = tool.func(runtime, query=query)
    assert TokenEstimator().count_text(page) <= RECALL_TOKENS
    _, *pieces = LABEL.split(page)
    return [
        (messages[int(number)].id, text)
        for number, text in zip(pieces[::2], pieces[1::2], strict=True)
    ]


def reach(nodes: ContextNodes, state: State, question: str) -> dict[str, Shown]:
    """What each way of remembering shows."""
    history, asked = state["messages"], HumanMessage(question, id="question")
    built = through(nodes, {**state, "messages": [*history, asked]})
    request = one_line(
        " ".join(message.text for message in built["llm_input_messages"])
    )
    view = [
        (message.id, message.content)
        for message in history
        if all(one_line(one) in request for one in sentences(message.content))
    ]
    return {
        "the newest messages": [(m.id, m.content) for m in newest([*history, asked])],
        "the view": view,
        TOOL: [*view, *recalled(built, question)],
    }


def measure(chat: Conversation) -> tuple[Conversation, Counter[str]]:
    """Count the evidence of all questions, and what of it each way shows."""
    # The input limit is what is compared; a window this much larger leaves room for the answer beside it.
    limits = ModelLimits(context_window=2 * LIMIT, max_input_tokens=LIMIT)
    nodes, found = ContextNodes(ContextEngine(limits)), Counter[str]()
    state = fed(nodes, chat.messages)
    for question, evidence in chat.questions:
        found[""] += len(evidence)
        for way, shown in reach(nodes, state, question).items():
            found[way] += sum(
                any(at == key and text in part for at, part in shown)
                for key, text in evidence
            )
    return chat, found


def report(rows: list[tuple[Conversation, Counter[str]]]) -> None:
    total = sum((found for _, found in rows), Counter[str]())
    held = sum((found for chat, found in rows if chat.name in HELD_OUT), Counter[str]())
    columns = {"chats": total, "kept aside while tuning": held}
    print(
        f"{len(rows)} conversations, input limit {LIMIT:,}: share of the evidence within reach"
    )
    head("", *columns)
    for way in [name for name in rows[0][1] if name]:
        cells = (f"{found[way] / max(1, found['']):.3f}" for found in columns.values())
        row(way, *cells)
    shares = {way: total[way] / max(1, total[""]) for way in GOALS}
    goals(
        (share >= GOALS[way], f"chats, {way} {share:.3f}: at least {GOALS[way]}")
        for way, share in shares.items()
    )


def main() -> None:
    parser = parser_of(__doc__, "memory_qa/*.jsonl.gz", needs_data=True)
    parser.add_argument(
        "--chats", type=int, help="measure only the first so many; all without it"
    )
    options = parser.parse_args()
    chats = [*load(options.data)][: options.chats]
    report(list(pooled(measure, chats)))


if __name__ == "__main__":
    main()
