"""The commands `ctxwin replay` (a row per policy) and `ctxwin inspect` (a conversation, request by request)."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.config import PRESETS
from langchain_ctxwin.core.blocks import text_of
from langchain_ctxwin.core.record import render_record
from langchain_ctxwin.core.session import read_key
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.page import page, require_writable, write_page
from langchain_ctxwin.replay.playing import (
    ReplayResult,
    Sent,
    compare,
    failure,
    input_limit,
    quiet,
    recommended,
    replay,
)
from langchain_ctxwin.replay.policies import PLAIN, Policy, candidates
from langchain_ctxwin.replay.reader import LanguageModel, Read, read_conversation, table
from langchain_ctxwin.replay.reading import Conversation, LeftOut, read_conversations
from langchain_ctxwin.replay.threads import (
    is_address,
    is_database,
    shown_address,
    thread_states,
)
from langchain_ctxwin.util.log import aligned, say

EXIT_FAILED = 1
MOST_TOLD = 20  # faults that are told one by one
MIN_SECONDS = 1e-3  # what a replay takes at least: no speed is divided by zero

COLUMNS = {
    "policy": "",
    "requests": "",
    "over limit": "",
    "not sent": "not sent: requests of which nothing that fits was left; they show nothing, and are not billed",
    "compactions": "",
    "needed shown": "needed shown: values in the next call that had been seen before, once something had to leave",
    "billed": "billed: input tokens per request, those of the prefix shared with the one before at a tenth",
    "fill": "fill: tokens of a request over its limit",
    "cached": "cached: part of the input that the request before had, too",
}
"""Columns of the table, and the line below it that explains one."""

COST = "cost: of the input of all requests that were sent, in the currency of the price"


def run_replay(args: argparse.Namespace) -> int:
    """Replay, print, and return the exit code: 1 where a conversation is missing from what is printed."""
    _require_sense(args)
    names = dict.fromkeys(args.policy or [next(iter(PRESETS)), *PLAIN])
    policies = candidates() if args.recommend else list(map(Policy.named, names))
    if args.reader:
        return _run_reader(args, policies)
    results, watch = list[ReplayResult](), _Watch(is_kept=bool(args.html))
    quiet()
    conversations = watch.passing(read_conversations(args.files, tell=watch.tell))
    try:
        for so_far in compare(
            conversations, policies, args.window, jobs=args.jobs, tell=watch.tell
        ):
            results = so_far
            watch.show(results[0].conversations)
    finally:
        watch.end()
    if not results:
        shown = ", ".join(
            shown_address(place) if is_address(place) else place for place in args.files
        )
        hint = f"; {counted(watch.faults, 'reason')} above" if watch.faults else ""
        raise ConfigError(f"{shown}: no conversation to replay{hint}")
    done, seconds = (
        results[0].conversations,
        max(time.monotonic() - watch.began, MIN_SECONDS),
    )
    told = f"{counted(done, 'conversation')} under {counted(len(policies), 'policy')} in {seconds:,.1f} s"
    _complain(f"{told}, {done / seconds:,.1f} a second")
    chosen = recommended(results) if args.recommend else results[0]
    _print(results, chosen, args)
    if args.html and watch.longest is not None:
        sys.stdout.flush()
        policy = policies[results.index(chosen)]
        prices = {"input_price": args.input_price, "cached_price": args.cached_price}
        try:
            drawn = page(watch.longest, policy, args.window, results, **prices)
        except Exception as error:  # noqa: BLE001  # what could not be replayed cannot be drawn
            watch.tell(LeftOut(f"--html {args.html}: {failure(watch.longest, error)}"))
        else:
            write_page(args.html, drawn)
            _complain(
                f"drew {watch.longest.name} under {' '.join(policy.name.split())}: {args.html}"
            )
    return EXIT_FAILED if watch.left_out else 0


def _run_reader(args: argparse.Namespace, policies: Sequence[Policy]) -> int:
    """Have a model read the requests, and print what each policy loses by it."""
    reader, reads, watch = (
        LanguageModel(args.reader),
        list[Read](),
        _Watch(is_kept=False),
    )
    quiet()
    for number, conversation in enumerate(
        watch.passing(read_conversations(args.files, tell=watch.tell)), 1
    ):
        try:
            reads += read_conversation(reader, conversation, policies, args.window)
        except Exception as error:  # noqa: BLE001  # one odd recording must not end a comparison of thousands
            watch.tell(LeftOut(failure(conversation, error)))
        watch.show(number)
    watch.end()
    if not reads:
        raise ConfigError(
            f"{args.window:,} tokens: nothing ever had to leave that a model could read; lower --window"
        )
    for line in table(reads, [policy.name for policy in policies], args.margin):
        say(line)
    return EXIT_FAILED if watch.left_out else 0


def _complain(text: str) -> None:
    say(text, file=sys.stderr)


def _require_sense(args: argparse.Namespace) -> None:
    """Refuse options that cannot be answered together, before anything is read."""
    if args.recommend and args.policy:
        raise ConfigError("--recommend tries settings of its own: leave out --policy")
    if args.recommend and args.output != "table":
        raise ConfigError(
            f"--recommend prints a settings file: leave out --output {args.output}"
        )
    if args.cached_price is not None and args.input_price is None:
        raise ConfigError("--cached-price says nothing alone: give --input-price, too")
    if args.reader and (args.recommend or args.html or args.output != "table"):
        raise ConfigError(
            "--reader prints a table of its own: leave out --recommend, --html and --output"
        )
    if args.html:
        require_writable(args.html)


class _Watch:
    """Tells what could not be read and, where somebody looks, how far it is; keeps what may have to be drawn."""

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept, self.is_shown = is_kept, sys.stderr.isatty()
        self.longest: Conversation | None = None
        self.read = self.faults = self.left_out = 0
        self.began = time.monotonic()

    def tell(self, fault: str) -> None:
        self.faults += 1
        self.left_out += isinstance(fault, LeftOut)
        if self.faults <= MOST_TOLD:
            _complain(fault)

    def passing(self, conversations: Iterable[Conversation]) -> Iterator[Conversation]:
        for self.read, conversation in enumerate(conversations, 1):
            if self.is_kept and (
                self.longest is None
                or len(conversation.messages) > len(self.longest.messages)
            ):
                self.longest = conversation
            yield conversation

    def show(self, replayed: int) -> None:
        # how many there are is not known before the last file is read
        if self.is_shown:
            speed = replayed / max(time.monotonic() - self.began, MIN_SECONDS)
            told = f"{counted(replayed, 'conversation')} of {self.read:,} that were read, {speed:,.1f} a second"
            print(f"\r{told}", end="\x1b[K", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.is_shown and self.read:
            print(file=sys.stderr)
        if self.faults > MOST_TOLD:
            say(
                f"{self.faults - MOST_TOLD:,} more such lines are not shown",
                file=sys.stderr,
            )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 policy`, `2,000 policies`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _print(
    results: Sequence[ReplayResult], chosen: ReplayResult, args: argparse.Namespace
) -> None:
    rows = [result.to_dict(args.input_price, args.cached_price) for result in results]
    if args.recommend:
        best = max(
            result.sufficiency for result in results if result.sufficiency is not None
        )
        cheapest = min(result.billed_per_request for result in results)
        say(
            f"# of {len(results)} settings: shows {chosen.sufficiency:.3f} of what was needed (the best {best:.3f}),"
        )
        say(
            f"# billed {chosen.billed_per_request:,.0f} tokens per request (the cheapest {cheapest:,.0f}),"
        )
        say(
            f"# over {counted(chosen.conversations, 'conversation')} in a window of {chosen.window:,} tokens"
        )
        for line in chosen.policy.split("\n"):
            say(line)
    elif args.output == "json":
        print(json.dumps(rows))
    elif args.output == "csv":
        writer = csv.DictWriter(sys.stdout, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_table(results, [f"{row['cost']:,.4f}" for row in rows if "cost" in row])


def _print_table(results: Sequence[ReplayResult], costs: Sequence[str]) -> None:
    first = results[0]
    about = f"{counted(first.conversations, 'conversation')}, {counted(first.requests, 'request')}"
    say(f"{about}, a window of {first.window:,} tokens")
    explained = COLUMNS | ({"cost": COST} if costs else {})
    rows = [
        (
            result.policy,
            f"{result.requests:,}",
            f"{result.over_limit:,}",
            f"{result.unsent:,}",
            f"{result.compactions:,}",
            "-" if result.sufficiency is None else f"{result.sufficiency:.3f}",
            f"{result.billed_per_request:,.0f}" if result.sent else "-",
            f"{result.utilization:.2f}",
            f"{result.prefix_stability:.2f}",
            *costs[at : at + 1],
        )
        for at, result in enumerate(results)
    ]
    for line in aligned([tuple(explained), *rows], right=[*explained][1:]):
        say(line)
    for line in filter(None, explained.values()):
        say(line)


MOST_NAMED = 20  # conversations that are listed where several could be meant
LINE_CHARS = 100  # text of a message in its line: enough to know it by


def run_inspect(args: argparse.Namespace) -> int:
    """Print one request, and return the exit code."""
    quiet()
    if args.html:
        require_writable(args.html)
    if is_database(args.source) and not (args.policy or args.step or args.html):
        lines = _live(*_chosen(thread_states(args.source, tell=_complain), args.thread))
    else:
        named = (
            (one.name, one) for one in read_conversations([args.source], tell=_complain)
        )
        _, conversation = _chosen(named, args.thread)
        policy = Policy.named(args.policy or "balanced")
        if args.html:
            write_page(args.html, page(conversation, policy, args.window))
            _complain(f"drew {conversation.name}: {args.html}")
        lines = _at_request(conversation, policy, args.window, args.step)
    for line in lines:
        say(line)
    return 0


def _chosen(named: Iterator[tuple[str, Any]], wanted: str | None) -> tuple[str, Any]:
    """The one that is meant; memory for one or, where several could be, for the names of some."""
    if wanted is not None:
        for name, value in named:
            if name == wanted:
                return name, value
        raise ConfigError(f"--thread {wanted}: there is no conversation of this name")
    found = list(islice(named, MOST_NAMED + 1))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError("there is no conversation to inspect")
    names = ", ".join(name for name, _ in found[:MOST_NAMED]) + (
        ", ..." if len(found) > MOST_NAMED else ""
    )
    raise ConfigError(
        f"there are several conversations, choose one with --thread: {names}"
    )


def _at_request(
    conversation: Conversation, policy: Policy, window: int, number: int | None
) -> Iterator[str]:
    """The lines that tell of one request of a replay; of the last one, when no number is given."""
    sent = list[Sent]()
    try:
        replay(conversation, policy, window, heard=sent.append)
    except Exception as error:  # what a recording holds may be of any program
        raise ConfigError(failure(conversation, error)) from error
    number = len(sent) if number is None else number
    if not 1 <= number <= len(sent):
        raise ConfigError(
            f"--step {number}: {conversation.name} has {len(sent):,} requests under {policy.name}"
        )
    now, limit = sent[number - 1], input_limit(window, policy)
    history = conversation.messages[conversation.begins :][: now.history]
    yield f"{conversation.name} under {policy.name}: request {number:,} of {len(sent):,}"
    if now.fits:
        yield f"{now.tokens:,} of {limit:,} tokens, {now.cached_tokens:,} of them in the request before"
    else:
        yield f"not sent: {now.tokens:,} tokens, {limit:,} fit, and nothing more could leave"
    if now.missing:
        yield f"needed by the next call, seen before and not shown: {', '.join(now.missing)}"
    yield ""
    yield from _told(history, _reasons(sent[:number], history))
    known = {message.id for message in history}
    for note in now.request:
        if note.id not in known and not isinstance(note, SystemMessage):
            yield from (
                "",
                f"beside the messages ({note.type}):",
                text_of(note.content),
            )


def _reasons(sent: Sequence[Sent], history: Sequence[AnyMessage]) -> dict[str, str]:
    """Say of each message whether the last of these requests shows it, and where it left."""
    now, why = sent[-1], dict[str, str]()
    shown = {message.id: message for message in now.request}
    left = max(
        (index for index, message in enumerate(history) if message.id not in shown),
        default=-1,
    )
    for index, message in enumerate(history):
        key = str(message.id)
        if message.id in shown:
            edited = shown[message.id].content != message.content
            why[key] = (
                "shortened"
                if edited
                else "kept although older"
                if index < left
                else "shown"
            )
            continue
        gone = next(
            at
            for at, one in enumerate(sent, 1)
            if (one.fits or one is now)
            and one.history > index
            and all(m.id != key for m in one.request)
        )
        reason = sent[gone - 1].guard.get("reason", "")
        why[key] = f"left before request {gone:,}" + (f": {reason}" if reason else "")
    return why


def _live(thread: str, state: Mapping[str, Any]) -> Iterator[str]:
    """The lines that tell what the model sees of a thread, by the state that its checkpointer holds."""
    messages: Sequence[AnyMessage] = state["messages"]
    view, _ = read_key("context_view", state.get("context_view"))
    record, report, guard = (
        state.get(f"context_{name}") or {} for name in ("record", "report", "guard")
    )
    size = ""
    if {"total_tokens", "input_limit"} <= report.keys():
        told = f"{report['total_tokens']:,} of {report['input_limit']:,} tokens"
        size = f", the request before the last answer had {told}"
    yield f"thread {thread}: {len(messages):,} messages{size}"
    if guard.get("compactions"):
        yield f"{guard['compactions']:,} compactions, the last one because {guard.get('reason', 'of a request')}"
    yield ""
    start = next(
        (i for i, m in enumerate(messages) if view.start and m.id == view.start.id), 0
    )
    pinned, why = {position.id for position in view.pinned}, dict[str, str]()
    for index, message in enumerate(messages):
        key = message.id or ""
        if (
            index < start
            and key not in pinned
            and not isinstance(message, SystemMessage)
        ):
            why[key] = "left the view"
        elif key in view.cleared:
            why[key] = "cleared"
        elif key in view.clamped:
            why[key] = "shortened"
        else:
            why[key] = "kept although older" if index < start else "shown"
    yield from _told(messages, why)
    if summary := state.get("context_summary"):
        yield from ("", "summary:", str(summary))
    if record.get("lines"):
        yield from ("", "record:", render_record(record))


def _told(messages: Sequence[AnyMessage], why: Mapping[str, str]) -> Iterator[str]:
    for number, message in enumerate(messages, 1):
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        said = " ".join(
            [
                text_of(message.content),
                *(f"-> {call['name']}({call['args']})" for call in calls),
            ]
        )
        text = " ".join(said.split())
        short = text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}..."
        yield f"{number:>5} {message.type:<7}{why.get(message.id or '', ''):<20} {short}"
