"""Do our time per turn and our state stay flat over a thousand turns through one graph in a small window?

Processor time of our nodes (median; the model that answers is taken out), in ten blocks of the same turns; the state is
what the `context_*` keys take as JSON.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from common import Transcript, goals, head, load, parser_of, quiet, row, usage_of
from langchain_ctxwin import (
    ContextEngine,
    ContextInput,
    ContextNodes,
    ContextOutput,
    ContextState,
    ModelLimits,
    TokenEstimator,
    add_context_nodes,
)

WINDOW = 8_192
TURNS = 1_000
BLOCKS = 10
CALL_EVERY = 4  # every fourth turn calls a tool first
MAX_CHARS = 2_000  # about 500 tokens: a turn that fits the window many times
GOALS = {"milliseconds": 2.0, "state bytes": 1.5}
"""Most that the last block may have of what the one in the middle has: LangGraph hands us all messages."""


@dataclass(slots=True)
class Watch:
    """Adds up the processor time that is ours: what runs inside of a node and is not ours is taken out."""

    seconds: float = 0.0

    def timed(
        self, call: Callable[..., Any], *args: Any, sign: int = 1, **options: Any
    ) -> Any:
        began = time.thread_time()
        try:
            return call(*args, **options)
        finally:
            self.seconds += sign * (time.thread_time() - began)


class TimedNodes(ContextNodes):
    """The nodes under a watch."""

    watch: Watch

    def model_node(self, call: Any) -> Any:
        model = super().model_node(call)
        for node in (
            self.budget_check,
            self.maybe_summarize,
            self.force_compress,
            self.build_messages,
            model,
        ):
            node.invoke = partial(self.watch.timed, node.invoke)
        return model


class Script:
    """Endless turns from recorded texts; every block has the same ones, so that blocks can be compared."""

    def __init__(self, transcripts: list[Transcript], block_turns: int) -> None:
        self._block_turns = block_turns
        self._texts: dict[str, list[str]] = defaultdict(list)
        for message in [m for one in transcripts for m in one.messages]:
            if message.text.strip():
                self._texts[message.type].append(message.text[:MAX_CHARS])
        self._counter = TokenEstimator("openai")

    def text(self, kind: str, number: int) -> str:
        texts = self._texts[kind]
        return f"{number}: {texts[number % self._block_turns % len(texts)]}"

    def answer(self, turn: int, request: list[AnyMessage]) -> AIMessage:
        """Call a tool where it is the turn's first answer and a call is due; with a plausible size of the request."""
        usage = usage_of(self._counter(request), 1)
        if isinstance(request[-1], ToolMessage) or turn % CALL_EVERY:
            return AIMessage(self.text("ai", turn), id=f"a{turn}", usage_metadata=usage)
        call = {"name": "look_up", "args": {"row": turn}, "id": f"c{turn}"}
        return AIMessage("", tool_calls=[call], id=f"t{turn}", usage_metadata=usage)


def soak(script: Script, turns: int) -> Iterator[dict[str, float]]:
    """What each block of turns took."""
    watch, turn = Watch(), 0
    limits = ModelLimits(context_window=WINDOW, requested_output_tokens=WINDOW // 8)
    nodes = TimedNodes(ContextEngine(limits, counter=TokenEstimator("openai")))
    nodes.watch = watch
    builder = StateGraph(
        ContextState, input_schema=ContextInput, output_schema=ContextOutput
    )
    add_context_nodes(
        builder,
        nodes,
        model=lambda request: watch.timed(script.answer, turn, request, sign=-1),
    )
    builder.add_node(
        "tools",
        lambda _: {
            "messages": [
                ToolMessage(
                    script.text("tool", turn), tool_call_id=f"c{turn}", id=f"r{turn}"
                )
            ]
        },
    )
    builder.add_edge(START, "budget_check")
    builder.add_edge("tools", "budget_check")
    builder.add_conditional_edges(
        "agent",
        lambda s: "tools" if s["messages"][-1].tool_calls else "maybe_summarize",
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    size = turns // BLOCKS
    for begin in range(0, size * BLOCKS, size):
        taken = list[float]()
        for turn in range(begin, begin + size):
            watch.seconds = 0.0
            graph.invoke(
                {"messages": [HumanMessage(script.text("human", turn), id=f"q{turn}")]},
                config,
            )
            taken.append(watch.seconds * 1_000)
        values = graph.get_state(config).values
        ours = {key: values[key] for key in values if key.startswith("context_")}
        yield {
            "messages": len(values["messages"]),
            "milliseconds": median(taken),
            "state bytes": len(json.dumps(ours, ensure_ascii=False).encode()),
            "compactions": (values.get("context_guard") or {}).get("compactions", 0),
        }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    quiet()
    script = Script(list(load(options.data, limit=5)), options.turns // BLOCKS)
    done = list[dict[str, float]]()
    head("messages", "ms a turn, ours", "bytes of state", "compactions", left=())
    for block in soak(script, options.turns):
        done.append(block)
        messages, taken, state_bytes, compactions = block.values()
        row(f"{messages:,}", f"{taken:.2f}", f"{state_bytes:,}", f"{compactions:,}")
    for name, most in GOALS.items():
        times = done[-1][name] / done[BLOCKS // 2][name]
        text = f"{name}, last block beside the one in the middle: {times:.2f} times, at most {most:.1f}"
        goals([(times <= most, text)])


if __name__ == "__main__":
    main()
