"""Judges a run of the fleet by what its workers noted and what is stored: every count of a fault has to be zero."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from fleet import script
from fleet.model import orphans

Line = Mapping[str, Any]
EXAMPLES = 3  # of each fault, enough to find it in the diary


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as its client saw it."""

    thread: str
    number: int
    seconds: float
    status: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is stored of a thread in the end."""

    thread: str
    history: Sequence[AnyMessage]
    compactions: int


@dataclass(slots=True)
class Faults:
    """How often something happened that must not, and where at first."""

    found: dict[str, list[str]] = field(default_factory=dict)

    def look(self, name: str, where: Iterable[str]) -> None:
        self.found.setdefault(name, []).extend(where)

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(where) for name, where in self.found.items()}

    @property
    def examples(self) -> dict[str, list[str]]:
        return {name: where[:EXAMPLES] for name, where in self.found.items() if where}


def faults(
    diary: Sequence[Line], turns: Sequence[Turn], threads: Sequence[Stored]
) -> Faults:
    """Look for everything that must not be."""
    found = Faults()
    found.look(
        "turns failed",
        (
            f"{t.thread} turn {t.number}: {t.status} {t.error}"
            for t in turns
            if _failed(t)
        ),
    )
    _look_at_requests(
        found, [line for line in diary if line["kind"] == "request"], threads
    )
    asked = Counter(turn.thread for turn in turns if not _failed(turn))
    for stored in threads:
        _look_at_history(found, stored, asked[stored.thread])
    unread = (line for line in diary if line["kind"] == "page" and line["fault"])
    found.look(
        "cursors and results that could not be read",
        (f"{one['thread']}: {one['fault']}" for one in unread),
    )
    twice = (
        key
        for key, lines in summaries(diary, "summary written").items()
        if len(lines) > 1
    )
    found.look("summaries paid twice at one snapshot", (" ".join(key) for key in twice))
    return found


def summaries(diary: Iterable[Line], kind: str) -> dict[tuple[str, str], list[Line]]:
    """Lines of one kind by thread and snapshot."""
    found: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in diary:
        if line["kind"] == kind:
            found[line["thread"], line["snapshot"]].append(line)
    return found


def _failed(turn: Turn) -> bool:
    return turn.status != "success"


def _look_at_requests(
    found: Faults, requests: Sequence[Line], threads: Sequence[Stored]
) -> None:
    found.look(
        "requests over the limit",
        (_where(line) for line in requests if line["tokens"] > line["limit"]),
    )
    found.look(
        "orphaned calls and results",
        (_where(line) for line in requests if line["orphans"]),
    )
    for name in ("rule", "pin", "fact"):
        missing = (
            line
            for line in requests
            if any(what.startswith(name) for what in line["missing"])
        )
        found.look(f"requests without a {name} of the thread", map(_where, missing))
    kept = {
        stored.thread: {message.id for message in stored.history} for stored in threads
    }
    seen: dict[str, set[str]] = defaultdict(set)
    for line in requests:
        seen[line["thread"]] |= {one for one in line["earlier"] if not _is_ours(one)}
    lost = [
        f"{thread}: {one}"
        for thread, ids in seen.items()
        for one in ids - kept.get(thread, set())
    ]
    found.look("messages lost", lost)


def _is_ours(message_id: str) -> bool:
    """True for what stands in a request and is no message of the history: summary, record, notes."""
    return message_id.startswith("ctxwin")


def _look_at_history(found: Faults, stored: Stored, turns: int) -> None:
    thread, history = stored.thread, stored.history
    found.look(
        "orphaned calls and results",
        (f"{thread}: {call} in the history" for call in orphans(history)),
    )
    places = [
        index
        for index, message in enumerate(history)
        if isinstance(message, HumanMessage)
    ]
    asked = [history[index].id for index in places]
    wanted = [script.message_id(thread, number) for number in range(turns)]
    found.look(
        "messages lost",
        (f"{thread}: question {one}" for one in wanted if one not in asked),
    )
    twice = [one for one, times in Counter(asked).items() if times > 1]
    found.look("turns run twice", (f"{thread}: question {one}" for one in twice))
    for start, stop in pairwise([*places, len(history)]):
        answers, calls = _done_in(history[start + 1 : stop])
        where = f"{history[start].id}: {answers} answers, {calls} calls"
        found.look(
            "messages lost", [where] if answers < 1 or calls < script.CALLS else []
        )
        found.look(
            "turns run twice", [where] if answers > 1 or calls > script.CALLS else []
        )


def _done_in(messages: Sequence[AnyMessage]) -> tuple[int, int]:
    """Final answers of a turn, and its calls."""
    said = [message for message in messages if isinstance(message, AIMessage)]
    return sum(not message.tool_calls for message in said), sum(
        len(message.tool_calls) for message in said
    )


def _where(line: Line) -> str:
    what = {name: line[name] for name in ("tokens", "limit", "orphans", "missing")}
    return f"{line['thread']} turn {line['turn']} at {line['worker']}: {what}"


def figures(
    diary: Sequence[Line],
    turns: Sequence[Turn],
    threads: Sequence[Stored],
    killed: set[int],
) -> dict[str, Any]:
    """What happened, beside the faults."""
    requests = [line for line in diary if line["kind"] == "request"]
    workers: dict[str, list[str]] = defaultdict(list)
    readers: dict[str, set[str]] = defaultdict(set)
    for line in diary:
        if line["kind"] == "request":
            workers[line["thread"]].append(line["worker"])
        elif line["kind"] == "page" and not line["fault"]:
            readers[line["result"]].add(line["worker"])
    begun, written = (
        summaries(diary, kind) for kind in ("summary begun", "summary written")
    )
    done = {(key, line["pid"]) for key, lines in written.items() for line in lines}
    lost = [
        pid
        for key, lines in begun.items()
        for pid in (line["pid"] for line in lines)
        if (key, pid) not in done
    ]
    seconds = sorted(turn.seconds for turn in turns)
    return {
        "turns": len(turns),
        "latency": [
            seconds[len(seconds) // 2],
            seconds[int(len(seconds) * 0.99)],
            seconds[-1],
        ]
        if seconds
        else [0] * 3,
        "requests": len(requests),
        "largest request, tokens": max(
            (line["tokens"] for line in requests), default=0
        ),
        "summaries": sum(map(len, written.values())),
        "died": sum(pid in killed for pid in lost),
        "unfinished": sum(pid not in killed for pid in lost),
        "compactions": sum(stored.compactions for stored in threads),
        "messages": sum(len(stored.history) for stored in threads),
        "moved": sum(
            one != other for at in workers.values() for one, other in pairwise(at)
        ),
        "results": len(readers),
        "crossed": sum(len(at) > 1 for at in readers.values()),
    }
