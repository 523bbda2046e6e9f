"""Reading of a kept result from a cursor on: its next page, a search in it, or other fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.core.field_paths import compile_fields
from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.contents import Content, restored
from langchain_ctxwin.tool_results.cursors import Cursor, CursorSigner, Record
from langchain_ctxwin.tool_results.notes import TERSE_TOKENS, Cursors, Notes, Reading, nothing_more
from langchain_ctxwin.tool_results.pages import QUESTION_BITS, Page, Place, Room, chosen, first_page, page_at, style_of
from langchain_ctxwin.tool_results.search import Search
from langchain_ctxwin.tool_results.view import Layout, Shown, View, layout_of

NOTE_TOKENS = 250
"""What the notes around a page take, before they are written: two lines, a dozen names of fields, a cursor."""

TERSE_NOTE_TOKENS = 120
"""The same for short notes."""

MAX_CONTAINS_CHARS = 500
"""Longest text to search for: a sentence or two."""

MAX_FIELDS = 100
"""Most fields of a read; who wants more wants all."""

MIN_BODY_SHARE = 0.25
"""Least part of a page that is data, however long the notes."""

LEAST_CUT = 20
"""Part of the data, one in so many, that goes at least each time when it and its notes cost too much together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a stored result."""

    contains: str = ""
    """Show what contains this text, whatever its case."""

    fields: tuple[str, ...] = ()
    """Show these fields; `*` for all."""

    tokens: int | None = None
    """Largest size of the page; None: what the tool's results may take."""

    rows: int | None = None
    """Most rows of a page."""

    @property
    def digest(self) -> int:
        """Tells this search, or these chosen fields, from others in a few bits; 0 when nothing is chosen."""
        if not self.contains and not self.fields:
            return 0
        text = json.dumps([self.contains, self.fields])
        digest = int(sha256(text.encode()).hexdigest(), 16)
        return 1 + digest % ((1 << QUESTION_BITS) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A page with its notes."""

    text: str
    record: Record
    page: Page
    layout: Layout
    following: str = ""
    """Cursor of the next page; empty after the last one."""

    @property
    def is_everything(self) -> bool:
        """True when nothing of the result is left out."""
        return self.record.shows_everything and self.page.is_everything


class Reader:
    """Writes the pages of one kept result, with their cursors."""

    def __init__(self, result_id: str, signer: CursorSigner, price: WholePrice, *, ttl_seconds: float) -> None:
        self._result_id = result_id
        self._signer = signer
        self._price = price
        self._ttl_seconds = ttl_seconds

    def first(
        self, content: Content, record: Record, config: ToolResultConfig, tokens: int, *, is_stored: bool
    ) -> Answer:
        """Return the first view of a result within a number of tokens, and the record to keep."""
        room = Room(tokens=_body_tokens(tokens), price=self._price, rows=config.page_rows)
        kept, view = chosen(content, record, config, room)
        notes = self._notes(kept, view.layout, tokens)

        def page(body_tokens: int) -> Answer:
            final, found = first_page(kept, view, config, replace(room, tokens=body_tokens))
            if is_stored:
                return self._written(final, view.layout, found, Reading(is_first=True), notes)
            return Answer(text=notes.around_all_there_is(found), record=final, page=found, layout=view.layout)

        return self._fitted(page, tokens)

    def place(self, record: Record, cursor: str) -> Place:
        """Return the place that a cursor names.

        Raises:
            CursorTamperedError: the cursor is not one of this result.
            CursorExpiredError: it is too old.
        """
        bound = {"tool": record.tool, "args_digest": record.args_digest, "thread": record.thread}
        return Place.at(self._signer.verify(cursor, **bound).offset)

    def answer(
        self, record: Record, place: Place, question: Question, tokens: int, *, is_extended: bool = True
    ) -> Answer:
        """Return what is asked of a kept result from a place on, within a number of tokens.

        Args:
            record: the result.
            place: where the cursor stands; a question of its own begins at the first entry.
            question: what to read.
            tokens: largest size of the page with its notes.
            is_extended: whether the result is kept for longer than before; otherwise nothing is promised.

        Raises:
            ConfigError: the cursor goes on with a question that is not asked.
        """
        if question.digest != place.question:
            if not question.digest:
                raise ConfigError(
                    "this cursor goes on with a search or with chosen fields: give the same contains and fields again, "
                    "or take the cursor of another page"
                )
            place = Place(question=question.digest)
        layout = layout_of(restored(record.text, record.kind))
        style = style_of(record)
        view = View(layout, replace(style, fields=question.fields) if question.fields else style)
        if place.entry >= len(layout):
            return _past_the_end(record, layout, place)
        search = Search(view, question.contains) if question.contains else None
        entries = search.entries() if search else []
        reading = Reading(contains=question.contains, fields=question.fields, entries=entries)
        notes = self._notes(record, layout, tokens)

        def page(body_tokens: int) -> Answer:
            room = Room(tokens=body_tokens, price=self._price, rows=question.rows)
            if search:
                found = search.page(entries, place, room)
            else:
                found = page_at(view, place, room, stop_char=_stop_char(record, place))
            return self._written(record, layout, found, reading, notes, is_extended=is_extended)

        return self._fitted(page, tokens)

    def _notes(self, record: Record, layout: Layout, tokens: int) -> Notes:
        return Notes(record, layout, self._result_id, self._price, tokens)

    def _fitted(self, view: Callable[[int], Answer], tokens: int) -> Answer:
        """Give the notes their room: what they take is known when they are written."""
        body_tokens = _body_tokens(tokens)
        while True:
            answer = view(body_tokens)
            over = self._price(answer.text) - tokens
            if over <= 0 or body_tokens == 1:
                return answer
            body_tokens = max(1, body_tokens - max(over, body_tokens // LEAST_CUT, 1))

    def _written(
        self, record: Record, layout: Layout, page: Page, reading: Reading, notes: Notes, *, is_extended: bool = True
    ) -> Answer:
        following = self._cursor(record, page.next) if page.next else ""
        end = self._cursor(record, Place(entry=len(layout)))
        ttl_seconds = self._ttl_seconds if is_extended else 0.0
        text = notes.around(page, reading, Cursors(following=following, end=end, ttl_seconds=ttl_seconds))
        return Answer(text=text, record=record, page=page, layout=layout, following=following)

    def _cursor(self, record: Record, place: Place) -> str:
        return self._signer.sign(Cursor(record.tool, record.args_digest, record.thread, self._result_id, place.offset))


def _past_the_end(record: Record, layout: Layout, place: Place) -> Answer:
    page = Page(body="", start=place, next=None, stop=place.entry, shown=Shown(texts=()))
    return Answer(text=nothing_more(record), record=record, page=page, layout=layout)


def _body_tokens(tokens: int) -> int:
    notes = TERSE_NOTE_TOKENS if tokens < TERSE_TOKENS else NOTE_TOKENS
    return max(1, int(tokens * MIN_BODY_SHARE), tokens - notes)


def _stop_char(record: Record, place: Place) -> int | None:
    """Where a text ends: before the part that was shown with its first page, unless it is read anew."""
    return None if place.question else record.tail_start


Fields = Sequence[str] | str | None


def question_of(contains: str | None, fields: Fields, page_tokens: int | None) -> Question:
    """Return what a call asks; one field may be given as a text.

    Raises:
        ConfigError: a field is no path, or an argument is of the wrong type or out of range.
    """
    if not isinstance(contains, str | None) or not isinstance(fields, str | Sequence | None):
        raise ConfigError(f"contains={contains!r:.60}, fields={fields!r:.60}: give a text, and a list of paths")
    chosen = (fields,) if isinstance(fields, str) else tuple(fields or ())
    if chosen:
        compile_fields(chosen)
    if contains and len(contains) > MAX_CONTAINS_CHARS:
        raise ConfigError(f"contains has {len(contains):,} characters: give at most {MAX_CONTAINS_CHARS}")
    if len(chosen) > MAX_FIELDS:
        raise ConfigError(f'fields has {len(chosen)} paths: give at most {MAX_FIELDS}, or ["*"] for all')
    if page_tokens is not None and (not isinstance(page_tokens, int) or page_tokens < 1):
        raise ConfigError(f"page_tokens={page_tokens!r:.60}: give a positive number of tokens, or leave it out")
    return Question(contains=contains or "", fields=chosen, tokens=page_tokens)
