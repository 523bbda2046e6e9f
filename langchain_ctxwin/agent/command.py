"""The commands `ctxwin compact` and `ctxwin undo`: what a host does with a thread, from the command line."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel

from langchain_ctxwin.agent.steering import compact, undo
from langchain_ctxwin.errors import ConfigError, brief
from langchain_ctxwin.util.log import say

SERVER = ("postgresql://", "postgres://")  # how the addresses of Postgres begin
MODULE = "ctxwin_graph"  # what the file of a graph is imported as


def add_thread_commands(commands: Any) -> None:
    """Add both commands to the subparsers of `ctxwin`."""
    compacted = commands.add_parser(
        "compact", help="compact a thread now, or show what would leave"
    )
    undone = commands.add_parser(
        "undo", help="bring the view before the latest compaction of a thread back"
    )
    for command in (compacted, undone):
        help_text = "the compiled graph, as langgraph.json names it: path/to/file.py:graph or package.module:graph"
        command.add_argument("graph", metavar="GRAPH", help=help_text)
        command.add_argument(
            "thread", metavar="THREAD", help="id of the thread; it must be idle"
        )
        help_text = "where its checkpoints are: a SQLite file or postgresql://... (default: the graph's own)"
        command.add_argument("--checkpoints", metavar="PLACE", help=help_text)
    compacted.add_argument(
        "--focus", metavar="TEXT", default="", help="what matters most from now on"
    )
    compacted.add_argument(
        "--preview", action="store_true", help="change nothing, and call no model"
    )
    compacted.set_defaults(run=lambda args: _with_graph(args, _compact))
    undone.set_defaults(run=lambda args: _with_graph(args, _undo))


def _with_graph(
    args: argparse.Namespace, act: Callable[[Any, Any, argparse.Namespace], None]
) -> int:
    graph, config = _graph(args.graph), {"configurable": {"thread_id": args.thread}}
    if args.checkpoints is None:
        act(graph, config, args)
        return 0
    with _saver(args.checkpoints) as saver:
        act(graph.copy({"checkpointer": saver}), config, args)
    return 0


def _saver(place: str) -> AbstractContextManager[Any]:
    """Open what keeps the checkpoints at a place."""
    is_server = place.startswith(SERVER)
    if not is_server and not Path(place).is_file():
        raise ConfigError(
            f"--checkpoints {place}: there is no such file: name a SQLite file or postgresql://..."
        )
    try:
        if is_server:
            from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415  # optional packages

            return PostgresSaver.from_conn_string(place)
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415

        return SqliteSaver.from_conn_string(place)
    except ImportError as error:
        package = f"langgraph-checkpoint-{'postgres' if is_server else 'sqlite'}"
        raise ConfigError(
            f"--checkpoints cannot be opened: pip install {package}"
        ) from error


def _compact(graph: Any, config: Any, args: argparse.Namespace) -> None:
    done = compact(graph, config, focus=args.focus, preview=args.preview)
    if done is None:
        say("nothing leaves: less than a tenth of the request would become free")
        return
    would = "would leave" if args.preview else "left"
    say(
        f"{len(done.left)} messages {would} the view: {done.tokens_before:,} -> {done.tokens_after:,} tokens"
    )
    for message in done.left:
        say(f"  {message.kind:7} {message.tokens:>7,} tokens  {message.id}")
    for name, text in (("summary", done.summary), ("record", done.record)):
        if text:
            say(f"\nThe {name}:\n{text}")


def _undo(graph: Any, config: Any, args: argparse.Namespace) -> None:
    undo(graph, config)
    say(f"thread {args.thread}: the view before the latest compaction is back")


def _graph(name: str) -> Any:
    """Import a graph by its name; a function without arguments that returns one will do."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not attribute:
        raise ConfigError(f"{name}: give path/to/file.py:graph or package.module:graph")
    try:
        found = getattr(_module(place), attribute)
        found = found if isinstance(found, Pregel) or not callable(found) else found()
    except Exception as error:  # whatever the program of somebody does
        raise ConfigError(
            f"{name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Pregel):
        raise ConfigError(
            f"{name} is {brief(found)}: name a compiled graph, or a function that returns one"
        )
    return found


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    sys.path.insert(0, str(Path(place).resolve().parent))
    spec = importlib.util.spec_from_file_location(MODULE, place)
    if spec is None or spec.loader is None:
        raise ImportError(place)
    module = sys.modules[MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
