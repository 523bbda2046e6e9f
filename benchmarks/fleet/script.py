"""What the threads of the fleet say, the same whenever and wherever they are held, and how a run of them is judged."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage

from langchain_ctxwin.testing import request_faults

RULE_TURN, PIN_TURN = 1, 2  # the first message of all is pinned anyway
FIRST_FACT_TURN, FACT_EVERY = 3, 4
RESULT_EVERY = 2  # turns for which one large result is read on
CALLS = 2  # of each turn, before its answer
ROWS = 240  # of a result: many more than the pages that are read
THINGS = ("bicycle", "garage", "locker", "boat", "cellar", "attic", "barn", "safe")
PIN_WORD = "Policy:"
FILLER = "Please look into the stock of this depot, read on where the list goes on, and tell me how far you came. "

ABOUT = re.compile(r"Turn (\d+) of ([0-9a-f-]{36})")
ROW = re.compile(r"\b([0-9a-f]{8})t(\d+)n(\d+)\b")
CURSOR = re.compile(r"[\w-]{12}\.[0-9a-f]+\.[\w-]{6}\.[\w-]{22}(?![\w-])")


def thread_id(number: int) -> str:
    return str(uuid5(NAMESPACE_OID, f"fleet {number}"))


def message_id(thread: str, turn: int) -> str:
    """Sent with each question, so that a run that is done again adds it once."""
    return f"{thread}:{turn}"


def code(thread: str, name: str) -> str:
    """A value nobody can guess."""
    return f"{name[0].upper()}{hashlib.sha256(f'{thread} {name}'.encode()).hexdigest()[:7]}"


def question(thread: str, turn: int) -> str:
    return " ".join(_sentences(thread, turn))


def _sentences(thread: str, turn: int) -> Iterator[str]:
    if turn == PIN_TURN:
        yield f"{PIN_WORD} sign each answer with {code(thread, 'pin')}."
    yield f"Turn {turn} of {thread}."
    if turn == RULE_TURN:
        yield f"Our rule: never ship with any carrier but {code(thread, 'rule')}."
    if name := fact_of(turn):
        yield f"Remember that the key number of my {name} is {code(thread, name)}."
    yield FILLER.strip()


def fact_of(turn: int) -> str:
    """What a turn tells the number of, empty when it tells none."""
    number, rest = divmod(turn - FIRST_FACT_TURN, FACT_EVERY)
    return THINGS[number % len(THINGS)] if turn >= FIRST_FACT_TURN and not rest else ""


def told(thread: str, turn: int) -> dict[str, str]:
    """What each request of a turn has to show of the turns before it: its kind and name, and the text."""
    found = {}
    if turn > RULE_TURN:
        found["rule"] = code(thread, "rule")
    if turn > PIN_TURN:
        found["pin"] = question(thread, PIN_TURN)
    names = [fact_of(earlier) for earlier in range(turn)]
    found |= {f"fact {name}": code(thread, name) for name in names if name}
    return found


def topic(thread: str, turn: int) -> str:
    return f"{thread[:8]}t{turn}"


def rows_of(of_topic: str) -> list[dict[str, object]]:
    return [
        {"id": f"{of_topic}n{number}", "stock": number * 7 % 100}
        for number in range(ROWS)
    ]


def page_fault(text: str, thread: str) -> str:
    """What is wrong with a page that a thread was shown; empty when it has rows of its own, in order."""
    found = [
        (owner, int(turn), int(number)) for owner, turn, number in ROW.findall(text)
    ]
    if not found:
        return "no rows"
    owner, turn, first = found[0]
    wanted = [(thread[:8], turn, first + index) for index in range(len(found))]
    return (
        ""
        if found == wanted
        else f"rows of {owner} from {turn}, {first} are not those of {thread[:8]} in order"
    )


def seen_in(messages: Sequence[BaseMessage], thread: str) -> dict[str, Any]:
    """What a request shows, and what it should and does not."""
    start, turn = newest_question(messages)
    text = "\n".join(message.text for message in messages)
    return {
        "turn": turn,
        "orphans": request_faults(messages),
        "missing": [
            name for name, value in told(thread, turn).items() if value not in text
        ],
        "earlier": [message.id for message in messages[:start] if message.id],
    }


def newest_question(messages: Sequence[BaseMessage]) -> tuple[int, int]:
    """Position and turn of the question to be answered."""
    for index in reversed(range(len(messages))):
        about = ABOUT.search(messages[index].text)
        if isinstance(messages[index], HumanMessage) and about:
            return index, int(about[1])
    return 0, -1


def decide(messages: Sequence[BaseMessage], _: Any = ()) -> AIMessage:
    """The next call of the turn, or its answer."""
    start, turn = newest_question(messages)
    about = ABOUT.search(messages[start].text)
    thread = about[2] if about else ""
    calls = [
        call
        for message in messages[start:]
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    # earlier steps of the turn may have left
    done = 1 + int(calls[-1]["id"].rpartition("-")[2]) if calls else 0
    if done == CALLS:
        rows = ROW.findall(messages[-1].text)
        reached = int(rows[-1][2]) + 1 if rows else 0
        return AIMessage(
            f"Turn {turn} of {thread}: I read {reached} rows. "
            + "The list goes on as expected. " * 6
        )
    # the record has one, too
    cursors = CURSOR.findall("\n".join(message.text for message in messages))
    is_new = not done and turn % RESULT_EVERY == 0
    if cursors and not is_new:
        call = {"name": "read_more", "args": {"cursor": cursors[-1]}}
    else:
        call = {"name": "list_stock", "args": {"depot": topic(thread, turn)}}
    return AIMessage(
        "", tool_calls=[{**call, "id": f"call-{turn}-{done}", "type": "tool_call"}]
    )


# ---- how a run is judged ------------------------------------------------------------------------------------------
# By what its workers noted and what is stored: every count of a fault has to be zero.

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
        if (wanted := message_id(thread, number)) not in asked:
            yield LOST, f"{thread}: question {wanted}"
    for one, times in asked.items():
        if times > 1:
            yield TWICE, f"{thread}: question {one}"
    for start, stop in pairwise([*places, len(history)]):
        said = [m for m in history[start + 1 : stop] if isinstance(m, AIMessage)]
        answers = sum(not message.tool_calls for message in said)
        calls = sum(len(message.tool_calls) for message in said)
        where = f"{history[start].id}: {answers} answers, {calls} calls"
        if answers < 1 or calls < CALLS:
            yield LOST, where
        if answers > 1 or calls > CALLS:
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
