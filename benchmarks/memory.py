"""How much of what a question needs can the agent still reach? The view and one recall call, on very long chats."""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import structlog
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits, TokenEstimator
from langchain_ctxwin.recall import create_recall_tool, handles, search_messages

GOAL = 0.85
RECALL_TOKENS = 2_000
OTHER_RECALL_TOKENS = (500, 1_000, 4_000)
WHOLE = re.compile(r"^\[(\S+), [^\]\n]*turn \d+\]$", re.MULTILINE)
"""The label of a message that is shown whole; one that is shown in part says so behind the turn."""

State = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    messages: list[AnyMessage]
    questions: list[dict[str, Any]]


def load(data: Path, *, with_times: bool) -> list[Conversation]:
    paths = sorted((data / "memory_qa").glob("*.jsonl.gz"))
    rows = [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [
        Conversation(
            name=row["id"], messages=[_message(m, with_times) for m in row["messages"]], questions=row["questions"]
        )
        for row in rows
    ]


def message_id(mid: str) -> str:
    """An id as LangGraph gives: the labels of an answer cost tokens, so short ones would flatter."""
    return str(uuid5(NAMESPACE_OID, mid))


def _message(row: dict[str, Any], with_times: bool) -> AnyMessage:
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


def recalled(state: State, query: str, max_tokens: int) -> set[str]:
    """Ids of the messages that one call of the tool returns whole."""
    call = {"name": "recall", "args": {"query": query}, "id": "recall-1"}
    asked = {**state, "messages": [*state["messages"], AIMessage("", tool_calls=[call], id="calling")]}
    tool = create_recall_tool(max_tokens=max_tokens)
    page = tool.func(SimpleNamespace(state=asked), query=query)
    assert TokenEstimator().count_text(page) <= max_tokens
    named = dict(zip(handles(asked["messages"]), asked["messages"], strict=True))
    return {named[handle].id for handle in WHOLE.findall(page)}


def reach(agent: Agent, state: State, question: str, limit: int) -> dict[str, set[str]]:
    """What each way of remembering reaches, as ids."""
    history, asked = state["messages"], HumanMessage(question, id="question")
    built = agent.request({**state, "messages": [*history, asked]})
    said = {message.id: message.content for message in history}
    view = {message.id for message in built["llm_input_messages"] if said.get(message.id) == message.content}
    everything = {m.id for m in search_messages(history, question, max_tokens=RECALL_TOKENS)}
    ways = {
        "keep last": keep_last([*history, asked], limit),
        "view only": view,
        f"search_messages only, {RECALL_TOKENS}": everything,
        f"view + search_messages of everything, {RECALL_TOKENS}": view | everything,
    }
    for tokens in (RECALL_TOKENS, *OTHER_RECALL_TOKENS):
        ways[f"view + recall tool, {tokens}"] = view | recalled(built, question, tokens)
    return ways


def measure(job: tuple[Conversation, int]) -> tuple[str, Counter[tuple[str, str, str]]]:
    conversation, limit = job
    agent, found = Agent(limit), Counter()
    state = agent.feed(conversation.messages)
    for question in conversation.questions:
        evidence = [message_id(mid) for mid in question["evidence"]]
        if not evidence:
            continue
        kind = question.get("type", "")
        found["messages", "", kind] += len(evidence)
        found["questions", "", kind] += 1
        for way, ids in reach(agent, state, question["q"], limit).items():
            hits = sum(mid in ids for mid in evidence)
            found["messages", way, kind] += hits
            found["questions", way, kind] += hits == len(evidence)
    return conversation.name, found


def share(found: Counter[tuple[str, str, str]], unit: str, way: str, kind: str | None = None) -> float:
    def total(which: str) -> int:
        return sum(n for (u, w, k), n in found.items() if (u, w) == (unit, which) and kind in {None, k})

    return total(way) / max(1, total(""))


def report(rows: list[tuple[str, Counter[tuple[str, str, str]]]], held_out: str) -> None:
    everything = sum((found for _, found in rows), Counter())
    tuned = sum((found for name, found in rows if name != held_out), Counter())
    held = sum((found for name, found in rows if name == held_out), Counter())
    ways = list(dict.fromkeys(way for _, way, _ in everything if way))
    groups = [("all", everything), ("held out", held), ("others", tuned)]
    for unit, label in (("messages", "evidence messages reachable"), ("questions", "questions with all evidence")):
        print(f"\n{label:48}" + "".join(f"{name:>12}" for name, _ in groups))
        for way in ways:
            print(f"  {way:46}" + "".join(f"{share(found, unit, way):>12.3f}" for _, found in groups))
    kinds = sorted({kind for _, _, kind in everything})
    print(f"\n{'evidence messages reachable, by question type':48}" + "".join(f"{kind:>13}" for kind in kinds))
    for way in ways:
        print(f"  {way:46}" + "".join(f"{share(everything, 'messages', way, kind):>13.3f}" for kind in kinds))
    figure = share(everything, "messages", f"view + recall tool, {RECALL_TOKENS}")
    print(f"\ngoal {GOAL}: {figure:.3f}, {'reached' if figure >= GOAL else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with memory_qa/*.jsonl.gz")
    parser.add_argument("--limit", type=int, default=8_192, help="input limit in tokens")
    parser.add_argument("--times", action="store_true", help="put the time of its session before each message")
    parser.add_argument("--held-out", default="locomo-conv-41", help="conversation that was not looked at while tuning")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began = time.perf_counter()
    jobs = [(conversation, options.limit) for conversation in load(options.data, with_times=options.times)]
    times = "with" if options.times else "without"
    print(f"{len(jobs)} conversations, {times} session times, input limit {options.limit:,}, default configuration")
    with multiprocessing.Pool(os.cpu_count()) as pool:
        report(pool.map(measure, jobs, chunksize=1), options.held_out)
    print(f"{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
