"""How is a result that is too large made to fit? The mildest form that shows all of it, else the first page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.core.clamping import HEAD_SHARE
from langchain_ctxwin.tool_results.contents import Content, is_media
from langchain_ctxwin.tool_results.extraction import Words, extract, query_words
from langchain_ctxwin.tool_results.layout import layout_of
from langchain_ctxwin.tool_results.pages import Page, Place, Room, fits_whole, page_at
from langchain_ctxwin.tool_results.record import Record
from langchain_ctxwin.tool_results.texts import page_end, tail_start
from langchain_ctxwin.tool_results.view import Shown, Style, View

TEXT_CHARS = (1_600, 400, 160)
"""Lengths that long texts are shortened to, one after the other until all rows fit: a page, a paragraph, a sentence
or two. Fields are left out from the first of them on."""

CHARS_PER_TOKEN = 2
"""Length for each token of the room that comes before those: a result that is mostly one text shows a page of it."""

TELLING = "its most telling parts"
EDGES = "its beginning and its end"
"""What a result is called that is shown in one shortened form."""

SHRINK = 0.8
"""Part of an extract that is asked for again while it costs too much."""


def chosen(content: Content, record: Record, config: ToolResultConfig, room: Room) -> tuple[Record, View]:
    """Return what is kept of a result that is too large, and the view that shows most of it in a room.

    Args:
        content: the result.
        record: what is kept of it; the style of its pages is filled in here.
        config: settings of the tool.
        room: what the first page may take.
    """
    layout = layout_of(content)
    if layout.unit == "text":
        return record, View(layout, Style())
    styles = list(_styles(record, config, room))
    if len(styles) > 1 and any(map(is_media, layout.rows)):
        del styles[0]  # whole, an image would be shown as the text of its data
    views = [View(layout, style) for style in styles]
    view = views[-1]
    if fits_whole(view, room):  # asked first, because mostly not even this one does
        view = next(milder for milder in views if fits_whole(milder, room))
    return replace(record, text_chars=view.style.text_chars, fields=view.style.fields), view


def first_page(record: Record, view: View, config: ToolResultConfig, room: Room) -> tuple[Record, Page]:
    """Return the first page, and the record of a text with what its end shows already."""
    if not config.pagination:
        return record, _only_page(record, view, config, room)
    if view.layout.unit == "text":
        return _head_page(record, view, room)
    return record, page_at(view, Place(), room)


def style_of(record: Record) -> Style:
    """Return the style of a record's pages."""
    words = Words(query=frozenset(record.words), keywords=frozenset(record.keywords))
    return Style(fields=record.fields, text_chars=record.text_chars, words=words, extraction=record.extraction)


def words_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that long texts are searched for."""
    return tuple(sorted(query_words(texts)))


def _styles(record: Record, config: ToolResultConfig, room: Room) -> Iterator[Style]:
    """The styles to try, mildest first. Configured fields are what the user wants to see, however much would fit."""
    base = style_of(record)
    if config.projection and config.fields:
        yield replace(base, fields=config.fields)
        return
    yield base
    if config.projection:
        lengths = (CHARS_PER_TOKEN * room.tokens, *TEXT_CHARS)
        yield from (replace(base, text_chars=chars) for chars in sorted(lengths, reverse=True))


def _head_page(record: Record, view: View, room: Room) -> tuple[Record, Page]:
    """The beginning and the end of a text, as results of commands and logs are read; pages hold what is between."""
    text = view.layout.rows[0]
    page = page_at(view, Place(), replace(room, tokens=int(room.tokens * HEAD_SHARE)))
    if page.next is None:
        return record, page
    start = tail_start(text, room.tokens - room.price(f"{page.body}\n[…]\n"), room.price, page.next.char)
    if start >= len(text):
        return record, page
    following = page.next if start > page.next.char else None
    return replace(record, tail_start=start), replace(page, end=text[start:], next=following)


def _only_page(record: Record, view: View, config: ToolResultConfig, room: Room) -> Page:
    """All of a result in one shortened form."""
    if view.layout.unit == "text":
        body = _shortened(view.layout.rows[0], record, config, room)
        return _page_of(view, body, TELLING if config.extraction else EDGES, Shown(texts=()))
    shown = view.shown(range(len(view)))
    whole = "\n".join(filter(None, shown.texts))
    if room.price(whole) <= room.tokens:
        return _page_of(view, whole, "", shown)
    return _page_of(view, _head_and_tail(whole, room), EDGES, shown)


def _page_of(view: View, body: str, form: str, shown: Shown) -> Page:
    return Page(body=body, start=Place(), next=None, stop=len(view), shown=shown, form=form)


def _shortened(text: str, record: Record, config: ToolResultConfig, room: Room) -> str:
    if not config.extraction:
        return _head_and_tail(text, room)
    words = style_of(record).words
    chars = page_end(text, 0, room.tokens, room.price)
    extracted = extract(text, chars, words)
    while chars > 1 and room.price(extracted) > room.tokens:
        chars = int(chars * SHRINK)
        extracted = extract(text, chars, words)
    return extracted


def _head_and_tail(text: str, room: Room) -> str:
    stop = page_end(text, 0, int(room.tokens * HEAD_SHARE), room.price)
    start = tail_start(
        text, room.tokens - room.price(f"{text[:stop]}\n[… 1,000,000 more characters …]\n"), room.price, stop
    )
    gap = start - stop
    return text if not gap else f"{text[:stop]}\n[… {gap:,} more characters …]\n{text[start:]}"
