"""What the threads of the fleet say: a conversation that is the same whenever, and wherever, it is held."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

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
