"""A chat model without a network that reads large results: it sees its request alone, never the payload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxwin.demo import row_phrases
from langchain_ctxwin.demo.offline_model import OfflineChatModel
from langchain_ctxwin.demo.page_reading import Cells, PageSeen, read_page
from langchain_ctxwin.demo.row_questions import spelled, total
from langchain_ctxwin.demo.sight import Result, Sight
from langchain_ctxwin.demo.skills import Move, lost

FETCH_ROWS = "fetch_rows"
READ_ROW = "read_row"
READ_MORE = "read_more"

AGAIN = "again"
"""Stands in the note once the rows were fetched again: cursors that are refused twice are not tried forever."""

Fields = dict[str, str]
Call = tuple[str, dict[str, Any]]
Skill = Callable[[Fields, Sight, str], Move]


class ReaderModel(OfflineChatModel):
    """Answers questions about rows: calls a tool, finds the cursor in the note of the result, and reads on with it."""

    model: str = "offline-reader"

    @property
    def _llm_type(self) -> str:
        return "offline-reader"

    def _next_move(self, sight: Sight, messages: Sequence[BaseMessage]) -> Move:
        return next_read(sight, newest_cursor(messages))


def newest_cursor(messages: Sequence[BaseMessage]) -> str:
    """Return the cursor of the newest first page of the rows in the request, the one to search with; else nothing.

    Cursors of later pages go on where they are.
    """
    texts = (message.text for message in reversed(messages) if isinstance(message, ToolMessage))
    pages = (read_page(text) for text in texts if text.startswith(f"[{FETCH_ROWS} returned"))
    return next((page.cursor for page in pages if page and page.cursor), "")


def next_read(sight: Sight, cursor: str) -> Move:
    """Decide what to do; what is missing from the sight is said, never guessed."""
    understood = row_phrases.WORDING.understand(sight.question)
    if understood is None:
        return lost("a question that I understand")
    kind, fields = understood
    return SKILLS[kind](fields, sight, cursor)


def _find(fields: Fields, sight: Sight, cursor: str) -> Move:
    """Search all rows for the name, however far away the row is."""
    wanted = {"contains": fields["value"], "fields": [fields["key"], fields["field"]]}
    page = _page(sight)
    if page is None:
        return _begin(sight, cursor, wanted)
    if not _is_reading(sight):
        return _read(page.cursor, wanted, "Too much to read row by row, so I search for the name.", sight.note)
    found = [row for row in page.rows if spelled(row.get(fields["key"])) == fields["value"]]
    if found and fields["field"] in found[0]:
        value = found[0][fields["field"]]
        return Move(text=f"Its {fields['field']} is {value}.", facts={"value": value})
    if page.following:
        return _read(page.following, wanted, "Not yet, I go on.")
    return lost(f"a row whose {fields['key']} is {fields['value']}")


def _count(fields: Fields, sight: Sight, cursor: str) -> Move:
    """Read that one field of every row, page by page."""

    def counted(note: Fields, rows: list[Cells]) -> Fields:
        hits = sum(spelled(row.get(fields["field"])) == fields["value"] for row in rows)
        return {"rows": str(int(note.get("rows", "0")) + hits)}

    def answered(note: Fields) -> Move:
        return Move(text=f"{int(note['rows']):,} rows do.", facts={"rows": int(note["rows"])})

    return _walk({"fields": [fields["field"]]}, sight, cursor, counted, answered)


def _total(fields: Fields, sight: Sight, cursor: str) -> Move:
    """Read the rows that contain the value, page by page, and keep those that have it in the right field."""

    def counted(note: Fields, rows: list[Cells]) -> Fields:
        hits = [row for row in rows if spelled(row.get(fields["key"])) == fields["value"]]
        before = float(note.get("sum", "0"))
        return {
            "rows": str(int(note.get("rows", "0")) + len(hits)),
            "sum": str(total([before, *(row.get(fields["field"]) for row in hits)])),
        }

    def answered(note: Fields) -> Move:
        facts = {"rows": int(note["rows"]), "sum": float(note["sum"])}
        return Move(text=f"{facts['rows']:,} rows; their {fields['field']} adds up to {facts['sum']:,}.", facts=facts)

    wanted = {"contains": fields["value"], "fields": [fields["key"], fields["field"]]}
    return _walk(wanted, sight, cursor, counted, answered)


def _walk(
    wanted: dict[str, Any],
    sight: Sight,
    cursor: str,
    counted: Callable[[Fields, list[Cells]], Fields],
    answered: Callable[[Fields], Move],
) -> Move:
    """Go through pages; what was counted so far travels in the note, because old pages leave the view."""
    page = _page(sight)
    if page is None:
        return _begin(sight, cursor, wanted)
    if not _is_reading(sight):
        return _read(page.cursor, wanted, "I read only what I need of every row.", sight.note)
    note = counted(sight.note, page.rows)
    if page.following:
        return _read(page.following, wanted, "", note)
    return answered(note)


def _text(fields: Fields, sight: Sight, _cursor: str) -> Move:
    """Fetch the row, then read its long text to the end."""
    wanted = {"fields": [fields["field"]]}
    if not sight.results:
        call = (READ_ROW, {"field": fields["key"], "value": fields["value"]})
        return Move(text="I fetch that row.", calls=(call,))
    page = _page(sight)
    if page is None:
        return lost(f"the {fields['field']} of that row")
    if not _is_reading(sight):
        return _read(page.cursor, wanted, "The text is shortened here, so I read all of it.")
    times = int(sight.note.get("times", "0")) + page.body.count(fields["word"])
    if page.following:
        return _read(page.following, wanted, "", {"times": str(times)})
    return Move(text=f"{times:,} times.", facts={"times": times})


def _borrowed(fields: Fields, sight: Sight, _cursor: str) -> Move:
    """Try the cursor, and say what the tool says."""
    if not sight.results:
        return _read(fields["cursor"], {}, "I try it.")
    result = sight.results[0]
    if result.is_error:
        return Move(text=f"It is refused: {result.text}", facts={"refused": True})
    return Move(text="It shows a page.", facts={"refused": False})


def _recall(_fields: Fields, sight: Sight, _cursor: str) -> Move:
    """Repeat the first answer, which is pinned with its question."""
    facts = {key: value for key, value in sight.first_answer.items() if key != "question"}
    if not facts:
        return lost("my first answer")
    return Move(text=f"I still see it: {', '.join(f'{key} {value}' for key, value in facts.items())}.", facts=facts)


def _page(sight: Sight) -> PageSeen | None:
    """The page in the latest result; None when there is none to go on with."""
    return read_page(sight.results[0].text) if sight.results and not sight.results[0].is_error else None


def _is_reading(sight: Sight) -> bool:
    """True when the latest result is a page that was asked for in this turn."""
    return sight.results[0].name == READ_MORE


def _begin(sight: Sight, cursor: str, wanted: dict[str, Any]) -> Move:
    """Use a cursor that is still in view; fetch the rows when there is none, or it is no longer good."""
    fetch: Call = (FETCH_ROWS, {})
    if not sight.results:
        return _read(cursor, wanted, "I still see a cursor.") if cursor else Move(text="I fetch them.", calls=(fetch,))
    result: Result = sight.results[0]
    if result.is_error and result.name == READ_MORE and AGAIN not in sight.note:
        text = "The cursor is no longer good, so I fetch the rows again."
        return Move(text=text, note={AGAIN: 1}, calls=(fetch,))
    return lost(f"a page in the result of {result.name}")


def _read(cursor: str, wanted: dict[str, Any], text: str, note: Fields | None = None) -> Move:
    if not cursor:
        return lost("a cursor")
    return Move(text=text, note=dict(note or {}), calls=((READ_MORE, {"cursor": cursor, **wanted}),))


SKILLS: dict[str, Skill] = {
    "find": _find,
    "count": _count,
    "total": _total,
    "text": _text,
    "borrowed": _borrowed,
    "recall": _recall,
}
