"""The scenario: an agent answers questions about half a million tokens of JSON through a small window."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.demo.offline_model import (
    ANSWERS,
    QUESTIONS,
    Fields,
    Move,
    OfflineChatModel,
    Result,
    Sight,
    lost,
    patterns,
    recall,
    text_tokens,
    understand,
)
from langchain_ctxwin.demo.story import INDENT, REASON, Promise, Screen, StoryThread, input_limit, limits_of
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tool_results.guard import MIN_TOKENS
from langchain_ctxwin.tool_results.stores import MemoryResultStore

SYSTEM_PROMPT = (
    "You answer questions about rows that tools return. A result that is too large is shown in part, with a cursor to "
    "read on: search it, or read only the fields that you need. Answer in one sentence, and say only what the tools "
    "returned."
)

ROW_QUESTIONS = {
    "find": "What is the `{field}` of the row whose `{key}` is `{value}`?",
    "total": "Of the rows whose `{key}` is `{value}`: how many are there, and what is the sum of their `{field}`?",
    "borrowed": "A colleague copied me the cursor `{cursor}`. What does read_more show for it?",
    "recall": QUESTIONS["recall"],
}
ROW_PATTERNS = patterns(ROW_QUESTIONS)
FOUND = "Its {field} is {value}."
TOTAL = "There are {rows} rows; their {field} adds up to {total}."
REFUSED, CUT = "It is refused", "characters left out"

CURSOR = re.compile(r'cursor="([^"]+)"')
NEXT_PAGE = re.compile(r'Next page: read_more\(cursor="([^"]+)"')
FETCH_ROWS, READ_MORE = "fetch_rows", "read_more"

ROWS = 2_400  # with some 210 tokens each, half a million tokens in all
LAST_ROWS = 70  # that some questions are about
AN_HOUR_SECONDS = 3_600.0
TOWNS = ("Graz", "Brno", "Turin", "Lyon", "Ghent", "Malmo", "Porto", "Varna", "Riga", "Cork", "Split", "Basel")
NAMES = ("Ahlgren", "Bertani", "Corvin", "Duarte", "Elmsworth", "Fontaine", "Grabner", "Holloway", "Ilves", "Jansen")
REMARKS = (
    "The consignee asked for a call before delivery.",
    "Two parcels were joined at the depot and carry one label now.",
    "The seal was checked at the border and found intact.",
    "Fragile goods: keep upright, do not stack more than two high.",
    "The driver waited for the ramp and left a note about the gate.",
)


class ReaderModel(OfflineChatModel):
    """Answers questions about rows: calls a tool, finds the cursor in the note of the result, and reads on with it."""

    model: str = "offline-reader"

    def _next_move(self, sight: Sight) -> Move:
        understood = understand(sight.question, ROW_PATTERNS)
        if understood is None:
            return lost("a question that I understand")
        kind, fields = understood
        if kind == "recall":
            return recall(fields, sight)
        if kind != "borrowed":
            return _search(kind, fields, sight)
        if not sight.results:
            return Move("I try it.", ((READ_MORE, {"cursor": fields["cursor"]}),))
        return Move(f"{REFUSED}: {sight.results[0].text}" if sight.results[0].is_error else "It shows a page.")


def play(
    screen: Screen, *, window_tokens: int, seed: int = 0, rows: int = ROWS, model: BaseChatModel | None = None
) -> list[Promise]:
    """Ask about generated rows: search, walk through pages, a changed cursor, an expired one."""
    dice = random.Random(seed)  # noqa: S311  # sample data, no secret
    shipments = [_shipment(dice, number) for number in range(rows)]
    text, limits, passed_seconds = json.dumps(shipments), limits_of(window_tokens), 0.0

    def clock() -> float:
        return time.time() + passed_seconds

    guard = ToolResultGuard(store=MemoryResultStore(clock=clock), clock=clock)
    graph = create_context_agent(
        model or ReaderModel(context_window=window_tokens, max_tokens=limits.output_reserve()),
        [StructuredTool.from_function(lambda: text, name=FETCH_ROWS, description="Return all rows as JSON.")],
        system_prompt=SYSTEM_PROMPT,
        limits=limits,
        guard=guard,
        checkpointer=InMemorySaver(),
    )
    shown: list[ToolMessage] = []

    def wrote(message: AnyMessage) -> None:
        if isinstance(message, ToolMessage):
            shown.append(message)
            head = message.text.partition("\n")[0].strip("[]").partition(" Between the marks")[0]
            screen.line((f"{INDENT}<- {text_tokens(message.text):,} tokens: ", REASON), (head, "cyan"))

    talk = StoryThread(graph=graph, screen=screen, limits=limits, model=model, wrote=wrote)
    size = f"{rows:,} shipments, {text_tokens(text):,} tokens"
    screen.opening(f"Large results: an agent answers questions about {size} in one tool result", limits)
    first = _find(dice.choice(shipments[-LAST_ROWS:]), "quantity")
    talk.ask(*first)
    town = dice.choice(TOWNS)
    found = [row["quantity"] for row in shipments if row["town"] == town]
    question = ROW_QUESTIONS["total"].format(key="town", value=town, field="quantity")
    talk.ask(question, TOTAL.format(rows=len(found), field="quantity", total=sum(found)))
    if cursor := newest_cursor(shown):  # a real model may have found another way
        talk.ask(ROW_QUESTIONS["borrowed"].format(cursor=changed(cursor)), REFUSED)
    passed_seconds += AN_HOUR_SECONDS
    screen.line((f"{INDENT}An hour passes. Results are kept for ten minutes after they were last read.", REASON))
    talk.ask(*_find(dice.choice(shipments[-LAST_ROWS:]), "status"))
    talk.ask(ROW_QUESTIONS["recall"], ANSWERS["recall"].format(answer=first[1]))
    allowed = min(guard.config.max_tokens, max(MIN_TOKENS, int(guard.config.max_share * input_limit(limits))))
    return [*_paging(shown, text_tokens(text), allowed), *talk.claims()]


def newest_cursor(messages: Sequence[BaseMessage]) -> str:
    """Return the cursor of the newest first page of the rows in the request; else an empty text."""
    pages = (message for message in reversed(messages) if message.type == "tool" and message.name == FETCH_ROWS)
    found = (CURSOR.findall(page.text) for page in pages)
    return next((cursors[-1] for cursors in found if cursors), "")


def changed(cursor: str) -> str:
    """Return a cursor with one character of its place changed, as somebody would who wants to read elsewhere."""
    result_id, offset, rest = cursor.split(".", 2)
    return f"{result_id}.{offset[:-1]}{'1' if offset[-1] != '1' else '2'}.{rest}"


def _search(kind: str, fields: Fields, sight: Sight) -> Move:
    """Search the rows for the value, with a cursor that is still in view or that of another first page."""
    wanted = {"contains": fields["value"], "fields": [fields["key"], fields["field"]]}
    latest = sight.results[0] if sight.results else None
    if latest and latest.name == READ_MORE and not latest.is_error:
        return _read_on(kind, fields["field"], latest, sight.note, wanted)
    cursor = newest_cursor(sight.messages)
    if latest and latest.name == FETCH_ROWS and not cursor:
        return lost(f"a cursor in {latest.text}")
    if cursor and not (latest and latest.is_error):
        call = (READ_MORE, {"cursor": cursor, **wanted})
        return Move("Too much to read row by row, so I search.", (call,), sight.note)
    if sight.note:
        return lost("a cursor that is good")
    return Move("I fetch the rows.", ((FETCH_ROWS, {}),), {"fetched": 1})


def _read_on(kind: str, field: str, page: Result, note: Mapping[str, Any], wanted: Mapping[str, Any]) -> Move:
    """Walk through what was found; what was counted so far travels in the note."""
    values, following = list(_column(page.text, field)), NEXT_PAGE.search(page.text)
    if CUT in page.text or (kind == "find" and not values):
        return lost(f"the {field} in {page.text}")
    if kind == "find":
        return Move(FOUND.format(field=field, value=values[0]))
    rows, total = note.get("rows", 0) + len(values), note.get("total", 0) + sum(map(int, values))
    if following is None:
        return Move(TOTAL.format(rows=rows, field=field, total=total))
    call = (READ_MORE, {"cursor": following[1], **wanted})
    return Move(f"{rows} so far.", (call,), {"rows": rows, "total": total})


def _column(page: str, field: str) -> Iterator[str]:
    """Read a column of a page as it stands there: rows are objects in a line each, or cells below a header."""
    header: list[str] = []
    for line in page.partition("<data ")[2].partition("</data ")[0].split("\n")[1:]:
        cells = line.split("|")
        if line.startswith("{"):
            pairs = (pair.partition(":") for pair in line.strip("{}").split(","))
            yield from (value for name, _, value in pairs if name == field)
        elif field in cells:
            header = cells
        elif header and len(cells) == len(header):
            yield cells[header.index(field)]


def _find(row: Mapping[str, Any], field: str) -> tuple[str, str]:
    question = ROW_QUESTIONS["find"].format(field=field, key="id", value=row["id"])
    return question, FOUND.format(field=field, value=row[field])


def _paging(shown: Sequence[ToolMessage], raw_tokens: int, allowed: int) -> list[Promise]:
    sizes = [text_tokens(message.text) for message in shown]
    pages = [message.status for message in shown if message.name == READ_MORE]
    share = f"{sum(sizes):,} of {raw_tokens:,} tokens ({sum(sizes) / raw_tokens:.1%})"
    return [
        Promise("no page takes more than a result may", f"up to {max(sizes):,} of {allowed:,}", max(sizes) <= allowed),
        Promise("shown of the payload, all pages together", share, sum(sizes) < raw_tokens),
        Promise("pages read on, cursors refused", f"{pages.count('success')}, {pages.count('error')}"),
    ]


def _shipment(dice: random.Random, number: int) -> dict[str, Any]:
    code = f"{dice.choice(NAMES)[:2].upper()}-{10_000 + 7 * number}"
    return {
        "id": code,
        "customer": f"{dice.choice(NAMES)} {dice.choice(NAMES)} {number + 1}",
        "status": dice.choice(("delivered", "in_transit", "held", "returned")),
        "ordered_at": f"2024-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(6, 21):02}:15:00Z",
        "total_amount": dice.randint(1_000, 99_999) / 100,
        "quantity": dice.randint(1, 40),
        "town": dice.choice(TOWNS),
        "label_url": f"https://labels.example.com/{code}/{dice.getrandbits(64):016x}.pdf",
        "tracking_url": f"https://track.example.com/{code}?key={dice.getrandbits(64):016x}",
        "contact": {"name": f"{dice.choice('ABCDEFG')}. {dice.choice(NAMES)}", "email": f"desk{number}@example.com"},
        "remark": " ".join(dice.sample(REMARKS, 2)),
    }
