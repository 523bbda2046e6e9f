"""What does one long thread take in a checkpointer, before and after it is pruned?

    python benchmarks/storage.py [--data DIR] [--calls 360]

Recorded agents, one after the other, are played as one thread on the nodes, in SQLite. Bytes are pages of the database,
milliseconds are of one load.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import timeit
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from common import goals, load, one_after_the_other, parser_of, quiet
from langchain_ctxwin import (
    ContextEngine,
    ContextInput,
    ContextNodes,
    ContextOutput,
    ContextState,
    ModelLimits,
    PlainContextState,
    add_context_nodes,
)
from langchain_ctxwin.pruning import prune_thread

THREAD: Any = {"configurable": {"thread_id": "t"}}
ARMS = (PlainContextState, ContextState)
LONG = ("openhands_claude", "pi_sessions", "sweagent_toolcalls")
"""Recorded agents that write code: long steps, and files in the results of tools."""

WINDOW = 16_384
TIMED = 5  # loads in each median
GOAL_MB = 15.0


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--calls", type=int, default=360, help="model calls of the thread"
    )
    options = parser.parse_args()
    quiet()
    messages = conversation(options.data, options.calls)
    texts = sum(len(str(message.content)) for message in messages) / 1e6
    print(
        f"{options.calls} calls, {len(messages)} messages, {texts:.1f} MB of text, window {WINDOW:,}"
    )
    print(f"{'state':<20}{'MB':>8}{'messages':>10}{'load ms':>9}{'pruned MB':>11}")
    for state in ARMS:
        before, shown = figures(state, messages)
        print(f"{state.__name__:<20}{shown}", flush=True)
    goal = f"{before:.2f} MB: at most {GOAL_MB:g} at 360 calls"
    goals([(before <= GOAL_MB, f"{ARMS[-1].__name__} {goal}")])


def conversation(data: Path | None, calls: int) -> list[AnyMessage]:
    """Return recorded conversations one after the other, up to so many answers."""
    messages, given = list[AnyMessage](), one_after_the_other(load(data, names=LONG))
    while calls:
        messages.append(next(given))
        calls -= isinstance(messages[-1], AIMessage)
    return messages


def figures(state: Any, messages: list[AnyMessage]) -> tuple[float, str]:
    """Return the size of one arm in MB, and its line."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(
            Path(folder) / "threads.db", check_same_thread=False
        )
        connection.execute("PRAGMA synchronous=OFF")  # the disk is not what is compared
        graph = played(state, messages, SqliteSaver(connection))
        kept = graph.get_state(THREAD).values["messages"]
        assert [m.content for m in kept] == [m.content for m in messages[: len(kept)]]
        loads = timeit.repeat(lambda: graph.get_state(THREAD), repeat=TIMED, number=1)
        load_ms = statistics.median(loads) * 1e3
        before = megabytes(connection)
        prune_thread(graph, THREAD["configurable"]["thread_id"])
        connection.execute("VACUUM")
        after = megabytes(connection)
        connection.close()
    return before, f"{before:>8.2f}{len(kept):>10}{load_ms:>9.1f}{after:>11.2f}"


def played(state: Any, messages: list[AnyMessage], saver: Any) -> Any:
    """Return the graph after the conversation: each answer is the recorded one."""
    engine = ContextEngine(ModelLimits(WINDOW, max_output_tokens=1_024))
    nodes = ContextNodes(engine, system_prompt="You are an agent.")
    answers = iter([message for message in messages if isinstance(message, AIMessage)])
    builder = StateGraph(state, input_schema=ContextInput, output_schema=ContextOutput)
    add_context_nodes(
        builder,
        nodes,
        model_node="agent",
        model=RunnableLambda(lambda _: next(answers)),
    )
    builder.add_edge(START, "budget_check").add_edge("agent", "maybe_summarize")
    graph = builder.compile(checkpointer=saver)
    given = list[AnyMessage]()
    for message in messages:
        if isinstance(message, AIMessage):
            graph.invoke({"messages": given}, THREAD)
            given = []
        else:
            given.append(message)
    return graph


def megabytes(connection: sqlite3.Connection) -> float:
    """Return the size of a database."""
    connection.commit()
    octets = connection.execute(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()[0]
    return float(octets) / 1e6


if __name__ == "__main__":
    main()
