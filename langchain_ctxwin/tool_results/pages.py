"""Pages of a result: as many whole entries as fit, or a part of one; the mildest form that fits at first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.core.clamping import HEAD_SHARE
from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.text import word_cut
from langchain_ctxwin.tool_results.contents import Content
from langchain_ctxwin.tool_results.cursors import ResultRecord
from langchain_ctxwin.tool_results.showing import (
    ResultView,
    inside_text,
    layout_of,
)

FIRST_ROWS = 32  # printed at first to see whether a page is full; twice as many each time it is not
FIRST_CHARS = 1_000  # the same for a page of text
CHAR_BITS = (
    30  # of a cursor's offset, for the position inside an entry: a billion characters
)
QUESTION_BITS = (
    12  # for the digest of a question; the other 22 of 64 bits are left for the entry
)

TEXT_CHARS = (1_600, 400, 160)
"""Lengths that long texts are shortened to, one after the other until all rows fit: a page, a paragraph, a sentence
or two. Fields are left out from the first of them on."""

CHARS_PER_TOKEN = 2  # of room, the length before those: a result that is mostly one text shows a page of it
MOST_CHARS_PER_TOKEN = (
    8  # of a page's budget: text of longer tokens is rules and blanks
)
PRECISION = 32  # a page is filled up to one part in so many: prices cost time


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlace:
    """A position in a result."""

    entry: int = 0
    char: int = 0  # inside that entry's text, when it is larger than a page
    question: int = 0  # digest of the question that goes on here; 0 when all is read

    @property
    def offset(self) -> int:
        """The place as one number, as cursors carry it."""
        return (
            ((self.entry << CHAR_BITS) | self.char) << QUESTION_BITS
        ) | self.question

    @classmethod
    def at(cls, offset: int) -> PagePlace:
        """Return the place of a cursor's offset."""
        place, question = divmod(offset, 1 << QUESTION_BITS)
        entry, char = divmod(place, 1 << CHAR_BITS)
        return cls(entry=entry, char=char, question=question)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a result."""

    body: str
    start: PagePlace
    next: PagePlace | None  # where the next page begins; None after the last one
    stop: int  # index after the last entry that is shown to its end
    inside: str = ""  # name of the entry that is not shown to its end, or of which this is a later part
    chars: tuple[int, int] | None = None  # which characters of a text these are
    end: str = ""  # the end of a text, when it is shown with its beginning

    @property
    def is_everything(self) -> bool:
        """True when no field and no entry is left out of this page."""
        is_first = not (self.start.entry or self.start.char)
        return is_first and self.next is None and not self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRoom:
    """What a page may take."""

    tokens: int
    price: WholePrice
    rows: int | None = None  # most rows; None: as many as fit

    def fits(self, text: str) -> bool:
        """Say whether a text fits; much longer ones are not priced, which takes time."""
        return (
            len(text) <= self.tokens * MOST_CHARS_PER_TOKEN
            and self.price(text) <= self.tokens
        )


def page_at(view: ResultView, place: PagePlace, room: PageRoom) -> Page:
    """Return the page that begins at a place: as many whole entries as fit, or a part of one that is too large."""
    if view.layout.is_text or place.char:
        return _part(view, place, room)
    last = _last_entry(view, place.entry, room)
    stop = place.entry + most_that_fit(
        last - place.entry,
        FIRST_ROWS,
        lambda count: room.fits(_body(view, place.entry, place.entry + count)),
    )
    if stop == place.entry:
        return _part(view, place, room)
    return Page(
        body=_body(view, place.entry, stop),
        start=place,
        next=replace(place, entry=stop) if stop < len(view) else None,
        stop=stop,
    )


def most_that_fit(count: int, first: int, fits: Callable[[int], bool]) -> int:
    """Return about the largest number up to `count` that fits, 0 when not even 1 does; `first` is tried first."""
    low, high = 0, count + 1
    while high - low > 1 + low // PRECISION:
        tried = (low + high) // 2 if high <= count else min(2 * low or first, count)
        low, high = (tried, high) if fits(tried) else (low, tried)
    return low


def _last_entry(view: ResultView, start: int, room: PageRoom) -> int:
    """The index after the last entry of a page of as many rows as are allowed; the fields beside the rows are none."""
    if room.rows is None:
        return len(view)
    return min(len(view), max(start, view.layout.head) + room.rows)


def _part(view: ResultView, place: PagePlace, room: PageRoom) -> Page:
    """The page that is a part of one entry."""
    text, entry = view.layout.beside, place.entry
    if not view.layout.is_text:
        text = inside_text(view.value(entry), view.layout.path_of(entry))
    start = min(place.char, len(text))
    stop = page_end(text, start, room.tokens, room.price)
    following = replace(place, char=stop)
    if stop == len(text):
        following = replace(place, entry=entry + 1, char=0)
    return Page(
        body=text[start:stop],
        start=place,
        next=following if following.entry < len(view) else None,
        stop=following.entry,
        inside=view.layout.name(entry),
        chars=(start, stop),
    )


def _body(view: ResultView, start: int, stop: int) -> str:
    return "\n".join(filter(None, view.printed(range(start, stop))))


def chosen(
    content: Content, record: ResultRecord, config: ToolResultConfig, room: PageRoom
) -> tuple[ResultRecord, ResultView]:
    """Return the record of a result that is too large with the style of its pages, and the view of its first page.

    Styles are tried from the mildest on, until all rows fit, or as many as a page shall have. Configured fields are
    what the user wants to see, however much would fit.
    """
    layout, styles = layout_of(content), [record]
    if fields := layout.those_in(config.chosen_fields):
        styles = [replace(record, fields=fields)]
    elif not layout.is_text and config.projection:
        lengths = sorted((CHARS_PER_TOKEN * room.tokens, *TEXT_CHARS), reverse=True)
        styles += [replace(record, text_chars=chars) for chars in lengths]
    views = [ResultView(layout, style) for style in styles]
    last = _last_entry(views[0], 0, room)
    fitting = (view for view in views if _has_room(view, last, room))
    best = views.index(next(fitting, views[-1]))
    return styles[best], views[best]


def _has_room(view: ResultView, stop: int, room: PageRoom) -> bool:
    """Say whether all entries fit up to an index; more and more of them are tried, because mostly few fit."""
    count = FIRST_ROWS
    while room.fits(_body(view, 0, min(count, stop))):
        if count >= stop:
            return True
        count *= 2
    return False


def first_page(view: ResultView, room: PageRoom) -> Page:
    """Return the first page; of a text, the beginning and the end."""
    first = page_at(view, PagePlace(), room)
    if not view.layout.is_text or first.next is None:
        return first
    beginning = replace(room, tokens=int(room.tokens * HEAD_SHARE))
    page = page_at(view, PagePlace(), beginning)
    text, (_, stop) = view.layout.beside, page.chars or (0, 0)
    left = room.tokens - room.price(f"{page.body}\n[…]\n")
    most = min(len(text) - stop, left * MOST_CHARS_PER_TOKEN)
    chars = most_that_fit(
        most, FIRST_CHARS, lambda chars: room.price(text[len(text) - chars :]) <= left
    )
    return replace(page, end=text[len(text) - chars :])


def page_end(text: str, start: int, budget_tokens: int, price: WholePrice) -> int:
    """Return where the page ends that begins at `start`: as much as fits in `budget_tokens`, at least one character.

    It ends after a line where that fills half of the budget, else after a word; in the middle of a word where the text
    before it costs more by itself, as it may with real tokenizers.
    """
    most = min(len(text) - start, budget_tokens * MOST_CHARS_PER_TOKEN)
    chars = most_that_fit(
        most,
        FIRST_CHARS,
        lambda count: price(text[start : start + count]) <= budget_tokens,
    )
    stop = start + max(1, chars)
    if stop >= len(text):
        return len(text)
    line = text.rfind("\n", (start + stop) // 2, stop) + 1
    readable = line or word_cut(text, start, stop)
    return readable if price(text[start:readable]) <= budget_tokens else stop
