"""What does one long thread take in a checkpointer, before and after it is pruned?

    python benchmarks/storage.py [--data DIR] [--calls 360] [--window 16384]
    python benchmarks/storage.py --screenshots 100

Recorded agents, one after the other, are played as one thread on the nodes, in SQLite; or an agent that takes a
screenshot with each call, with its data in the state and in a store (`ContextConfig(media=)`), the size of which is not
in the figures. Bytes are pages of the database, milliseconds are of one load.
"""

from __future__ import annotations

import base64
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextInput,
    ContextNodes,
    ContextOutput,
    ContextState,
    ModelLimits,
    PlainContextState,
    add_context_nodes,
)
from langchain_ctxwin.core.media import apart
from langchain_ctxwin.pruning import prune_thread
from transcripts import load, parser_of, quiet

THREAD: Any = {"configurable": {"thread_id": "t"}}
ARMS = (PlainContextState, ContextState)
LONG = ("openhands_claude", "pi_sessions", "sweagent_toolcalls")
"""Recorded agents that write code: long steps, and files in the results of tools."""

SHOT_BYTES = (
    12_000  # of a small picture, 16,000 characters of base64; all figures grow with it
)
TIMED = 5  # loads in each median
GOAL_MB = 15.0


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--calls", type=int, default=360, help="model calls of the thread"
    )
    parser.add_argument("--window", type=int, default=16_384, help="tokens")
    parser.add_argument("--screenshots", type=int, default=0, help="steps with one")
    options = parser.parse_args()
    quiet()
    if options.screenshots:
        compare_screenshots(options.screenshots, options.window)
        return
    messages = conversation(options.data, options.calls)
    texts = sum(len(str(message.content)) for message in messages) / 1e6
    print(
        f"{options.calls} calls, {len(messages)} messages, {texts:.1f} MB of text, window {options.window:,}"
    )
    print(f"{'state':<20}{'MB':>8}{'messages':>10}{'load ms':>9}{'pruned MB':>11}")
    for state in ARMS:
        print(
            f"{state.__name__:<20}" + row(state, messages, options.window), flush=True
        )
    print(f"goal: ContextState takes at most {GOAL_MB:g} MB at 360 calls")


def conversation(data: Path | None, calls: int) -> list[AnyMessage]:
    """Return recorded conversations one after the other, up to so many answers."""
    messages, answers = list[AnyMessage](), 0
    while answers < calls:
        for transcript in load(data, names=LONG):
            for message in transcript.messages:
                if isinstance(message, SystemMessage):
                    continue
                if answers == calls:
                    return messages
                answers += isinstance(message, AIMessage)
                messages.append(
                    message.model_copy(update={"id": f"message-{len(messages):06}"})
                )
    return messages


def compare_screenshots(steps: int, window: int) -> None:
    """Print what the screenshots take where they are in the state, and in a store once they left the view."""
    messages: list[AnyMessage] = [HumanMessage("Find the cheapest ticket.", id="u")]
    noise = random.Random(1)  # noqa: S311  # data, no secret
    for number in range(steps):
        call = {"name": "look", "args": {"at": number}, "id": f"c{number}"}
        data = base64.b64encode(noise.randbytes(SHOT_BYTES)).decode()
        shot = {"type": "image", "base64": data, "mime_type": "image/png"}
        messages += [
            AIMessage("", tool_calls=[call], id=f"a{number}"),
            ToolMessage([shot], tool_call_id=f"c{number}", id=f"t{number}"),
        ]
    messages.append(AIMessage("It costs 40.", id="a"))
    print(f"{steps} screenshots of {SHOT_BYTES:,} bytes, window {window:,}")
    print(
        f"{'state':<20}{'media':<8}{'MB':>8}{'messages':>10}{'load ms':>9}{'pruned MB':>11}"
    )
    for state in ARMS:
        for media in ("state", "store"):
            figures = row(state, messages, window, media=media)
            print(f"{state.__name__:<20}{media:<8}{figures}", flush=True)


def row(
    state: Any, messages: list[AnyMessage], window: int, *, media: str = "state"
) -> str:
    """Return the figures of one arm."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(
            Path(folder) / "threads.db", check_same_thread=False
        )
        connection.execute("PRAGMA synchronous=OFF")  # the disk is not what is compared
        config = ContextConfig(media=media)
        graph = played(state, messages, window, SqliteSaver(connection), config)
        kept = graph.get_state(THREAD).values["messages"]
        assert [apart(message)[0].content for message in kept] == [
            apart(message)[0].content for message in messages[: len(kept)]
        ]
        load_ms = milliseconds(lambda: graph.get_state(THREAD))
        before = megabytes(connection)
        prune_thread(graph, THREAD["configurable"]["thread_id"])
        connection.execute("VACUUM")
        after = megabytes(connection)
        connection.close()
    return f"{before:>8.2f}{len(kept):>10}{load_ms:>9.1f}{after:>11.2f}"


def played(
    state: Any,
    messages: list[AnyMessage],
    window: int,
    saver: Any,
    config: ContextConfig,
) -> Any:
    """Return the graph after the conversation: each answer is the recorded one."""
    limits = ModelLimits(context_window=window, max_output_tokens=1_024)
    engine = ContextEngine(limits=limits, config=config)
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
    graph = builder.compile(checkpointer=saver, store=InMemoryStore())
    given = list[AnyMessage]()
    for message in messages:
        if isinstance(message, AIMessage):
            graph.invoke({"messages": given}, THREAD)
            given = []
        else:
            given.append(message)
    return graph


def milliseconds(work: Callable[[], Any]) -> float:
    """Return the median time of the work."""
    times = []
    for _ in range(TIMED):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def megabytes(connection: sqlite3.Connection) -> float:
    """Return the size of a database."""
    connection.commit()
    octets = connection.execute(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()[0]
    return float(octets) / 1e6


if __name__ == "__main__":
    main()
