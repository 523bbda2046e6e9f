"""What does keeping the full history cost in checkpoints, and how long does the last turn of a long thread take?

    python benchmarks/checkpoint_storage.py [--turns 250 500 1000] [--plain-turns 500]

One thread per channel grows in a SQLite file; a turn is three nodes that write two messages. Bytes are pages of the
database. Milliseconds are medians over the last turns before each mark, one invoke each, load and replay included.
"""

import argparse
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from typing_extensions import TypedDict

from langchain_ctxwin.agent.state import MessagesDeltaChannel

TIMED_TURNS = 15  # turns in each median
CONFIG = {"configurable": {"thread_id": "t"}}
CHANNELS: dict[str, Any] = {
    "add_messages": add_messages,
    "DeltaChannel, default": DeltaChannel(_messages_delta_reducer),
    "DeltaChannel, every 5000": DeltaChannel(_messages_delta_reducer, snapshot_frequency=5000),
    "MessagesDeltaChannel": MessagesDeltaChannel(),
}
OURS = "MessagesDeltaChannel"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, nargs="+", default=[250, 500, 1000], help="where to measure")
    parser.add_argument("--plain-turns", type=int, default=500, help="last mark of add_messages, which is quadratic")
    options = parser.parse_args()
    figures = {}
    for name, channel in CHANNELS.items():
        marks = [mark for mark in options.turns if channel is not add_messages or mark <= options.plain_turns]
        figures[name] = measure(channel, marks)
    show(figures, options.turns)


def measure(channel, marks):
    """Return {turns: (bytes, milliseconds of a turn, milliseconds of a load)} of one growing thread."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "threads.db", check_same_thread=False)
        connection.execute("PRAGMA synchronous=OFF")  # the disk is not what is compared
        graph = agent(channel, SqliteSaver(connection))
        figures = {}
        for mark in marks:
            graph.invoke({"until": mark - TIMED_TURNS}, CONFIG)  # many turns in one run: only their storage matters
            timed = range(mark - TIMED_TURNS + 1, mark + 1)
            turn = statistics.median(clock(graph.invoke, {"until": until}, CONFIG) for until in timed)
            load = statistics.median(clock(graph.get_state, CONFIG) for _ in timed)
            figures[mark] = (size(connection), turn, load)
            assert len(graph.get_state(CONFIG).values["messages"]) == 2 * mark
        connection.close()
    return figures


def agent(channel, saver):
    class State(TypedDict, total=False):
        messages: Annotated[list[AnyMessage], channel]
        counts: dict[str, int]
        until: int

    builder = StateGraph(State)
    builder.add_node("ask", lambda s: {"messages": [HumanMessage(text("Question", s))]})
    builder.add_node("check", lambda s: {"counts": {"messages": len(s["messages"])}})
    builder.add_node("agent", lambda s: {"messages": [AIMessage(text("Answer", s))]})
    builder.add_edge(START, "ask").add_edge("ask", "check").add_edge("check", "agent")
    builder.add_conditional_edges("agent", lambda s: "ask" if len(s["messages"]) < 2 * s["until"] else END)
    return builder.compile(checkpointer=saver)


def text(kind, state):
    return f"{kind} {len(state.get('messages', []))}: " + "it depends on what was asked. " * 4


def clock(call, *arguments):
    started = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - started) * 1e3


def size(connection):
    return connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]


def show(figures, marks):
    print(f"{'channel':<26}" + "".join(f"{mark:>8} turns {'':<17}" for mark in marks))
    print(f"{'':<26}" + "".join(f"{'MB':>9} {'turn ms':>9} {'load ms':>9}   " for _ in marks))
    for name, row in figures.items():
        print(f"{name:<26}" + "".join(cell(row.get(mark)) for mark in marks))
    for mark in marks:
        print(f"\nratio to {OURS} at {mark} turns (bytes, turn, load)")
        for name in (name for name, row in figures.items() if mark in row and name != OURS):
            ratios = zip(figures[name][mark], figures[OURS][mark], strict=True)
            print(f"{name:<26}" + "".join(f"{theirs / ours:>9.2f}x" for theirs, ours in ratios))


def cell(figure):
    if figure is None:
        return f"{'-':>9} {'-':>9} {'-':>9}   "
    octets, turn, load = figure
    return f"{octets / 1e6:>9.2f} {turn:>9.1f} {load:>9.1f}   "


if __name__ == "__main__":
    main()
