"""How much of what a question needs can the agent still reach? The view and one recall call, on very long chats."""

from __future__ import annotations

import argparse
import gzip
import json
import math
import multiprocessing
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits, TokenEstimator
from langchain_ctxwin.recall import create_recall_tool, handles, search_messages
from langchain_ctxwin.text import query_terms, statement_spans, terms
from transcripts import quiet

RECALL_TOKENS = 2_000
TOOL = f"the view and one recall of {RECALL_TOKENS:,} tokens"
GOALS = {"chats": 0.82, "long messages": 0.75}
"""Share of the evidence within reach: of short messages, of the same in long messages."""

HELD_OUT = {"locomo-conv-41"}
"""Conversations that were not looked at while tuning."""

LONG_TOKENS = (300, 600, 900, 1_200, 1_500)
"""Sizes of the messages into which neighboring ones are put together, in turn."""

SENTENCE_CHARS = 1_200
"""Of a longer evidence message the statement that says most of the answer has to be shown."""

LABEL = re.compile(r"^\[(\S+), [^\]\n]*turn \d+(?:, \d+-\d+ of \d+)?\]$", re.MULTILINE)
"""The label of a message, or of a part of one."""

State = dict[str, Any]
Shown = Mapping[str, list[str]]
"""Texts that are shown, by the id of their message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    evidence: list[tuple[str, str]]
    """Ids of messages, and what of each has to be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    group: str
    messages: list[AnyMessage]
    questions: list[Question]


def load(data: Path) -> Iterator[Conversation]:
    for path in sorted((data / "memory_qa").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            chat = conversation(
                row["id"],
                "chats",
                [_message(m) for m in row["messages"]],
                row["questions"],
            )
            yield chat
            yield in_long_messages(chat)


def conversation(
    name: str, group: str, messages: list[AnyMessage], rows: list[dict[str, Any]]
) -> Conversation:
    by_id = {message.id: message.content for message in messages}
    having = Counter(term for text in by_id.values() for term in set(terms(text)))
    questions = [
        Question(
            text=row["q"],
            evidence=[
                (key, needed(by_id[key], f"{row['q']} {row.get('answer', '')}", having))
                for key in map(message_id, row["evidence"])
            ],
        )
        for row in rows
        if row["evidence"]
    ]
    return Conversation(name=name, group=group, messages=messages, questions=questions)


def needed(text: str, about: str, having: Counter[str]) -> str:
    """Return what of an evidence message has to be shown: all of it, or the statement that says most of the answer."""
    if len(text) <= SENTENCE_CHARS:
        return text.strip()
    wanted = set(query_terms(about))
    spans = [text[slice(*span)] for span in statement_spans(text, 0, len(text))]
    return max(
        spans,
        key=lambda part: sum(
            1 / math.log1p(having[t]) for t in wanted.intersection(terms(part))
        ),
    ).strip()


def in_long_messages(chat: Conversation) -> Conversation:
    """The same conversation in messages of hundreds of tokens, by user and assistant in turn."""
    price, messages, lines, place = (
        TokenEstimator().count_text,
        list[AnyMessage](),
        list[str](),
        dict[str, str](),
    )
    for message in chat.messages:
        lines.append(f"{message.name or message.type}: {message.content}")
        place[message.id] = message_id(f"{chat.name}/{len(messages)}")
        if (
            price("\n".join(lines)) >= LONG_TOKENS[len(messages) % len(LONG_TOKENS)]
            or message is chat.messages[-1]
        ):
            kind = AIMessage if len(messages) % 2 else HumanMessage
            messages.append(kind("\n".join(lines), id=place[message.id]))
            lines = []
    questions = [
        Question(text=q.text, evidence=[(place[key], text) for key, text in q.evidence])
        for q in chat.questions
    ]
    return Conversation(
        name=chat.name, group="long messages", messages=messages, questions=questions
    )


def message_id(mid: object) -> str:
    """An id as LangGraph gives: the labels of an answer cost tokens, so short ones would flatter."""
    return str(uuid5(NAMESPACE_OID, str(mid)))


def _message(row: dict[str, Any]) -> AnyMessage:
    kind = HumanMessage if row["role"] == "user" else AIMessage
    return kind(row["content"], id=message_id(row["mid"]), name=row.get("name"))


class Agent:
    """Feeds a conversation through the nodes turn by turn, as an agent would, and builds requests."""

    def __init__(self, limit: int) -> None:
        # The input limit is what is compared; a window this much larger leaves room for the answer beside it.
        self.nodes = ContextNodes(
            ContextEngine(ModelLimits(context_window=2 * limit, max_input_tokens=limit))
        )

    def feed(self, messages: list[AnyMessage]) -> State:
        state: State = {"messages": []}
        for message in messages:
            if isinstance(message, AIMessage) and state["messages"]:
                state = self.request(state)
            state = {**state, "messages": [*state["messages"], message]}
            if isinstance(message, AIMessage):
                state |= self.nodes.maybe_summarize.invoke(state)
        return state

    def request(self, state: State) -> State:
        state = {**state, **self.nodes.budget_check.invoke(state)}
        for _ in range(2):
            if (node := self.nodes.route_on_budget(state)) == "build_messages":
                break
            state |= getattr(self.nodes, node).invoke(state) | {"context_pending": {}}
        return state | self.nodes.build_messages.invoke(state)


def keep_last(messages: list[AnyMessage], limit: int) -> set[str]:
    """Ids of the newest messages that fit."""
    count = TokenEstimator()
    tokens, kept = count([]), set()
    for message in reversed(messages):
        tokens += count([message]) - count([])
        if tokens > limit:
            break
        kept.add(message.id)
    return kept


def recalled(state: State, query: str, max_tokens: int) -> Shown:
    """What one call of the tool returns."""
    call = {"name": "recall", "args": {"query": query}, "id": "recall-1"}
    asked = {
        **state,
        "messages": [
            *state["messages"],
            AIMessage("", tool_calls=[call], id="calling"),
        ],
    }
    tool = create_recall_tool(max_tokens=max_tokens)
    page = tool.func(SimpleNamespace(state=asked, store=None), query=query)
    assert TokenEstimator().count_text(page) <= max_tokens
    named = dict(zip(handles(asked["messages"]), asked["messages"], strict=True))
    _, *pieces = LABEL.split(page)
    return texts(
        (named[handle].id, text)
        for handle, text in zip(pieces[::2], pieces[1::2], strict=True)
    )


def texts(pairs: Iterable[tuple[str, str]]) -> Shown:
    shown = defaultdict(list)
    for key, text in pairs:
        shown[key].append(text)
    return shown


def reach(
    agent: Agent, state: State, question: str, limit: int
) -> dict[str, list[Shown]]:
    """What each way of remembering shows."""
    history, asked = state["messages"], HumanMessage(question, id="question")
    built = agent.request({**state, "messages": [*history, asked]})
    said = {message.id: message.content for message in history}
    seen = {
        message.id
        for message in built["llm_input_messages"]
        if said.get(message.id) == message.content
    }
    view = texts((key, said[key]) for key in seen)
    found = search_messages(history, question, max_tokens=RECALL_TOKENS)
    return {
        "the newest messages": [
            texts(
                (key, said[key])
                for key in keep_last([*history, asked], limit) - {"question"}
            )
        ],
        "the view": [view],
        "`search_messages` alone": [
            texts((excerpt.message.id, excerpt.text) for excerpt in found.excerpts)
        ],
        TOOL: [view, recalled(built, question, RECALL_TOKENS)],
    }


Row = tuple[Conversation, Counter[str]]


def measure(job: tuple[Conversation, int]) -> Row:
    """Count the evidence of all questions, and what of it each way shows."""
    chat, limit = job
    agent, found = Agent(limit), Counter[str]()
    state = agent.feed(chat.messages)
    for question in chat.questions:
        found[""] += len(question.evidence)
        for way, places in reach(agent, state, question.text, limit).items():
            found[way] += sum(
                any(text in shown for place in places for shown in place.get(key, ()))
                for key, text in question.evidence
            )
    return chat, found


def report(rows: list[Row], limit: int) -> None:
    groups = dict.fromkeys(chat.group for chat, _ in rows)
    totals = {
        group: sum((found for chat, found in rows if chat.group == group), Counter())
        for group in groups
    }
    held = sum((found for chat, found in rows if chat.name in HELD_OUT), Counter[str]())
    columns = {**totals, "kept aside while tuning": held}
    print(
        f"{len(rows)} conversations, input limit {limit:,}: share of the evidence within reach"
    )
    print("| | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for way in [name for name in rows[0][1] if name]:
        cells = [f"{found[way] / max(1, found['']):.3f}" for found in columns.values()]
        print(f"| {way} | " + " | ".join(cells) + " |")
    for group, found in totals.items():
        figure = found[TOOL] / max(1, found[""])
        verdict = "met   " if figure >= GOALS[group] else "MISSED"
        print(f"- {verdict} {group}, {TOOL} {figure:.3f}: at least {GOALS[group]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with memory_qa/*.jsonl.gz"
    )
    parser.add_argument(
        "--limit", type=int, default=8_192, help="input limit in tokens"
    )
    parser.add_argument(
        "--chats", type=int, help="measure only the first so many; all without it"
    )
    options = parser.parse_args()
    quiet()
    began = time.perf_counter()
    chats = [*load(options.data)][: options.chats]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        report(
            pool.map(measure, [(chat, options.limit) for chat in chats], chunksize=1),
            options.limit,
        )
    print(f"\n{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
