"""Pages of a result: as many whole entries as fit, or a part of one; the mildest form that fits at first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.core.clamping import HEAD_SHARE
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.text import Span, clean_cut, sentence_spans, word_cut
from langchain_ctxwin.tool_results.contents import Content, is_media
from langchain_ctxwin.tool_results.cursors import ResultRecord
from langchain_ctxwin.tool_results.projection import Projected
from langchain_ctxwin.tool_results.view import Inside, ResultView, layout_of, together

FIRST_ROWS = 32  # printed at first to see whether a page is full; twice as many each time it is not
SHRINK = 0.9  # part of the rows that is kept each time when together they cost more than their sum
TITLE_SHARE = 0.5  # most of a page that repeats the title of the part that goes on there; it stands where that begins
EMPTY_SHARE = 0.2
"""Part of a page that is not left empty before an entry that is larger than a page: below, it shows little of that. Of
0.5, 0.33 and 0.2, first views of recorded API results show most per token with this one (`benchmarks/page_fill.py`)."""

CHAR_BITS = 30  # of a cursor's offset, for the position inside an entry: a billion characters
QUESTION_BITS = 12  # for the digest of a question; the other 22 of 64 bits are left for the entry

TEXT_CHARS = (1_600, 400, 160)
"""Lengths that long texts are shortened to, one after the other until all rows fit: a page, a paragraph, a sentence
or two. Fields are left out from the first of them on."""

CHARS_PER_TOKEN = 2  # of room, the length before those: a result that is mostly one text shows a page of it
MOST_CHARS_PER_TOKEN = 8  # of a page's budget: text of longer tokens is rules and blanks
PRECISION = 32  # a page is filled up to one part in so many: prices cost time
SENTENCES_CHARS = 1_200  # how far back from the end of a page the end of a sentence is looked for
PASSAGE_CHARS = 300  # longest passage around a phrase, without it: about three printed lines, or two sentences
_SPACE = re.compile(r"\s")
NOTHING = Projected(value=())
EDGES = "its beginning and its end"  # what a result is called that is shown in one shortened form


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlace:
    """A position in a result."""

    entry: int = 0
    char: int = 0  # inside that entry's text, when it is larger than a page; in a search the number of a passage
    question: int = 0  # digest of the search, or of the chosen fields, that goes on here; 0 when all is read

    @property
    def offset(self) -> int:
        """The place as one number, as cursors carry it."""
        return (((self.entry << CHAR_BITS) | self.char) << QUESTION_BITS) | self.question

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
    shown: Projected = NOTHING  # what of these entries is left out
    inside: str = ""  # name of the entry that is not shown to its end, or of which this is a later part
    chars: tuple[int, int] | None = None  # which characters of a text these are
    end: str = ""  # the end of a text, when it is shown with its beginning
    matches: Sequence[int] = ()  # all entries in which the searched text occurs, when this is a page of a search
    is_cut: bool = False  # the one match of a search that is shown is larger than the page
    form: str = ""  # what this is of the whole, when it is no part of it but a shortened form

    @property
    def is_everything(self) -> bool:
        """True when nothing of the result is left out of this page."""
        is_first = not (self.start.entry or self.start.char)
        is_whole = not (self.shown.left_out or self.shown.shortened or self.form)
        return is_first and self.next is None and is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRoom:
    """What a page may take."""

    tokens: int
    price: WholePrice
    rows: int | None = None  # most rows; None: as many as fit

    def fits(self, text: str) -> bool:
        """Say whether a text fits; much longer ones are not priced, which takes time."""
        return len(text) <= self.tokens * MOST_CHARS_PER_TOKEN and self.price(text) <= self.tokens


def page_at(view: ResultView, place: PagePlace, room: PageRoom) -> Page:
    """Return the page that begins at a place: as many whole entries as fit, or a part of one that is too large."""
    if view.layout.unit == "text" or place.char:
        return _part(view, place, room)
    page = _whole_entries(view, place, room)
    return _filled_up(view, page, room) if page.stop > place.entry else _part(view, place, room)


def _whole_entries(view: ResultView, place: PagePlace, room: PageRoom) -> Page:
    count, entries, most = FIRST_ROWS, range(len(view)), _most_entries(view, place, room)
    while True:
        indexes = entries[place.entry : place.entry + min(count, most)]
        shown = view.shown(indexes)
        tokens = room.price(_body(shown))
        if len(indexes) < count or tokens > room.tokens:
            break
        count *= 2
    # Prices do not add up, because each one is rounded.
    prices = {text: room.price(f"{text}\n") for text in shown.value}
    apart = sum(prices[text] for text in shown.value)
    fit: Fit[str] = take_while_fits(shown.value, room.tokens * max(apart, 1) // max(tokens, 1), prices.__getitem__)
    stop = len(fit.kept)
    if stop < len(indexes):
        shown = view.shown(indexes[:stop])
    while stop and room.price(_body(shown)) > room.tokens:
        stop = int(stop * SHRINK)
        shown = view.shown(indexes[:stop])
    end = place.entry + stop
    following = PagePlace(entry=end, question=place.question) if end < len(view) else None
    return Page(body=_body(shown), start=place, next=following, stop=end, shown=shown)


def _most_entries(view: ResultView, place: PagePlace, room: PageRoom) -> int:
    """Most entries of a page that begins at a place: the fields beside the rows are no row."""
    return len(view) if room.rows is None else room.rows + max(0, view.layout.head - place.entry)


def _filled_up(view: ResultView, page: Page, room: PageRoom) -> Page:
    """Add the beginning of an entry that is larger than a page where it would leave much of this page empty."""
    left = room.tokens - room.price(f"{page.body}\n")
    is_full = page.stop - page.start.entry >= _most_entries(view, page.start, room)
    if page.next is None or left < room.tokens * EMPTY_SHARE or is_full:
        return page
    if room.price(_body(view.shown(range(page.next.entry, page.next.entry + 1)))) <= room.tokens:
        return page
    following = _part(view, page.next, replace(room, tokens=left))
    body = f"{page.body}\n{following.body}"
    if room.price(body) > room.tokens:
        return page
    shown = together([page.shown, following.shown])
    return replace(page, body=body, next=following.next, inside=following.inside, stop=following.stop, shown=shown)


def _part(view: ResultView, place: PagePlace, room: PageRoom) -> Page:
    """The page that is a part of one entry; its first line repeats the title of what goes on there, if short."""
    text, title = view.layout.rows[0], ""
    if view.layout.unit != "text":
        inside = Inside(view.value(place.entry), view.layout.path_of(place.entry))
        text, title = inside.text, inside.title_at(place.char)
    start = min(place.char, len(text))
    prefix = f"(goes on) {title}\n" if title else ""
    prefix = prefix if room.price(prefix) <= int(room.tokens * TITLE_SHARE) else ""
    stop = page_end(text, start, max(1, room.tokens - room.price(prefix)), room.price)
    following = replace(place, char=stop) if stop < len(text) else replace(place, entry=place.entry + 1, char=0)
    return Page(
        body=prefix + text[start:stop],
        start=place,
        next=following if following.entry < len(view) else None,
        stop=following.entry,
        shown=replace(view.projected([place.entry]), value=()),
        inside=view.layout.name(place.entry),
        chars=(start, stop),
    )


def _body(shown: Projected) -> str:
    return "\n".join(text for text in shown.value if text)


def chosen(
    content: Content, record: ResultRecord, config: ToolResultConfig, room: PageRoom
) -> tuple[ResultRecord, ResultView]:
    """Return the record of a result that is too large with the style of its pages, and the view of its first page.

    Styles are tried from the mildest on. Configured fields are what the user wants to see, however much would fit.
    """
    layout, styles = layout_of(content), [record]
    if layout.unit != "text" and config.chosen_fields:
        styles = [replace(record, fields=config.chosen_fields)]
    elif layout.unit != "text" and config.projection:
        lengths = sorted((CHARS_PER_TOKEN * room.tokens, *TEXT_CHARS), reverse=True)
        shortened = [replace(record, text_chars=chars) for chars in lengths]
        # Whole, an image would be shown as the text of its data.
        styles = shortened if any(map(is_media, layout.rows)) else [record, *shortened]
    views = [(style, ResultView(layout, style)) for style in styles]
    if len(views) > 1 and _fits_whole(views[-1][1], room):  # asked first, because mostly not even this one does
        return next(milder for milder in views if _fits_whole(milder[1], room))
    return views[-1]


def _fits_whole(view: ResultView, room: PageRoom) -> bool:
    if room.rows is not None and len(view) - view.layout.head > room.rows:
        return False
    count, entries = FIRST_ROWS, range(len(view))
    while room.fits(_body(view.shown(entries[:count]))):
        if count >= len(view):
            return True
        count *= 2
    return False


def first_page(view: ResultView, config: ToolResultConfig, room: PageRoom) -> Page:
    """Return the first page; of a text, and of a result without pages, the beginning and the end."""
    is_text = view.layout.unit == "text"
    if config.pagination and not is_text:
        return page_at(view, PagePlace(), room)
    shown = NOTHING if is_text else view.shown(range(len(view)))
    text = view.layout.rows[0] if is_text else _body(shown)
    page = Page(body=text, start=PagePlace(), next=None, stop=len(view), shown=shown)
    if room.fits(text):
        return page
    stop = page_end(text, 0, int(room.tokens * HEAD_SHARE), room.price)
    start = tail_start(text, room.tokens - room.price(f"{text[:stop]}\n[…]\n"), room.price, stop)
    page = replace(page, body=text[:stop], end=text[start:], chars=(0, stop))
    if not config.pagination:
        return replace(page, form=EDGES)
    return page if start == stop else replace(page, next=PagePlace(char=stop), inside=view.layout.name(0), stop=0)


def page_end(text: str, start: int, budget_tokens: int, price: WholePrice) -> int:
    """Return where the page ends that begins at `start`: as much as fits in `budget_tokens`.

    It ends after a paragraph, a line or a sentence where that fills half of the budget, else after a word or a
    character. It has at least one character, whatever that costs. Its price is checked as a whole.
    """
    end = len(text)
    most = min(end - start, budget_tokens * MOST_CHARS_PER_TOKEN)

    def cut(chars: int) -> int:
        return chars if start + chars == end else _last_break(text, start, start + chars) - start

    return min(
        end, start + max(1, _most_chars(lambda chars: text[start : start + chars], cut, most, budget_tokens, price))
    )


def tail_start(text: str, budget_tokens: int, price: WholePrice, earliest: int) -> int:
    """Return where the longest end of `text` begins that fits in `budget_tokens`, at `earliest` or after it.

    It begins where a line or a word does; at `len(text)` when nothing fits.
    """
    size = len(text)
    most = min(size - earliest, budget_tokens * MOST_CHARS_PER_TOKEN)

    def cut(chars: int) -> int:
        return chars if size - chars == earliest else size - _next_break(text, size - chars)

    return size - _most_chars(lambda chars: text[size - chars :], cut, most, budget_tokens, price)


def _most_chars(
    part: Callable[[int], str], cut: Callable[[int], int], most: int, budget_tokens: int, price: WholePrice
) -> int:
    """How many characters fit, cut to where the text has a break; 0 when none does."""
    while most > 0:
        low, high = (most, most) if price(part(most)) <= budget_tokens else (0, most - 1)
        while high - low > low // PRECISION:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if price(part(middle)) <= budget_tokens else (low, middle - 1)
        chars = cut(low)
        if price(part(chars)) <= budget_tokens:
            return chars
        most = min(chars, low) - 1  # prices do not quite add up
    return 0


def _last_break(text: str, start: int, stop: int) -> int:
    """The end of a paragraph, a line or a sentence in the second half of a part; else of a word, or a character."""
    middle = (start + stop) // 2
    for mark in ("\n\n", "\n"):
        found = text.rfind(mark, middle, stop)
        if found >= 0:
            return found + len(mark)
    ends = [end for _, end in sentence_spans(text, max(middle, stop - SENTENCES_CHARS), stop)][:-1]
    return ends[-1] if ends else word_cut(text, start, stop)


def _next_break(text: str, start: int) -> int:
    """The next line in the first half of the end of a text that begins at `start`; else the next word or character."""
    line = text.find("\n", max(0, start - 1), (start + len(text)) // 2)
    if line >= 0:
        return line + 1
    space = _SPACE.search(text, start, (start + len(text)) // 2)
    if space:
        return space.end()
    return next(place for place in range(start, len(text) + 1) if clean_cut(text, 0, place) == place)


def passages(text: str, needle: str, start: int) -> Iterator[Span]:
    r"""Yield where the lines, or parts of lines, are that contain `needle`, in order and apart, from `start` on.

    The search is literal and without case, character by character: `ss` is not found by `ß`, nor a composed accent by
    its parts, nor a space by a line break. A search that begins where a passage does finds the same passages.

    Examples:
        >>> [*passages("One cat. Two dogs.\nNo CATS.", "cat", 0)]
        [(0, 18), (19, 27)]
    """
    flags = re.NOFLAG if needle.lower() == needle.upper() else re.IGNORECASE
    pattern = re.compile(re.escape(needle), flags)
    at = start
    while needle and (match := pattern.search(text, at)):
        first, last = _around(text, *match.span())
        first, at = max(first, at), match.end()
        while match := pattern.search(text, at, last + len(needle) - 1):  # one that begins in the passage, too
            at = match.end()
            last = max(last, at)
        yield first, last
        at = last


def _around(text: str, first: int, last: int) -> Span:
    """The line around a place, or as many whole words of it as are allowed."""
    low, high = max(0, first - PASSAGE_CHARS // 2), min(len(text), last + PASSAGE_CHARS // 2)
    before, after = text[low:first], text[last:high]
    if "\n" in before:
        low += before.rindex("\n") + 1
    elif low and " " in before:
        low += before.index(" ") + 1
    if "\n" in after:
        high = last + after.index("\n")
    elif high < len(text) and " " in after:
        high = last + after.rindex(" ")
    return clean_cut(text, 0, low), clean_cut(text, last, high)
