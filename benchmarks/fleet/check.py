"""Judges a run of the fleet by what its workers noted and what is stored: every count of a fault has to be zero."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from fleet import script
from langchain_ctxwin.testing import request_faults

Line = Mapping[str, Any]
FAILED, TWICE, LOST = "turns failed", "turns run twice", "messages lost"
OVER, ORPHANS = "requests over the limit", "orphaned calls and results"
UNTOLD = "requests without a rule, a pin or a fact of the thread"
UNREAD = "cursors and results that could not be read"
PAID = "summaries paid twice at one snapshot"
FAULTS = (FAILED, TWICE, LOST, OVER, ORPHANS, UNTOLD, UNREAD, PAID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as its client saw it."""

    thread: str
    number: int
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is stored of a thread in the end."""

    thread: str
    history: Sequence[AnyMessage]
    compactions: int


def faults(
    diary: Sequence[Line], turns: Sequence[Turn], threads: Sequence[Stored]
) -> dict[str, list[str]]:
    """Where each thing happened that must not."""
    found: dict[str, list[str]] = {name: [] for name in FAULTS}
    asked = Counter(turn.thread for turn in turns if not turn.error)
    for turn in turns:
        if turn.error:
            found[FAILED].append(f"{turn.thread} turn {turn.number}: {turn.error}")
    for line in of_kind(diary, "page"):
        if line["fault"]:
            found[UNREAD].append(f"{line['thread']}: {line['fault']}")
    for key, processes in summaries(diary).items():
        if len(processes) > 1:
            found[PAID].append(" ".join(key))
    for name, where in (
        *_in_requests(of_kind(diary, "request"), threads),
        *(pair for one in threads for pair in _in_history(one, asked[one.thread])),
    ):
        found[name].append(where)
    return found


def of_kind(diary: Iterable[Line], kind: str) -> list[Line]:
    return [line for line in diary if line["kind"] == kind]


def summaries(diary: Iterable[Line]) -> dict[tuple[str, str], list[int]]:
    """The processes that wrote a summary, by thread and snapshot."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in of_kind(diary, "summary"):
        found[line["thread"], line["snapshot"]].append(line["pid"])
    return found


Found = Iterator[tuple[str, str]]
"""A fault, and where it is."""


def _in_requests(requests: Sequence[Line], threads: Sequence[Stored]) -> Found:
    kept = {one.thread: {message.id for message in one.history} for one in threads}
    lost: dict[str, None] = {}
    for line in requests:
        what = {name: line[name] for name in ("tokens", "limit", "orphans", "missing")}
        where = f"{line['thread']} turn {line['turn']} at {line['worker']}: {what}"
        if line["tokens"] > line["limit"]:
            yield OVER, where
        if line["orphans"]:
            yield ORPHANS, where
        if line["missing"]:
            yield UNTOLD, where
        # summary, record and notes stand in a request and are no message of the history, nor is the word that a
        # question was answered
        shown = {
            one.removesuffix(":answered")
            for one in line["earlier"]
            if not one.startswith("ctxwin")
        }
        for one in shown - kept.get(line["thread"], set()):
            lost[f"{line['thread']}: {one}"] = None
    yield from ((LOST, where) for where in lost)


def _in_history(stored: Stored, turns: int) -> Found:
    thread, history = stored.thread, stored.history
    for fault in request_faults(history):
        yield ORPHANS, f"{thread}: {fault} in the history"
    places = [at for at, one in enumerate(history) if isinstance(one, HumanMessage)]
    asked = Counter(history[at].id for at in places)
    for number in range(turns):
        if (wanted := script.message_id(thread, number)) not in asked:
            yield LOST, f"{thread}: question {wanted}"
    for one, times in asked.items():
        if times > 1:
            yield TWICE, f"{thread}: question {one}"
    for start, stop in pairwise([*places, len(history)]):
        said = [m for m in history[start + 1 : stop] if isinstance(m, AIMessage)]
        answers = sum(not message.tool_calls for message in said)
        calls = sum(len(message.tool_calls) for message in said)
        where = f"{history[start].id}: {answers} answers, {calls} calls"
        if answers < 1 or calls < script.CALLS:
            yield LOST, where
        if answers > 1 or calls > script.CALLS:
            yield TWICE, where


def figures(
    diary: Sequence[Line],
    turns: Sequence[Turn],
    threads: Sequence[Stored],
) -> dict[str, str]:
    """What happened, beside the faults."""
    requests = of_kind(diary, "request")
    workers: dict[str, list[str]] = defaultdict(list)
    for line in requests:
        workers[line["thread"]].append(line["worker"])
    readers: dict[str, set[str]] = defaultdict(set)
    for line in of_kind(diary, "page"):
        if not line["fault"]:
            readers[line["result"]].add(line["worker"])
    moved = sum(one != other for at in workers.values() for one, other in pairwise(at))
    crossed = sum(len(at) > 1 for at in readers.values())
    taken = sorted(turn.seconds for turn in turns)
    return {
        "turns": f"{len(turns):,}",
        "requests": f"{len(requests):,}",
        "seconds of a turn, median / longest": f"{taken[len(taken) // 2]:.1f} / {taken[-1]:.1f}",
        "largest request, tokens": f"{max(line['tokens'] for line in requests):,}",
        "summaries written": f"{sum(map(len, summaries(diary).values())):,}",
        "compactions": str(sum(stored.compactions for stored in threads)),
        "requests at another worker than the one before": f"{moved:,}",
        "large results / of these read at several workers": f"{len(readers):,} / {crossed:,}",
    }
