"""The command `ctxwin inspect`: what the model saw of one conversation at one request, and why the rest had left."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.core.edits import text_of
from langchain_ctxwin.core.record import render_record
from langchain_ctxwin.core.session import valid_view
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.replay.page import page, require_writable, write_page
from langchain_ctxwin.replay.playing import Sent, input_limit, quiet, replay
from langchain_ctxwin.replay.policies import Policy
from langchain_ctxwin.replay.reading import Conversation, read_conversations
from langchain_ctxwin.replay.threads import is_database, thread_states
from langchain_ctxwin.util.terminal import escaped

MOST_NAMED = 20  # conversations that are listed where several could be meant
LINE_CHARS = 100  # text of a message in its line: enough to know it by


def run_inspect(args: argparse.Namespace) -> int:
    """Print one request, and return the exit code.

    Raises:
        ConfigError: there is no such conversation or request, or several could be meant.
    """

    def tell(fault: str) -> None:
        print(escaped(fault), file=sys.stderr)

    quiet()
    if args.html:
        require_writable(args.html)
    if is_database(args.source) and not (args.policy or args.step or args.html):
        lines = _live(*_chosen(thread_states(args.source, tell=tell), args.thread))
    else:
        named = ((one.name, one) for one in read_conversations([args.source], tell=tell))
        _, conversation = _chosen(named, args.thread)
        policy = Policy.named(args.policy or "balanced")
        if args.html:
            write_page(args.html, page(conversation, policy, args.window))
            tell(f"drew {conversation.name}: {args.html}")
        lines = _at_request(conversation, policy, args.window, args.step)
    for line in lines:
        print(escaped(line))
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
    names = ", ".join(name for name, _ in found[:MOST_NAMED]) + (", ..." if len(found) > MOST_NAMED else "")
    raise ConfigError(f"there are several conversations, choose one with --thread: {names}")


def _at_request(conversation: Conversation, policy: Policy, window: int, number: int | None) -> Iterator[str]:
    """The lines that tell of one request of a replay; of the last one, when no number is given."""
    sent = list[Sent]()
    replay(conversation, policy, window, heard=sent.append)
    number = len(sent) if number is None else number
    if not 1 <= number <= len(sent):
        raise ConfigError(f"--step {number}: {conversation.name} has {len(sent):,} requests under {policy.name}")
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
            yield from ("", f"beside the messages ({note.type}):", text_of(note.content))


def _reasons(sent: Sequence[Sent], history: Sequence[AnyMessage]) -> dict[str, str]:
    """Say of each message whether the last of these requests shows it, and where it left."""
    now, why = sent[-1], dict[str, str]()
    shown = {message.id: message for message in now.request}
    left = max((index for index, message in enumerate(history) if message.id not in shown), default=-1)
    for index, message in enumerate(history):
        key = str(message.id)
        if message.id in shown:
            edited = shown[message.id].content != message.content
            why[key] = "shortened" if edited else "kept although older" if index < left else "shown"
            continue
        gone = next(
            at
            for at, one in enumerate(sent, 1)
            if (one.fits or one is now) and one.history > index and all(m.id != key for m in one.request)
        )
        reason = sent[gone - 1].guard.get("reason", "")
        why[key] = f"left before request {gone:,}" + (f": {reason}" if reason else "")
    return why


def _live(thread: str, state: Mapping[str, Any]) -> Iterator[str]:
    """The lines that tell what the model sees of a thread, by the state that its checkpointer holds."""
    messages: Sequence[AnyMessage] = state["messages"]
    view, _ = valid_view(state.get("context_view"))
    record, report, guard = (state.get(f"context_{name}") or {} for name in ("record", "report", "guard"))
    size = ""
    if {"total_tokens", "input_limit"} <= report.keys():
        told = f"{report['total_tokens']:,} of {report['input_limit']:,} tokens"
        size = f", the request before the last answer had {told}"
    yield f"thread {thread}: {len(messages):,} messages{size}"
    if "archived" in state:
        yield f"{state['archived']:,} older messages were archived to a store that is not in this database"
    if guard.get("compactions"):
        yield f"{guard['compactions']:,} compactions, the last one because {guard.get('reason', 'of a request')}"
    yield ""
    start = next((i for i, m in enumerate(messages) if view.start and m.id == view.start.id), 0)
    pinned, why = {position.id for position in view.pinned}, dict[str, str]()
    for index, message in enumerate(messages):
        key = message.id or ""
        if index < start and key not in pinned and not isinstance(message, SystemMessage):
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
        said = " ".join([text_of(message.content), *(f"-> {call['name']}({call['args']})" for call in calls)])
        text = " ".join(said.split())
        short = text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}..."
        yield f"{number:>5} {message.type:<7}{why.get(message.id or '', ''):<20} {short}"
