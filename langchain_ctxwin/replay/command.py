"""The command `ctxwin replay`: a row per policy, or one conversation, request by request, also as an HTML page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.config import PRESETS
from langchain_ctxwin.core.provider_blocks import text_of
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe.reports import lines_of
from langchain_ctxwin.replay.playing import (
    PLAIN,
    Policy,
    ReplayResult,
    Sent,
    candidates,
    compare,
    failure,
    input_limit,
    quiet,
    recommended,
    replay,
)
from langchain_ctxwin.replay.reader import LanguageModel, Read, read_conversation, table
from langchain_ctxwin.replay.reading import Conversation, Tell, read_conversations
from langchain_ctxwin.util.log import say

EXIT_FAILED = 1
MOST_NAMED = 20  # conversations that are listed where several could be meant
LINE_CHARS = 100  # text of a message in its line: enough to know it by

LEGEND = (
    "not sent: requests of which nothing that fits was left; they show nothing, and are not billed",
    "needed shown: values in the next call that had been seen before, once something had to leave",
    "billed: input tokens per request, those of the prefix shared with the one before at a tenth",
)
"""Lines below the table, which explain its columns."""


def run_replay(args: argparse.Namespace) -> int:
    """Replay, print, and return the exit code: 1 where a conversation is missing from what is printed."""
    is_one = args.thread is not None or args.step is not None
    if sum(map(bool, (is_one, args.recommend, args.reader))) > 1:
        raise ConfigError(
            "--thread or --step, --recommend and --reader answer different questions: give one"
        )
    if args.recommend and args.policy:
        raise ConfigError("--recommend tries settings of its own: leave out --policy")
    quiet()
    default = [next(iter(PRESETS))] if is_one else [next(iter(PRESETS)), *PLAIN]
    names = dict.fromkeys(args.policy or default)
    policies = candidates() if args.recommend else list(map(Policy.named, names))
    left_out = list[str]()

    def tell(fault: str) -> None:
        left_out.append(fault)
        say(fault, file=sys.stderr)

    conversations = read_conversations(args.files, tell=tell)
    if is_one:
        _run_one(args, policies[0], conversations)
    elif args.reader:
        _run_reader(args, policies, conversations, tell)
    else:
        _run_compare(args, policies, conversations, tell)
    return EXIT_FAILED if left_out else 0


def _run_compare(
    args: argparse.Namespace,
    policies: Sequence[Policy],
    conversations: Iterable[Conversation],
    tell: Tell,
) -> None:
    every = list(conversations)
    results = compare(every, policies, args.window, tell=tell)
    if not results[0].conversations:
        places = ", ".join(map(str, args.files))
        raise ConfigError(f"{places}: no conversation to replay")
    chosen = recommended(results) if args.recommend else results[0]
    if args.recommend:
        _print_recommended(results, chosen)
    else:
        _print_table(results)
    if args.html:
        longest = max(every, key=lambda one: len(one.messages))
        _draw(args, longest, policies[results.index(chosen)])


def _draw(args: argparse.Namespace, conversation: Conversation, policy: Policy) -> None:
    try:
        args.html.write_text(page(conversation, policy, args.window), "utf-8")
    except OSError as error:
        raise ConfigError(f"--html {args.html}: {error.strerror or error}") from error
    say(f"drew {conversation.name}: {args.html}", file=sys.stderr)


def _run_reader(
    args: argparse.Namespace,
    policies: Sequence[Policy],
    conversations: Iterable[Conversation],
    tell: Tell,
) -> None:
    """Have a model read the requests, and print what each policy loses by it."""
    reader, reads = LanguageModel(args.reader), list[Read]()
    for conversation in conversations:
        try:
            reads += read_conversation(reader, conversation, policies, args.window)
        except Exception as error:  # noqa: BLE001  # one odd recording must not end a comparison of thousands
            tell(failure(conversation, error))
    if not reads:
        raise ConfigError(
            f"{args.window:,} tokens: nothing ever had to leave that a model could read; lower --window"
        )
    for line in table(reads, [policy.name for policy in policies]):
        say(line)


def _print_recommended(results: Sequence[ReplayResult], chosen: ReplayResult) -> None:
    best = max(result.sufficiency or 0 for result in results)
    cheapest = min(result.billed_per_request for result in results)
    for line in (
        f"# of {len(results)} settings: shows {chosen.sufficiency:.3f} of what was needed (the best {best:.3f}),",
        f"# billed {chosen.billed_per_request:,.0f} tokens per request (the cheapest {cheapest:,.0f}),",
        f"# over {chosen.conversations:,} conversations in a window of {chosen.window:,} tokens",
        *chosen.policy.split("\n"),
    ):
        say(line)


def _print_table(results: Sequence[ReplayResult]) -> None:
    first = results[0]
    say(
        f"{first.conversations:,} conversations, {first.requests:,} requests, a window of {first.window:,} tokens"
    )
    rows = [
        {
            "policy": result.policy,
            "requests": result.requests,
            "over limit": result.over_limit,
            "not sent": result.unsent,
            "compactions": result.compactions,
            "needed shown": result.sufficiency,
            "billed": round(result.billed_per_request) if result.sent else None,
        }
        for result in results
    ]
    for line in (*lines_of(rows), *LEGEND):
        say(line)


# ---- one conversation -----------------------------------------------------------------------------------------------


def _run_one(
    args: argparse.Namespace, policy: Policy, conversations: Iterable[Conversation]
) -> None:
    """Print one request of the one conversation that is meant, the last one without a number."""
    found = [one for one in conversations if args.thread in {None, one.name}]
    if len(found) != 1:
        names = ", ".join(one.name for one in found[:MOST_NAMED])
        raise ConfigError(
            f"there are several conversations, choose one with --thread: {names}"
            if found
            else f"--thread {args.thread}: there is no conversation of this name"
        )
    if args.html:
        _draw(args, found[0], policy)
    try:
        data = page_data(found[0], policy, args.window)
    except Exception as error:  # what a recording holds may be of any program
        raise ConfigError(failure(found[0], error)) from error
    number, count = args.step, len(data["steps"])
    if not 1 <= (number or count) <= count:
        raise ConfigError(
            f"--step {number}: {found[0].name} has {count:,} requests under {policy.name}"
        )
    for line in _lines_of_request(data, number or count):
        say(line)


def _lines_of_request(data: Mapping[str, Any], number: int) -> Iterator[str]:
    """The size of one request, a line for each message, with how it is shown, and what stands beside them."""
    steps = data["steps"][:number]
    now = steps[-1]
    sizes = f"{now['tokens']:,} of {data['limit']:,} tokens"
    yield f"{data['name']} under {data['policy']}: request {number:,} of {len(data['steps']):,}"
    yield (
        f"{sizes}, {now['cached']:,} of them in the request before"
        if now["fits"]
        else f"not sent: {sizes}, and nothing more could leave"
    )
    if now["missing"]:
        yield f"needed by the next call, seen before and not shown: {', '.join(now['missing'])}"
    yield ""
    visible = {*now["shown"]}
    hidden = {*range(now["history"])} - visible
    for place, message in enumerate(data["messages"][: now["history"]]):
        if place in hidden:
            how = _left(steps, place)
        elif place in now["edited"]:
            how = "shortened"
        else:
            how = "kept although older" if place < max(hidden, default=0) else "shown"
        text = " ".join(message["text"].split())
        short = text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}..."
        yield f"{place + 1:>5} {message['role']:<7}{how:<20} {short}"
    for note in now["notes"]:
        yield from ("", "beside the messages:", note)


def _left(steps: Sequence[Mapping[str, Any]], place: int) -> str:
    """Before which request a message left that the last of them does not show, and why."""
    number, step = next(
        (number, step)
        for number, step in enumerate(steps, 1)
        if (step["fits"] or step is steps[-1])
        and step["history"] > place
        and place not in step["shown"]
    )
    return f"left before request {number:,}" + (
        step["reason"] and f": {step['reason']}"
    )


# ---- one conversation as a page --------------------------------------------------------------------------------------

REGIONS = {
    "system": "system messages",
    "tool": "tools",
    "summary": "summary",
    "record": "record",
    "pinned": "kept although older",
    "history": "messages",
}
"""Regions of a request, as the keys of a `context_report` begin, and what the page calls them."""

SHOWN_CHARS = 1_500
"""Text of a message that the page holds: enough to know it by, and a page of 400 requests stays within some MB."""


def page(conversation: Conversation, policy: Policy, window: int) -> str:
    """Return the HTML of one conversation under one policy.

    Nothing is loaded from elsewhere, and what was said is shown as text alone.
    """
    data = page_data(conversation, policy, window)
    # so that no text ends the script
    script_data = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    # recordings hold halves of characters, which no file takes
    script_data = script_data.encode(errors="replace").decode()
    return (
        (files(__package__) / "page.html")
        .read_text(encoding="utf-8")
        .replace("__DATA__", script_data)
    )


def page_data(
    conversation: Conversation, policy: Policy, window: int
) -> dict[str, Any]:
    """Return what the page shows, in JSON values."""
    messages, sent = conversation.messages[conversation.begins :], list[Sent]()
    result = replay(conversation, policy, window, heard=sent.append)
    places = {message.id: place for place, message in enumerate(messages)}
    return {
        "name": conversation.name,
        "policy": policy.name,
        "window": window,
        "limit": input_limit(window, policy),
        "result": result.to_dict(),
        "regions": list(REGIONS.values()),
        "messages": [
            {"role": message.type, "text": _printed(message)} for message in messages
        ],
        "steps": [_step(one, messages, places) for one in sent],
    }


def _step(
    sent: Sent, messages: Sequence[AnyMessage], places: dict[str | None, int]
) -> dict[str, Any]:
    """The page's data of one request."""
    placed_messages = {
        places[message.id]: message for message in sent.request if message.id in places
    }
    notes = [
        message
        for message in sent.request
        if message.id not in places and not isinstance(message, SystemMessage)
    ]
    sizes = [sent.report.get(f"{name}_tokens", 0) for name in REGIONS]
    if not any(sizes):  # a plain policy tells of none
        sizes[-1] = 1
    # the report estimates: its proportions are those of what was counted
    sizes = [round(size * sent.tokens / sum(sizes)) for size in sizes]
    is_compaction = sent.fits and not sent.is_extended
    return {
        "tokens": sent.tokens,
        "fits": sent.fits,
        "cached": sent.cached_tokens,
        "sizes": sizes,
        "history": sent.history,
        "shown": sorted(placed_messages),
        "edited": {
            place: _printed(message)
            for place, message in placed_messages.items()
            if message.content != messages[place].content
        },
        "notes": [text_of(message.content) for message in notes],
        "missing": sent.missing,
        "compaction": is_compaction,
        "reason": sent.guard.get("reason", "") if is_compaction else "",
    }


def _printed(message: AnyMessage) -> str:
    """The text of a message with its calls, its beginning where it is long."""
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    call_lines = (
        f"→ {call['name']}({json.dumps(call['args'], ensure_ascii=False, default=str)})"
        for call in calls
    )
    text = "\n".join(filter(None, (text_of(message.content), *call_lines)))
    return (
        text
        if len(text) <= SHOWN_CHARS
        else f"{text[:SHOWN_CHARS]} … ({len(text):,} characters)"
    )
