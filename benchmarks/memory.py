"""How much of what a question needs can the agent still reach? The view and one recall call, on very long chats."""

from __future__ import annotations

import argparse
import gzip
import json
import logging
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

import structlog
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits, TokenEstimator
from langchain_ctxwin.recall import create_recall_tool, handles, search_messages
from langchain_ctxwin.text import query_terms, statement_spans, terms

RECALL_TOKENS = 2_000
OTHER_RECALL_TOKENS = (500, 1_000, 4_000)
API = f"search_messages, excerpts, {RECALL_TOKENS}"
TOOL = f"view + recall tool, {RECALL_TOKENS}"
GOALS = {"chats": 0.82, "long messages": 0.75, "BEAM": 0.75}
"""Share of the evidence within reach: of short messages, of the same in long messages, of long answers."""

FACTS = {
    "BEAM": {
        "contradiction_resolution",
        "information_extraction",
        "knowledge_update",
        "multi_session_reasoning",
        "temporal_reasoning",
    }
}
"""Questions that name what they ask for. BEAM's others ask for a summary, for the order of everything, or to follow a
wish that they do not mention: they are printed, and not part of the goal."""

HELD_OUT = {"locomo-conv-41", *(f"beam-{number}" for number in range(11, 21))}
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
    kind: str
    evidence: list[tuple[str, str]]
    """Ids of messages, and what of each has to be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    group: str
    messages: list[AnyMessage]
    questions: list[Question]


def load(data: Path, *, with_times: bool) -> Iterator[Conversation]:
    for path in sorted((data / "memory_qa").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            chat = conversation(
                row["id"], "chats", [_message(m, with_times) for m in row["messages"]], row["questions"]
            )
            yield chat
            yield in_long_messages(chat)


def load_beam(chats: Path) -> Iterator[Conversation]:
    """BEAM's published folders: a chat and the questions about it in each."""
    for folder in sorted(chats.iterdir()):
        shortened = folder / "chat_trunecated.json"
        path = shortened if shortened.exists() else folder / "chat.json"
        rows = [row for batch in json.loads(path.read_text()) for turn in batch["turns"] for row in turn]
        # A number of the plan stands behind what the user says.
        messages = [_message({**row, "mid": row["id"], "content": row["content"].split(" ->-> ")[0]}) for row in rows]
        found = json.loads((folder / "probing_questions" / "probing_questions.json").read_text())
        questions = [
            {
                "q": row["question"],
                "type": kind,
                "evidence": list(dict.fromkeys(numbers(row.get("source_chat_ids")))),
                "answer": " ".join([str(row.get("answer", "")), *row.get("rubric", [])]),
            }
            for kind, rows in found.items()
            for row in rows
        ]
        yield conversation(f"beam-{folder.name}", "BEAM", messages, questions)


def numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)


def conversation(name: str, group: str, messages: list[AnyMessage], rows: list[dict[str, Any]]) -> Conversation:
    by_id = {message.id: message.content for message in messages}
    having = Counter(term for text in by_id.values() for term in set(terms(text)))
    questions = [
        Question(
            text=row["q"],
            kind=row.get("type", ""),
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
    return max(spans, key=lambda part: sum(1 / math.log1p(having[t]) for t in wanted.intersection(terms(part)))).strip()


def in_long_messages(chat: Conversation) -> Conversation:
    """The same conversation in messages of hundreds of tokens, by user and assistant in turn."""
    price, messages, lines, place = TokenEstimator().count_text, list[AnyMessage](), list[str](), dict[str, str]()
    for message in chat.messages:
        lines.append(f"{message.name or message.type}: {message.content}")
        place[message.id] = message_id(f"{chat.name}/{len(messages)}")
        if price("\n".join(lines)) >= LONG_TOKENS[len(messages) % len(LONG_TOKENS)] or message is chat.messages[-1]:
            kind = AIMessage if len(messages) % 2 else HumanMessage
            messages.append(kind("\n".join(lines), id=place[message.id]))
            lines = []
    questions = [
        Question(text=q.text, kind=q.kind, evidence=[(place[key], text) for key, text in q.evidence])
        for q in chat.questions
    ]
    return Conversation(name=chat.name, group="long messages", messages=messages, questions=questions)


def message_id(mid: object) -> str:
    """An id as LangGraph gives: the labels of an answer cost tokens, so short ones would flatter."""
    return str(uuid5(NAMESPACE_OID, str(mid)))


def _message(row: dict[str, Any], with_times: bool = False) -> AnyMessage:
    text = f"[{row['time']}] {row['content']}" if with_times and row.get("time") else row["content"]
    kind = HumanMessage if row["role"] == "user" else AIMessage
    return kind(text, id=message_id(row["mid"]), name=row.get("name"))


class Agent:
    """Feeds a conversation through the nodes turn by turn, as an agent would, and builds requests."""

    def __init__(self, limit: int) -> None:
        # The input limit is what is compared; a window this much larger leaves room for the answer beside it.
        self.nodes = ContextNodes(ContextEngine(ModelLimits(context_window=2 * limit, max_input_tokens=limit)))

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
    asked = {**state, "messages": [*state["messages"], AIMessage("", tool_calls=[call], id="calling")]}
    tool = create_recall_tool(max_tokens=max_tokens)
    page = tool.func(SimpleNamespace(state=asked, store=None), query=query)
    assert TokenEstimator().count_text(page) <= max_tokens
    named = dict(zip(handles(asked["messages"]), asked["messages"], strict=True))
    _, *pieces = LABEL.split(page)
    return texts((named[handle].id, text) for handle, text in zip(pieces[::2], pieces[1::2], strict=True))


def texts(pairs: Iterable[tuple[str, str]]) -> Shown:
    shown = defaultdict(list)
    for key, text in pairs:
        shown[key].append(text)
    return shown


def reach(agent: Agent, state: State, question: str, limit: int, spent: Counter[str]) -> dict[str, list[Shown]]:
    """What each way of remembering shows."""
    history, asked = state["messages"], HumanMessage(question, id="question")
    built = agent.request({**state, "messages": [*history, asked]})
    said = {message.id: message.content for message in history}
    seen = {message.id for message in built["llm_input_messages"] if said.get(message.id) == message.content}
    view = texts((key, said[key]) for key in seen)
    began = time.perf_counter()
    found = search_messages(history, question, max_tokens=RECALL_TOKENS)
    spent["search_messages"] += time.perf_counter() - began
    excerpts = texts((excerpt.message.id, excerpt.text) for excerpt in found.excerpts)
    ways = {
        "keep last": [texts((key, said[key]) for key in keep_last([*history, asked], limit) - {"question"})],
        "view only": [view],
        f"search_messages, whole messages, {RECALL_TOKENS}": [
            texts((message.id, message.content) for message in found)
        ],
        API: [excerpts],
        f"view + search_messages, excerpts, {RECALL_TOKENS}": [view, excerpts],
    }
    began = time.perf_counter()
    ways[TOOL] = [view, recalled(built, question, RECALL_TOKENS)]
    spent["recall tool"] += time.perf_counter() - began
    for tokens in OTHER_RECALL_TOKENS:
        ways[f"view + recall tool, {tokens}"] = [view, recalled(built, question, tokens)]
    return ways


Row = tuple[Conversation, Counter[tuple[str, str, str]], Counter[str]]


def measure(job: tuple[Conversation, int]) -> Row:
    chat, limit = job
    agent, found, spent = Agent(limit), Counter(), Counter()
    state = agent.feed(chat.messages)
    for question in chat.questions:
        found["texts", "", question.kind] += len(question.evidence)
        found["questions", "", question.kind] += 1
        for way, places in reach(agent, state, question.text, limit, spent).items():
            hits = [
                any(text in shown for place in places for shown in place.get(key, ()))
                for key, text in question.evidence
            ]
            found["texts", way, question.kind] += sum(hits)
            found["questions", way, question.kind] += all(hits)
    return chat, found, spent


def share(found: Counter[tuple[str, str, str]], unit: str, way: str, kinds: set[str] | None = None) -> float:
    def total(which: str) -> int:
        return sum(n for (u, w, k), n in found.items() if (u, w) == (unit, which) and (kinds is None or k in kinds))

    return total(way) / max(1, total(""))


def report(group: str, rows: list[Row]) -> None:
    held = sum((found for chat, found, _ in rows if chat.name in HELD_OUT), Counter())
    tuned = sum((found for chat, found, _ in rows if chat.name not in HELD_OUT), Counter())
    everything, facts = held + tuned, FACTS.get(group)
    ways = list(dict.fromkeys(way for _, way, _ in everything if way))
    groups = [("all", everything), ("held out", held), ("others", tuned)]
    print(f"\n{group}: {len(rows)} conversations")
    for unit, label in (("texts", "evidence within reach"), ("questions", "questions with all evidence")):
        print(f"\n{label + (', facts' if facts else ''):48}" + "".join(f"{name:>12}" for name, _ in groups))
        for way in ways:
            print(f"  {way:46}" + "".join(f"{share(found, unit, way, facts):>12.3f}" for _, found in groups))
    kinds = sorted({kind for _, _, kind in everything})
    print(f"\n{'evidence within reach, by question type':48}" + "".join(f"{kind[:12]:>13}" for kind in kinds))
    for way in ways:
        print(f"  {way:46}" + "".join(f"{share(everything, 'texts', way, {kind}):>13.3f}" for kind in kinds))
    count = sum(len(chat.questions) for chat, _, _ in rows)
    spent = sum((spent for _, _, spent in rows), Counter())
    print(
        "\n" + ", ".join(f"{name} {1000 * seconds / count:.0f} ms" for name, seconds in spent.items()) + " per question"
    )
    for way in (API, TOOL):
        figure, other = share(everything, "texts", way, facts), share(held, "texts", way, facts)
        verdict = "reached" if figure >= GOALS[group] else "missed"
        print(f"goal {GOALS[group]}, {way}: {figure:.3f}, {verdict} (held out {other:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with memory_qa/*.jsonl.gz")
    parser.add_argument("--beam", type=Path, help="folder of chats of one size as BEAM publishes them: chats/100K")
    parser.add_argument("--limit", type=int, default=8_192, help="input limit in tokens")
    parser.add_argument("--times", action="store_true", help="put the time of its session before each message")
    parser.add_argument("--chats", type=int, help="measure only the first so many; all without it")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began = time.perf_counter()
    chats = [*load(options.data, with_times=options.times), *(load_beam(options.beam) if options.beam else ())]
    chats = chats[: options.chats]
    times = "with" if options.times else "without"
    print(f"{len(chats)} conversations, {times} session times, input limit {options.limit:,}, default configuration")
    with multiprocessing.Pool(os.cpu_count()) as pool:
        rows = pool.map(measure, [(chat, options.limit) for chat in chats], chunksize=1)
    for group in dict.fromkeys(chat.group for chat, _, _ in rows):
        report(group, [row for row in rows if row[0].group == group])
    print(f"{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
