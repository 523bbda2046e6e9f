"""The command `ctxwin`: what can be tried from a terminal?"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import langchain_core
import structlog

from langchain_ctxwin import __version__
from langchain_ctxwin.config import FileConfig
from langchain_ctxwin.config.faults import escaped
from langchain_ctxwin.config.listing import changes, defaults, listed, origins, shown
from langchain_ctxwin.config.reading import read_table
from langchain_ctxwin.core.budget import budget_table
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.demo.big_results import BigResults
from langchain_ctxwin.demo.explore import Scene
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.payload import Payload
from langchain_ctxwin.demo.result_screen import ResultScreen
from langchain_ctxwin.demo.screen import Screen
from langchain_ctxwin.errors import ConfigError, ContextWindowError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

DEFAULT_WINDOW_TOKENS = 8_192
"""A small window, so that a short run outgrows it many times."""

DEFAULT_STEPS = 60
"""Model calls of a run: a dozen turns, a few seconds."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""What shells report for a program that was interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 1 a check failed, 2 it could not start."""
    args = _parser().parse_args(argv)
    try:
        with _quiet_logs():
            run: Callable[[argparse.Namespace], int] = args.run
            return run(args)
    except ContextWindowError as error:
        return _complain(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # the reader is gone; without this Python would complain once more when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ctxwin", description="Context-window management for LangChain agents.")
    parser.add_argument("--version", action="version", version=f"ctxwin {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="watch an agent explore a folder through a small window")
    default = Path(langchain_core.__file__).parent
    demo.add_argument("path", nargs="?", type=Path, default=default, help="folder to explore (langchain_core's source)")
    demo.add_argument("--model", metavar="PROVIDER:NAME", help="a real chat model (default: an offline one)")
    demo.add_argument("--window", type=_positive, default=DEFAULT_WINDOW_TOKENS, help="context window in tokens")
    demo.add_argument("--steps", type=_positive, default=DEFAULT_STEPS, help="model calls, about")
    demo.add_argument("--seed", type=int, default=0, help="another number asks other questions")
    demo.add_argument("--big-results", action="store_true", help="another scenario: questions about a huge tool result")
    demo.add_argument("--data", type=Path, metavar="FILE", help="a JSON array of objects for it, or a data folder")
    demo.set_defaults(run=_demo)
    _add_config(commands)
    return parser


def _add_config(commands: Any) -> None:
    config = commands.add_parser("config", help="check or show the settings of a file")
    actions = config.add_subparsers(dest="action", required=True)
    check = actions.add_parser("check", help="say whether a file is valid, and what differs from the defaults")
    check.add_argument("file", type=Path, help="a TOML, YAML or JSON file")
    check.set_defaults(run=_check)
    show = actions.add_parser("show", help="print every setting and where it comes from")
    show.add_argument("file", type=Path, nargs="?", help="a TOML, YAML or JSON file (default: the environment alone)")
    show.set_defaults(run=_show)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, at least 1")
    return int(text)


def _demo(args: argparse.Namespace) -> int:
    try:
        screen = (ResultScreen if args.big_results or args.data else Screen).standard()
    except ImportError:
        return _complain("the demo needs rich: pip install 'langchain-ctxwin[cli]'", EXIT_USAGE)
    return _big_results(args, screen) if isinstance(screen, ResultScreen) else _explore(args, screen)


def _explore(args: argparse.Namespace, screen: Screen) -> int:
    folder = Folder.open(args.path)
    model = _real_model(args.model) if args.model else None
    scene = Scene.set_up(folder, window_tokens=args.window, seed=args.seed, model=model)
    try:
        with screen.opened(*_headlines(folder, scene, args)):
            scene.play(screen, steps=args.steps)
    except Exception as error:  # noqa: BLE001  # providers have no common error; what is not theirs is raised again
        return _model_failed(error, screen.report or {}, is_real=model is not None)
    screen.finished(scene.ledger)
    return EXIT_FAILED if scene.ledger.failures else 0


def _big_results(args: argparse.Namespace, screen: ResultScreen) -> int:
    payload = Payload.read(args.data) if args.data else Payload.generated(seed=args.seed)
    model = _real_model(args.model) if args.model else None
    scene = BigResults.set_up(payload, window_tokens=args.window, seed=args.seed, model=model)
    try:
        with screen.opened(*scene.headlines(args.model)):
            scene.play(screen)
    except Exception as error:  # noqa: BLE001  # as above
        return _model_failed(error, screen.report or {}, is_real=model is not None)
    screen.summed_up(scene.ledger, scene.tally, scene.failures)
    return EXIT_FAILED if scene.failures else 0


def _check(args: argparse.Namespace) -> int:
    config = FileConfig.from_file(args.file)
    print(f"OK {escaped(str(args.file))}")
    for name, (default, value) in sorted(changes(defaults(FileConfig), listed(config)).items()):
        print(f"  {escaped(name)} = {json.dumps(value)} (default {json.dumps(default)})")
    return 0


def _show(args: argparse.Namespace) -> int:
    config = FileConfig.from_file(args.file) if args.file else FileConfig()
    sources = origins(config, read_table(args.file) if args.file else {})
    lines = {name: f"{escaped(name)} = {json.dumps(shown(value))}" for name, value in listed(config).items()}
    width = max(map(len, lines.values()))
    for name, line in lines.items():
        # what is set for one tool comes from where the table of all tools comes from
        source = next(origin for known, origin in sources.items() if f"{name}.".startswith(f"{known}."))
        print(f"{line:<{width}}  {source}")
    return 0


def _model_failed(error: Exception, report: Mapping[str, object], *, is_real: bool) -> int:
    """Answer a refusal that nothing could help, and whatever a real provider raises; anything else is a fault."""
    if classify_overflow(error) is not None:
        return _complain(f"raise --window, {error}\n\n{budget_table(report)}", EXIT_USAGE)
    if not is_real or isinstance(error, ContextWindowError | BrokenPipeError):
        raise error
    return _complain(f"the model failed: {type(error).__name__}: {_first_line(error)}", EXIT_FAILED)


def _headlines(folder: Folder, scene: Scene, args: argparse.Namespace) -> Iterator[str]:
    cut_off = " (the first ones of it)" if folder.is_cut_off else ""
    size = f"{len(folder.files):,} files, {folder.size_bytes / 1e6:,.1f} MB"
    yield f"{args.model or 'An offline model'} explores {folder.root}{cut_off}: {size}"
    limit = scene.ledger.input_limit
    yield f"Window {args.window:,} tokens = {limit:,} for the request + {args.window - limit:,} for the answer"
    yield "Graph  budget_check > (maybe_summarize | force_compress) > build_messages > agent <> tools"


def _real_model(name: str) -> BaseChatModel:
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415  # extra `agents`
    except ImportError as error:
        raise ConfigError("--model needs langchain: pip install 'langchain-ctxwin[agents]'") from error
    try:
        model: BaseChatModel = init_chat_model(name)
    except Exception as error:  # providers raise their own errors for what they miss
        raise ConfigError(f"--model {name}: {_first_line(error)}") from error
    return model


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep the package's log events off the terminal: the screen tells the same."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def _complain(message: str, code: int) -> int:
    print(f"ctxwin: {message}", file=sys.stderr)
    return code
