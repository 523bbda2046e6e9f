"""Do our time per turn and our state stay flat over ten thousand turns in a small window?"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import logging
import pstats
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import structlog
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextInput,
    ContextNodes,
    ContextOutput,
    ContextState,
    ModelLimits,
    TokenEstimator,
    add_context_nodes,
)
from langchain_ctxwin.agent import nodes as agent_nodes
from langchain_ctxwin.agent.storage import RunPlace
from transcripts import Transcript, load

WINDOW = 8_192
TURNS = 10_000
GRAPH_TURNS = 1_000
BLOCKS = 10
CALL_EVERY = 4  # every fourth turn calls a tool first
MAX_CHARS = 2_000  # about 500 tokens: a turn that fits the window many times
VARIANTS = ("inline", "off", "graph")
NODES = ("budget_check", "maybe_summarize", "force_compress", "build_messages")

State = dict[str, Any]


@dataclass(slots=True)
class Watch:
    """Adds up the processor time that is ours: the fake model's is taken out, and other processes do not count."""

    seconds: float = 0.0
    by_node: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        before, began = self.seconds, time.thread_time()
        try:
            return call(*args)
        finally:
            taken = time.thread_time() - began
            inner = self.seconds - before
            self.seconds = before + taken + min(0.0, inner)
            self.by_node[name] = self.by_node.get(name, 0.0) + taken + min(0.0, inner)

    def paused(self, call: Callable[..., Any], *args: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*args)
        finally:
            self.seconds -= time.thread_time() - began


@dataclass(slots=True)
class Block:
    """What one block of turns took."""

    milliseconds: list[float]
    """Of each turn."""

    nodes: dict[str, float]
    state_bytes: list[int]
    messages: int
    compactions: int


class TimedNodes(ContextNodes):
    """The nodes under a watch."""

    def __init__(self, engine: ContextEngine, watch: Watch) -> None:
        super().__init__(engine)
        self.watch = watch
        for name in NODES:
            node = getattr(self, name)
            setattr(self, name, _Timed(node, watch))

    def model_node(self, call: Any) -> Any:
        return _Timed(super().model_node(call), self.watch)


class _Timed:
    def __new__(cls, node: Any, watch: Watch) -> Any:
        invoke = node.invoke
        node.invoke = lambda state, config=None, **_: watch.timed(node.name, invoke, state, config)
        return node


class Script:
    """Endless turns from recorded texts; every block has the same ones, so that blocks can be compared."""

    def __init__(self, transcripts: list[Transcript], block_turns: int) -> None:
        self._block_turns = block_turns
        self._texts = {kind: list(_texts(transcripts, kind)) for kind in ("human", "ai", "tool")}
        self._counter = TokenEstimator("openai")

    def text(self, kind: str, number: int) -> str:
        texts = self._texts[kind]
        return f"{number}: {texts[number % self._block_turns % len(texts)]}"

    def question(self, turn: int) -> HumanMessage:
        return HumanMessage(self.text("human", turn), id=f"q{turn}")

    def result(self, turn: int) -> ToolMessage:
        return ToolMessage(self.text("tool", turn), tool_call_id=f"c{turn}", id=f"r{turn}")

    def answer(self, turn: int, request: list[AnyMessage]) -> AIMessage:
        """Call a tool where it is the turn's first answer and a call is due; with a plausible size of the request."""
        tokens = self._counter(request)
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        asked = isinstance(request[-1], ToolMessage) or turn % CALL_EVERY
        if asked:
            return AIMessage(self.text("ai", turn), id=f"a{turn}", usage_metadata=usage)
        call = {"name": "look_up", "args": {"row": turn}, "id": f"c{turn}"}
        return AIMessage("", tool_calls=[call], id=f"t{turn}", usage_metadata=usage)


def soak(script: Script, turns: int, settings: dict[str, Any]) -> Iterator[Block]:
    """Drive the nodes directly, as in a thread; each turn ends like in a graph, with `maybe_summarize`."""
    agent_nodes.place_of = lambda *_: RunPlace("a thread")
    watch, state = Watch(), State(messages=[])
    nodes = TimedNodes(_engine(settings), watch)
    turn = 0
    model = nodes.model_node(lambda request: watch.paused(script.answer, turn, request))
    for begin in range(0, turns, turns // BLOCKS):
        watch.by_node, sizes, taken = {}, list[int](), list[float]()
        for turn in range(begin, begin + turns // BLOCKS):
            watch.seconds = 0.0
            state["messages"] = [*state["messages"], script.question(turn)]
            state = _step(nodes, model, state, watch)
            if state["messages"][-1].tool_calls:
                state["messages"] = [*state["messages"], script.result(turn)]
                state = _step(nodes, model, state, watch)
            state |= nodes.maybe_summarize.invoke(state)
            sizes.append(_state_bytes(state))
            taken.append(watch.seconds)
        yield _block(watch, taken, sizes, state)


def _step(nodes: ContextNodes, model: Any, state: State, watch: Watch) -> State:
    state = {**state, **nodes.budget_check.invoke(state)}
    for _ in range(2):
        if (node := watch.timed("route", nodes.route_on_budget, state)) == "build_messages":
            break
        state |= getattr(nodes, node).invoke(state)
        state["context_pending"] = {}
    state |= nodes.build_messages.invoke(state)
    update = model.invoke(state)
    return {**state, **update, "messages": [*state["messages"], *update["messages"]]}


def graph_soak(script: Script, turns: int, settings: dict[str, Any]) -> Iterator[Block]:
    """The same turns through a compiled graph with a checkpointer; LangGraph's own time is reported beside ours."""
    watch = Watch()
    nodes = TimedNodes(_engine(settings), watch)
    turn = 0
    builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    add_context_nodes(builder, nodes, model=lambda request: watch.paused(script.answer, turn, request))
    builder.add_node("tools", lambda _: {"messages": [script.result(turn)]})
    builder.add_edge(START, "budget_check")
    builder.add_edge("tools", "budget_check")
    builder.add_conditional_edges(
        "agent", lambda state: "tools" if state["messages"][-1].tool_calls else "maybe_summarize"
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    for begin in range(0, turns, turns // BLOCKS):
        watch.by_node, taken, began = {}, list[float](), time.process_time()
        for turn in range(begin, begin + turns // BLOCKS):
            watch.seconds = 0.0
            graph.invoke({"messages": [script.question(turn)]}, config)
            taken.append(watch.seconds)
        whole = time.process_time() - began
        values = graph.get_state(config).values
        watch.by_node["whole graph"] = whole
        yield _block(watch, taken, [_state_bytes(values)], values)


def profile(script: Script, turns: int, settings: dict[str, Any]) -> None:
    """Print what the last block spends its time on."""
    profiler = cProfile.Profile()
    blocks = soak(script, turns, settings)
    for _ in range(BLOCKS - 1):
        next(blocks)
    profiler.enable()
    next(blocks)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats("langchain_ctxwin|built-in", 22)


def _engine(settings: dict[str, Any]) -> ContextEngine:
    limits = ModelLimits(context_window=WINDOW, requested_output_tokens=WINDOW // 8)
    return ContextEngine(limits, counter=TokenEstimator("openai"), config=ContextConfig(**settings))


def _block(watch: Watch, taken: list[float], sizes: list[int], state: State) -> Block:
    nodes = {name: seconds / len(taken) * 1_000 for name, seconds in watch.by_node.items()}
    compactions = int((state.get("context_guard") or {}).get("compactions", 0))
    return Block([seconds * 1_000 for seconds in taken], nodes, sizes, len(state["messages"]), compactions)


def _state_bytes(state: State) -> int:
    ours = {key: value for key, value in state.items() if key.startswith("context_")}
    return len(json.dumps(ours, ensure_ascii=False).encode())


def _texts(transcripts: list[Transcript], kind: str) -> Iterator[str]:
    for transcript in transcripts:
        for message in transcript.messages:
            if message.type == kind and isinstance(message.content, str) and message.content.strip():
                yield message.content[:MAX_CHARS]


def report(title: str, blocks: Iterator[Block]) -> None:
    print(f"\n{title}")
    done: list[Block] = []
    for block in blocks:
        if not done:
            names = list(block.nodes)
            print(
                f"{'messages':>10}{'ms/turn':>9}{'median':>8}{'state mean':>12}{'max bytes':>11}{'compact.':>10}",
                end="",
            )
            print("".join(f"{name:>17}" for name in names))
        done.append(block)
        print(
            f"{block.messages:>10,}{mean(block.milliseconds):>9.2f}{median(block.milliseconds):>8.2f}"
            f"{mean(block.state_bytes):>12,.0f}{max(block.state_bytes):>11,}{block.compactions:>10,}"
            + "".join(f"{block.nodes.get(name, 0.0):>17.3f}" for name in names),
            flush=True,
        )
    first, last = done[0], done[-1]
    added = (median(last.milliseconds) - median(first.milliseconds)) / (last.messages - first.messages) * 10_000
    print(
        f"last / first block: mean time {mean(last.milliseconds) / mean(first.milliseconds):.2f}, median time "
        f"{median(last.milliseconds) / median(first.milliseconds):.2f} ({added:+.2f} ms a turn per 10,000 messages), "
        f"state {mean(last.state_bytes) / mean(first.state_bytes):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with transcripts/*.jsonl.gz; generated ones without it")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--graph-turns", type=int, default=GRAPH_TURNS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of ContextConfig")
    parser.add_argument("--profile", action="store_true", help="print where the last block's time goes, nothing else")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    settings = {name: value for name, _, value in (item.partition("=") for item in options.set)}
    transcripts = list(load(options.data, limit=5))
    script = Script(transcripts, options.turns // BLOCKS)
    if options.profile:
        profile(script, options.turns, settings)
        return
    for name in options.variants:
        gc.collect()
        if name == "graph":
            script = Script(transcripts, options.graph_turns // BLOCKS)
            report(f"{options.graph_turns:,} turns through a graph", graph_soak(script, options.graph_turns, settings))
            continue
        title = f"{options.turns:,} turns in a window of {WINDOW:,}, summarize={name}; milliseconds of our own"
        report(title, soak(script, options.turns, {"summarize": name, **settings}))


if __name__ == "__main__":
    main()
