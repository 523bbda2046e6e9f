"""The command `ctxwin replay`: files in, one row per policy out."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from langchain_ctxwin.config import PRESETS
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.page import page
from langchain_ctxwin.replay.playing import ReplayResult, compare, quiet
from langchain_ctxwin.replay.policies import PLAIN, Policy
from langchain_ctxwin.replay.reading import Conversation, read_conversations
from langchain_ctxwin.replay.recommending import candidates, recommended
from langchain_ctxwin.settings_faults import escaped
from langchain_ctxwin.util.tables import aligned

MOST_TOLD = 20
"""Lines that could not be read that are told one by one."""

COLUMNS = ("policy", "requests", "over limit", "refused", "compactions", "needed shown", "billed", "fill", "cached")


def run_replay(args: argparse.Namespace) -> int:
    """Replay, print, and return the exit code.

    Raises:
        ConfigError: a file or a policy is missing or none, or no conversation could be read.
    """
    names = args.policy or [next(iter(PRESETS)), *PLAIN]
    policies = candidates() if args.recommend else list(map(Policy.named, names))
    faults, results, began = list[str](), list[ReplayResult](), time.monotonic()
    quiet()
    conversations = read_conversations(args.files, tell=faults.append)
    for so_far in compare(_shown(conversations), policies, args.window, jobs=args.jobs):
        results = so_far
    _tell(faults)
    if results:
        count, seconds = results[0].conversations, time.monotonic() - began
        told = f"{count:,} conversations under {len(policies)} policies in {seconds:,.1f} s"
        print(f"{told}, {count / seconds:,.1f} a second", file=sys.stderr)
    if args.html and results:
        _write_page(args, policies, results)
    if not results:
        raise ConfigError(f"{', '.join(args.files)}: no conversation in {len(faults):,} faulty places; see above")
    rows = [{**result.to_dict(), **_priced(result, args)} for result in results]
    if args.recommend:
        _recommend(results)
    elif args.output == "json":
        print(json.dumps(rows))
    elif args.output == "csv":
        writer = csv.DictWriter(sys.stdout, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print(results, args)
    return 0


def _priced(result: ReplayResult, args: argparse.Namespace) -> dict[str, float]:
    """What all requests cost, where their price is given."""
    if args.input_price is None:
        return {}
    return {"cost": round(result.cost(args.input_price, args.cached_price), 6)}


def _write_page(args: argparse.Namespace, policies: Sequence[Policy], results: Sequence[ReplayResult]) -> None:
    """Draw the longest conversation under the first policy."""
    longest = max(read_conversations(args.files), key=lambda one: len(one.messages))
    try:
        priced = {"input_price": args.input_price, "cached_price": args.cached_price}
        args.html.write_text(page(longest, policies[0], args.window, results, **priced), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--html {args.html}: {error.strerror or error}") from error
    print(f"drew {escaped(longest.name)} under {escaped(policies[0].name)}: {escaped(str(args.html))}", file=sys.stderr)


def _shown(conversations: Iterable[Conversation]) -> Iterator[Conversation]:
    """The conversations, counted where somebody watches."""
    for number, conversation in enumerate(conversations, 1):
        if sys.stderr.isatty():
            print(f"\r{number:,} conversations", end="", file=sys.stderr, flush=True)
        yield conversation
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _tell(faults: Sequence[str]) -> None:
    for fault in faults[:MOST_TOLD]:
        print(f"left out {escaped(fault)}", file=sys.stderr)
    if len(faults) > MOST_TOLD:
        print(f"left out {len(faults) - MOST_TOLD:,} more", file=sys.stderr)


def _print(results: Sequence[ReplayResult], args: argparse.Namespace) -> None:
    first = results[0]
    print(f"{first.conversations:,} conversations, {first.requests:,} requests, a window of {first.window:,} tokens")
    rows = [
        (
            result.policy,
            f"{result.requests:,}",
            f"{result.over_limit:,}",
            f"{result.refused:,}",
            f"{result.compactions:,}",
            "-" if result.sufficiency is None else f"{result.sufficiency:.3f}",
            f"{result.billed_per_request:,.0f}",
            f"{result.utilization:.2f}",
            f"{result.prefix_stability:.2f}",
            *(f"{cost:,.4f}" for cost in _priced(result, args).values()),
        )
        for result in results
    ]
    columns = (*COLUMNS, *_priced(first, args))
    for line in aligned([columns, *rows], right=columns[1:]):
        print(escaped(line))
    print("needed shown: values in the next call that had been seen before, once something had to leave")
    print("billed: input tokens per request, those of the prefix shared with the one before at a tenth")
    if args.input_price is not None:
        print("cost: of the input of all requests, in the currency of the price")


def _recommend(results: Sequence[ReplayResult]) -> None:
    chosen = recommended(results)
    shown = max((result.sufficiency or 0.0 for result in results), default=0.0)
    cheapest = min(result.billed_per_request for result in results)
    share, bill = chosen.sufficiency or 1.0, chosen.billed_per_request
    print(f"# of {len(results)} settings: shows {share:.3f} of what was needed (the best {shown:.3f}),")
    print(f"# billed {bill:,.0f} tokens per request (the cheapest {cheapest:,.0f}),")
    print(f"# over {chosen.conversations:,} conversations in a window of {chosen.window:,} tokens")
    print(chosen.policy)
