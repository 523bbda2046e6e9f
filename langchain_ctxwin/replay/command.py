"""The command `ctxwin replay`: a row per policy, or one conversation, request by request."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.config import PRESETS
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.provider_blocks import text_of
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.page import page
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
from langchain_ctxwin.replay.reading import (
    Conversation,
    is_database,
    read_conversations,
    shown_address,
    thread_states,
)
from langchain_ctxwin.util.files import replace_text
from langchain_ctxwin.util.log import aligned, say

EXIT_FAILED = 1
MOST_NAMED = 20  # conversations that are listed where several could be meant
LINE_CHARS = 100  # text of a message in its line: enough to know it by

COLUMNS = {
    "policy": "",
    "requests": "",
    "over limit": "",
    "not sent": "not sent: requests of which nothing that fits was left; they show nothing, and are not billed",
    "compactions": "",
    "needed shown": "needed shown: values in the next call that had been seen before, once something had to leave",
    "billed": "billed: input tokens per request, those of the prefix shared with the one before at a tenth",
}
"""Columns of the table, and the line below it that explains one."""


def run_replay(args: argparse.Namespace) -> int:
    """Replay, print, and return the exit code: 1 where a conversation is missing from what is printed."""
    _require_sense(args)
    quiet()
    names = dict.fromkeys(args.policy or [next(iter(PRESETS)), *PLAIN])
    policies = candidates() if args.recommend else list(map(Policy.named, names))
    faults = _Faults()
    if args.thread is not None or args.step is not None:
        for line in _inspected(args, faults):
            say(line)
    elif args.reader:
        _run_reader(args, policies, faults)
    else:
        _run_compare(args, policies, faults)
    return EXIT_FAILED if faults.left_out else 0


def _require_sense(args: argparse.Namespace) -> None:
    """Refuse options that cannot be answered together, before anything is read."""
    is_one = args.thread is not None or args.step is not None
    questions = (is_one, args.recommend, args.reader, args.output != "table")
    if sum(map(bool, questions)) > 1:
        raise ConfigError(
            "--thread or --step, --recommend, --reader and --output json answer different questions: give one"
        )
    if args.recommend and args.policy:
        raise ConfigError("--recommend tries settings of its own: leave out --policy")
    if is_one and len(args.files) > 1:
        raise ConfigError(
            f"--thread and --step show one conversation: give one source, not {len(args.files)}"
        )


class _Faults:
    """Reports what could not be read, and counts it."""

    def __init__(self) -> None:
        self.left_out = 0

    def __call__(self, fault: str) -> None:
        self.left_out += 1
        _complain(fault)


def _run_compare(
    args: argparse.Namespace, policies: Sequence[Policy], faults: _Faults
) -> None:
    longest: Conversation | None = None

    def passing() -> Iterator[Conversation]:
        nonlocal longest
        for conversation in read_conversations(args.files, tell=faults):
            if longest is None or len(conversation.messages) > len(longest.messages):
                longest = conversation
            yield conversation

    results = list[ReplayResult]()
    compared = compare(passing(), policies, args.window, jobs=args.jobs, tell=faults)
    for so_far in compared:
        results = so_far
    if not results:
        places = ", ".join(map(shown_address, args.files))
        raise ConfigError(f"{places}: no conversation to replay")
    chosen = recommended(results) if args.recommend else results[0]
    _print(results, chosen, args)
    if args.html and longest is not None:
        _draw(args.html, longest, policies[results.index(chosen)], args.window)


def _draw(path: Path, conversation: Conversation, policy: Policy, window: int) -> None:
    try:
        replace_text(path, page(conversation, policy, window))
    except OSError as error:
        raise ConfigError(f"--html {path}: {error.strerror or error}") from error
    _complain(f"drew {conversation.name}: {path}")


def _run_reader(
    args: argparse.Namespace, policies: Sequence[Policy], faults: _Faults
) -> None:
    """Have a model read the requests, and print what each policy loses by it."""
    reader, reads = LanguageModel(args.reader), list[Read]()
    for conversation in read_conversations(args.files, tell=faults):
        try:
            reads += read_conversation(reader, conversation, policies, args.window)
        except Exception as error:  # noqa: BLE001  # one odd recording must not end a comparison of thousands
            faults(failure(conversation, error))
    if not reads:
        raise ConfigError(
            f"{args.window:,} tokens: nothing ever had to leave that a model could read; lower --window"
        )
    for line in table(reads, [policy.name for policy in policies], args.margin):
        say(line)


def _complain(text: str) -> None:
    say(text, file=sys.stderr)


def _print(
    results: Sequence[ReplayResult], chosen: ReplayResult, args: argparse.Namespace
) -> None:
    if args.recommend:
        best = max(result.sufficiency or 0 for result in results)
        cheapest = min(result.billed_per_request for result in results)
        for line in (
            f"# of {len(results)} settings: shows {chosen.sufficiency:.3f} of what was needed (the best {best:.3f}),",
            f"# billed {chosen.billed_per_request:,.0f} tokens per request (the cheapest {cheapest:,.0f}),",
            f"# over {chosen.conversations:,} conversations in a window of {chosen.window:,} tokens",
            *chosen.policy.split("\n"),
        ):
            say(line)
    elif args.output == "json":
        print(json.dumps([result.to_dict() for result in results]))
    else:
        _print_table(results)


def _print_table(results: Sequence[ReplayResult]) -> None:
    first = results[0]
    say(
        f"{first.conversations:,} conversations, {first.requests:,} requests, a window of {first.window:,} tokens"
    )
    rows = [
        (
            result.policy,
            f"{result.requests:,}",
            f"{result.over_limit:,}",
            f"{result.unsent:,}",
            f"{result.compactions:,}",
            "-" if result.sufficiency is None else f"{result.sufficiency:.3f}",
            f"{result.billed_per_request:,.0f}" if result.sent else "-",
        )
        for result in results
    ]
    for line in aligned([tuple(COLUMNS), *rows], right=[*COLUMNS][1:]):
        say(line)
    for line in filter(None, COLUMNS.values()):
        say(line)


# ---- one conversation -----------------------------------------------------------------------------------------------


def _inspected(args: argparse.Namespace, faults: _Faults) -> Iterator[str]:
    """The lines about one conversation: of a thread as its model sees it now, or of one request of a replay."""
    (source,) = args.files
    if is_database(source) and not (args.policy or args.step or args.html):
        yield from _live(*_chosen(thread_states(source, tell=faults), args.thread))
        return
    recorded = read_conversations([source], tell=faults)
    _, conversation = _chosen(((one.name, one) for one in recorded), args.thread)
    policy = Policy.named((args.policy or ["balanced"])[0])
    if args.html:
        _draw(args.html, conversation, policy, args.window)
    yield from _at_request(conversation, policy, args.window, args.step)


def _chosen(named: Iterable[tuple[str, Any]], wanted: str | None) -> tuple[str, Any]:
    """The one that is meant; memory for one or, where several could be, for the names of some."""
    if wanted is not None:
        named = (one for one in named if one[0] == wanted)
    candidates = list(islice(named, 1 if wanted is not None else MOST_NAMED))
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(name for name, _ in candidates)
    raise ConfigError(
        f"there are several conversations, choose one with --thread: {names}"
        if candidates
        else f"--thread {wanted}: there is no conversation of this name"
        if wanted is not None
        else "there is no conversation to show"
    )


def _at_request(
    conversation: Conversation, policy: Policy, window: int, number: int | None
) -> Iterator[str]:
    """The lines about one request of a replay; of the last one, when no number is given."""
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
    yield from _message_lines(history, now.request, _reasons(sent[:number]))


def _reasons(sent: Sequence[Sent]) -> Callable[[int, AnyMessage], str]:
    """Say of a message that the last of these requests does not show where it left, and why."""

    def reason(index: int, message: AnyMessage) -> str:
        left = next(
            number
            for number, one in enumerate(sent, 1)
            if (one.fits or one is sent[-1])
            and one.history > index
            and all(visible.id != message.id for visible in one.request)
        )
        why = sent[left - 1].guard.get("reason", "")
        return f"left before request {left:,}" + (f": {why}" if why else "")

    return reason


def _live(thread: str, state: Mapping[str, Any]) -> Iterator[str]:
    """The lines about what the model sees of a thread, by the state that its checkpointer holds."""
    messages: Sequence[AnyMessage] = state["messages"]
    report, guard = (state.get(f"context_{name}") or {} for name in ("report", "guard"))
    size = ""
    if {"total_tokens", "input_limit"} <= report.keys():
        tokens = f"{report['total_tokens']:,} of {report['input_limit']:,} tokens"
        size = f", the request before the last answer had {tokens}"
    yield f"thread {thread}: {len(messages):,} messages{size}"
    if guard.get("compactions"):
        yield f"{guard['compactions']:,} compactions, the last one because {guard.get('reason', 'of a request')}"
    yield ""
    engine = ContextEngine(ModelLimits(report.get("context_window") or sys.maxsize))
    request = engine.build(engine.measure(messages, session=state))
    yield from _message_lines(messages, request, _left_the_view)


def _left_the_view(_: int, message: AnyMessage) -> str:
    # those of the history join the system prompt
    return "shown" if isinstance(message, SystemMessage) else "left the view"


def _message_lines(
    history: Sequence[AnyMessage],
    request: Sequence[AnyMessage],
    reason: Callable[[int, AnyMessage], str],
) -> Iterator[str]:
    """A line for each message, with how the request shows it, and what the request holds beside them."""
    visible = {message.id: message for message in request}
    hidden = [i for i, message in enumerate(history) if message.id not in visible]
    for index, message in enumerate(history):
        if message.id not in visible:
            how = reason(index, message)
        elif visible[message.id].content != message.content:
            how = "shortened"
        else:
            is_kept = hidden and index < hidden[-1]
            how = "kept although older" if is_kept else "shown"
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        called = (f"-> {call['name']}({call['args']})" for call in calls)
        text = " ".join(" ".join([text_of(message.content), *called]).split())
        short = text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}..."
        yield f"{index + 1:>5} {message.type:<7}{how:<20} {short}"
    history_ids = {message.id for message in history}
    for note in request:
        if note.id not in history_ids and not isinstance(note, SystemMessage):
            yield from (
                "",
                f"beside the messages ({note.type}):",
                text_of(note.content),
            )
