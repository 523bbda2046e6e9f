"""The command `ctxwin`."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import langchain_core
from langchain_core.exceptions import ContextOverflowError
from langgraph.pregel import Pregel

from langchain_ctxwin import __version__
from langchain_ctxwin.agent.ready import compact, undo
from langchain_ctxwin.config import FileConfig
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.demo import stories
from langchain_ctxwin.demo.stories import Folder
from langchain_ctxwin.errors import (
    ConfigError,
    ContextWindowError,
    UnknownModelError,
    brief,
    escaped,
)
from langchain_ctxwin.models import sources
from langchain_ctxwin.models.probing import LOW_TOKENS, most_of_a_probe, probe_limit
from langchain_ctxwin.models.registry import ModelRegistry
from langchain_ctxwin.observe import History, quality_report, report
from langchain_ctxwin.observe.reports import lines_of
from langchain_ctxwin.protocols import ModelSource
from langchain_ctxwin.replay.command import run_replay
from langchain_ctxwin.util.chat_models import chat_model_named
from langchain_ctxwin.util.log import say

DEFAULT_WINDOW_TOKENS = 8_192  # small, so that a short run outgrows it many times

SOURCE_KINDS = {
    "openai": "OpenAICompatibleSource",
    "gemini": "GeminiSource",
    "anthropic": "AnthropicSource",
    "ollama": "OllamaSource",
}
"""Servers that can be asked about models; `openai` is anything that speaks its protocol."""

SOURCES = "OpenAI chat or LangChain messages (.jsonl or .json, also gzipped), LangGraph's checkpoints (a SQLite file)"
"""What conversations are read from."""

MODEL_COLUMNS = {
    "MODEL": "name",
    "PROVIDER": "provider",
    "WINDOW": "context_window",
    "INPUT": "max_input_tokens",
    "OUTPUT": "max_output_tokens",
    "$ IN": "input_price",
    "$ OUT": "output_price",
    "$ CACHED": "cache_read_price",
}
MODEL_LEGEND = "Tokens; USD per million tokens; INPUT is a limit of its own beside the window; - is unknown."

# times the limit that is stated: one that is stated too low is found, too
PROBED_BEYOND = 1.25
EXIT_FAILED, EXIT_USAGE = 1, 2
EXIT_INTERRUPTED = 130  # what shells report for a program that was interrupted


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 1 a check failed, 2 it could not start."""
    args = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that cannot show a sign shows its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        run: Callable[[argparse.Namespace], int] = args.run
        code = run(args)
        sys.stdout.flush()
    except ContextWindowError as error:
        return _complain(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader is gone
        # without this Python would complain once more when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ctxwin", description="Context-window management for LangChain agents."
    )
    parser.add_argument("--version", action="version", version=f"ctxwin {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="watch agents do more work than a small window holds"
    )
    demo.add_argument(
        "--window",
        type=_positive,
        default=DEFAULT_WINDOW_TOKENS,
        help="context window in tokens",
    )
    demo.add_argument(
        "--all",
        action="store_true",
        help="play also the story about a text of any size",
    )
    demo.set_defaults(run=_demo)
    for add in (
        _add_config,
        _add_models,
        _add_history,
        _add_replay,
        _add_threads,
    ):
        add(commands)
    return parser


def _add_config(commands: Any) -> None:
    config = commands.add_parser(
        "config", help="check a settings file, and print every setting that holds"
    )
    config.add_argument(
        "file",
        type=Path,
        nargs="?",
        help="a TOML or JSON file (default: the environment alone)",
    )
    config.set_defaults(run=_config)


def _add_models(commands: Any) -> None:
    models = commands.add_parser(
        "models", help="show limits and prices of models, and who states them"
    )
    models.add_argument("--provider", metavar="P", help="models of this provider alone")
    help_text = "find a model's real input limit by requests of rising size; says first what that may cost"
    models.add_argument("--probe", metavar="PROVIDER:NAME", help=help_text)
    models.add_argument(
        "--high", type=_positive, metavar="TOKENS", help="largest request of a probe"
    )
    models.add_argument("--yes", action="store_true", help="probe at that cost")
    kinds = ", ".join(SOURCE_KINDS)
    help_text = f"ask a server: KIND is one of {kinds}; its usual address, or one as its client takes it (repeatable)"
    models.add_argument(
        "--source", metavar="KIND[=URL]", action="append", default=[], help=help_text
    )
    help_text = "read a catalog like models.dev's or LiteLLM's in the place of what comes along (repeatable)"
    models.add_argument(
        "--catalog", metavar="FILE_OR_URL", action="append", default=[], help=help_text
    )
    models.set_defaults(run=_models)


def _add_history(commands: Any) -> None:
    command = commands.add_parser(
        "report", help="sum up a history of events by day, model and kind"
    )
    command.add_argument(
        "--check",
        action="store_true",
        help="judge by the default gates instead; exit code 1 when one fails",
    )
    command.add_argument("file", type=Path, help="the file that a HistorySink writes")
    command.set_defaults(run=_report)


def _add_replay(commands: Any) -> None:
    replayed = commands.add_parser(
        "replay",
        help="what recorded conversations would cost, and lose, under a policy",
    )
    replayed.add_argument(
        "files", nargs="+", metavar="FILES", help=f"folders, or {SOURCES}"
    )
    replayed.add_argument(
        "--window",
        type=_positive,
        default=DEFAULT_WINDOW_TOKENS,
        help="context window in tokens",
    )
    help_text = "a preset, a plain policy, or a settings file (repeatable; default: balanced and the plain ones)"
    replayed.add_argument(
        "--policy", action="append", default=[], metavar="NAME_OR_FILE", help=help_text
    )
    help_text = "also draw the longest conversation under the first or recommended policy, as a page of its own"
    replayed.add_argument("--html", type=Path, metavar="FILE.html", help=help_text)
    help_text = "compare settings of ours, and print the cheapest that show nearly as much as the best"
    replayed.add_argument("--recommend", action="store_true", help=help_text)
    help_text = "show one conversation by its name: its last request"
    replayed.add_argument("--thread", metavar="NAME", help=help_text)
    help_text = "show one request of it, by its number, and why messages had left"
    replayed.add_argument("--step", type=_positive, metavar="N", help=help_text)
    help_text = "a language model (GGUF) that reads requests beside whole histories; extra: reader"
    replayed.add_argument("--reader", type=Path, metavar="MODEL.gguf", help=help_text)
    replayed.set_defaults(run=run_replay)


def _add_threads(commands: Any) -> None:
    compacted = commands.add_parser(
        "compact", help="compact a thread now, or show what would leave"
    )
    undone = commands.add_parser(
        "undo", help="bring the view before the latest compaction of a thread back"
    )
    for command in (compacted, undone):
        help_text = "the compiled graph with its checkpointer: path/to/file.py:graph or package.module:graph"
        command.add_argument("graph", metavar="GRAPH", help=help_text)
        command.add_argument(
            "thread", metavar="THREAD", help="id of the thread; it must be idle"
        )
    compacted.add_argument(
        "--focus", metavar="TEXT", default="", help="what matters most from now on"
    )
    compacted.add_argument(
        "--preview", action="store_true", help="change nothing, and call no model"
    )
    compacted.set_defaults(run=_compact)
    undone.set_defaults(run=_undo)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r:.40}: give a whole number, at least 1"
        )
    return int(text)


def _demo(args: argparse.Namespace) -> int:
    folder, window = Folder.open(Path(langchain_core.__file__).parent), args.window
    claims = list[stories.Claim]()
    try:
        claims += stories.long_work(folder, window=window)
        claims += stories.large_results(window=window)
        if args.all:
            claims += stories.any_size(folder, window=window)
    except ContextOverflowError as error:  # nothing could help
        return _complain(f"raise --window, {error}", EXIT_USAGE)
    return 0 if stories.ending(claims) else EXIT_FAILED


def _config(args: argparse.Namespace) -> int:
    config = FileConfig.from_file(args.file) if args.file else FileConfig()
    for line in config.model_dump_json(indent=2, fallback=repr).splitlines():
        say(line)
    return 0


def _models(args: argparse.Namespace) -> int:
    servers = list[ModelSource]()
    for text in args.source:
        kind, _, url = text.partition("=")
        if kind not in SOURCE_KINDS or text == "openai":
            raise ConfigError(
                f"--source {text}: give KIND=URL with KIND one of {', '.join(SOURCE_KINDS)}"
            )
        make = getattr(sources, SOURCE_KINDS[kind])
        servers.append(make(url) if "=" in text else make())
    catalogs = args.catalog or ([] if servers else "offline")
    registry = ModelRegistry(servers, catalogs=catalogs)
    if args.probe is not None:
        return _probe(registry, args)
    infos = registry.models(args.provider)
    rows = [
        {title: getattr(info, field) for title, field in MODEL_COLUMNS.items()}
        | {"FROM": info.limits.source}
        for info in infos
    ]
    if rows:
        _print_lines([*lines_of(rows), MODEL_LEGEND])
    _print_lines(["", *registry.sources])
    if not infos:
        wanted = f" of provider {args.provider!r}" if args.provider else ""
        hint = "correct its name, or pass --source or --catalog"
        _complain(f"no source lists a model{wanted}: {hint}", EXIT_FAILED)
    faults = [f"{name}: {why}" for name, why in registry.sources.items() if why]
    for fault in faults:
        _complain(escaped(fault), EXIT_FAILED)
    return EXIT_FAILED if faults or not infos else 0


def _probe(registry: ModelRegistry, args: argparse.Namespace) -> int:
    """Probe a model after saying what that costs at most."""
    model = chat_model_named(args.probe, "--probe")
    info: ModelInfo | None = None
    with suppress(UnknownModelError):
        info = registry.lookup(model)
    limits = info.limits if info else ModelLimits()
    high = args.high or int(
        PROBED_BEYOND * (limits.max_input_tokens or limits.context_window or 0)
    )
    if high <= LOW_TOKENS:
        raise ConfigError(
            f"--probe {args.probe}: no source states a limit to try: pass --high TOKENS above {LOW_TOKENS:,}"
        )
    calls, cost = most_of_a_probe(info, high=high)
    money = (
        "at a price that no source states"
        if cost is None
        else f"and cost up to ${cost:.2f}"
    )
    say(f"probing {args.probe} up to {high:,} tokens: at most {calls} calls, {money}")
    if not args.yes:
        return _complain("nothing was sent: pass --yes to probe", EXIT_FAILED)
    probe = probe_limit(model, high=high)
    say(f"calls    {probe.calls}, {probe.input_tokens:,} tokens of input")
    say(f"limit    {f'{probe.limit:,} tokens' if probe.limit else 'unknown'}")
    if probe.stopped_by:
        return _complain(f"the probe ended early: {probe.stopped_by}", EXIT_FAILED)
    if probe.limit:
        say(f"state it   ModelLimits(max_input_tokens={probe.limit})")
    return 0


def _report(args: argparse.Namespace) -> int:
    history = History(args.file)
    rows = (quality_report if args.check else report)(history.events())
    _print_lines(lines_of(rows))
    if history.skipped:
        say(f"left out {history.skipped:,} events that this version does not know")
    failed = [row["measure"] for row in rows if row.get("verdict") == "failed"]
    return _complain(f"failed: {', '.join(failed)}", EXIT_FAILED) if failed else 0


def _compact(args: argparse.Namespace) -> int:
    graph, config = _thread(args)
    done = compact(graph, config, focus=args.focus, preview=args.preview)
    if done is None:
        say("nothing leaves: less than a tenth of the request would become free")
        return 0
    would = "would leave" if args.preview else "left"
    say(
        f"{len(done.left)} messages {would} the view: {done.tokens_before:,} -> {done.tokens_after:,} tokens"
    )
    for message in done.left:
        say(f"  {message.kind:7} {message.tokens:>7,} tokens  {message.id}")
    for name, text in (("summary", done.summary), ("record", done.record)):
        if text:
            say(f"\nThe {name}:\n{text}")
    return 0


def _undo(args: argparse.Namespace) -> int:
    undo(*_thread(args))
    say(f"thread {args.thread}: the view before the latest compaction is back")
    return 0


def _thread(args: argparse.Namespace) -> tuple[Any, Any]:
    return _graph(args.graph), {"configurable": {"thread_id": args.thread}}


def _graph(name: str) -> Any:
    """Import a graph by its name; a function without arguments that returns one will do."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not attribute:
        raise ConfigError(f"{name}: give path/to/file.py:graph or package.module:graph")
    try:
        path = Path(place)
        is_file = path.suffix == ".py"
        sys.path.insert(0, str(path.resolve().parent if is_file else Path.cwd()))
        module = importlib.import_module(path.stem if is_file else place)
        graph = getattr(module, attribute)
        graph = graph if isinstance(graph, Pregel) or not callable(graph) else graph()
    except Exception as error:  # whatever the program of somebody does
        raise ConfigError(
            f"{name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(graph, Pregel):
        raise ConfigError(
            f"{name} is {brief(graph)}: name a compiled graph, or a function that returns one"
        )
    return graph


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def _complain(message: str, code: int) -> int:
    for line in f"ctxwin: {message}".split("\n"):
        say(line, file=sys.stderr)
    return code
