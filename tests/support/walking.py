"""How is a large result read to its end? By the cursors in its pages, as a model would do it."""

import re

from langchain_ctxwin import CursorSigner, ToolResultGuard
from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.tool_results import Cursor
from langchain_ctxwin.tool_results.cursors import ResultRecord
from langchain_ctxwin.tool_results.guard import ContentPrices
from langchain_ctxwin.tool_results.pages import PagePlace, Reader
from langchain_ctxwin.tool_results.query import Question
from langchain_ctxwin.tool_results.showing import content_text, inside_text

TOOL = "rows"
RESULT_ID = "r1abcdefghij"
PRICE = ContentPrices(None).text
CURSOR = re.compile(r'cursor="([^"]+)"')
BODY = re.compile(rf"<data {RESULT_ID}>\n(.*)\n</data {RESULT_ID}>", re.DOTALL)


class FakeClock:
    """A clock that goes when it is told to."""

    def __init__(self, now=1_800_000_000.0):
        self.now = now

    def __call__(self):
        """Return the time, in seconds."""
        return self.now


def guard_of(*, clock=None, store=None, **settings):
    """A guard with a key, an id and a clock of the test's own, so that its pages are always the same."""
    clock = clock or FakeClock()
    signer = _signer(clock, settings.get("ttl_seconds", 600))
    config = ToolResultConfig(**settings)
    return ToolResultGuard(
        config, signer=signer, store=store, clock=clock, new_id=lambda: RESULT_ID
    )


def last_cursor(page):
    """The last cursor that a page shows; None when it shows none."""
    found = CURSOR.findall(page)
    return found[-1] if found else None


def body_of(page):
    """What stands between the marks of a page; nothing when it says that there are no more."""
    found = BODY.search(page)
    return found[1] if found else ""


def walk(guard, result, **question):
    """The first view of a result, and every page after it."""
    first = guard.output(result, TOOL, {"q": "all"})
    return [first, *_rest(guard, first, question)]


def ask(guard, result, **question):
    """The pages that answer a question about a result, without its first view."""
    found = list(_rest(guard, guard.output(result, TOOL, {"q": "all"}), question))
    assert found, "the result is shown whole, so nothing can be asked about it"
    return found


def _rest(guard, page, question):
    while (cursor := last_cursor(page)) is not None:
        page = guard.read(cursor, **question)
        yield page


async def awalk(guard, result, **question):
    """Like `walk`, by the async way."""
    pages = [await guard.aoutput(result, TOOL, {"q": "all"})]
    while (cursor := last_cursor(pages[-1])) is not None:
        pages.append(await guard.aread(cursor, **question))
    return pages


def reader_of(record):
    """Who reads a result that a guard keeps."""
    return Reader(RESULT_ID, record, _signer(FakeClock()), PRICE)


def first_of(result, tokens, config=None):
    """The first page of a result."""
    record = ResultRecord(
        tool=TOOL, args_digest="digest", thread="one", text=content_text(result)
    )
    config = config or ToolResultConfig()
    return reader_of(record).first(config, tokens, is_stored=True)


def answers(result, tokens, question=None, config=None):
    """What a reader answers: the pages of a plain walk, or those of a question, with all that is known of them."""
    first = first_of(result, tokens, config)
    found, cursor = [first], first.following
    reader = reader_of(first.view.style)
    if question is not None:
        found, cursor = [], _end_cursor(first.view)
    while cursor:
        found.append(reader.answer(cursor, question or Question(), tokens))
        cursor = found[-1].following
        assert _order(found[-1].stop) > _order(found[-1].start)
    return found


def _signer(clock, ttl_seconds=600):
    return CursorSigner("a key of the tests", ttl_seconds, clock)


def _order(place):
    return place.entry, place.char


def _end_cursor(view):
    return _signer(FakeClock()).sign(
        Cursor(TOOL, "digest", "one", RESULT_ID, PagePlace(entry=len(view)).offset)
    )


def entries_in(view, found):
    """The entries that these pages hold, in order; fails when a page holds anything else than it should.

    A page holds whole entries, then perhaps a part of the next one. The parts of an entry must be its whole text.
    """
    whole, read = [], 0
    for page in found:
        rest, part = page.body, _partial(page)
        for_whole = range(page.start.entry, page.stop.entry if part is None else part)
        if for_whole:
            text = "\n".join(_lines(view, for_whole))
            assert rest.startswith(text)
            rest = rest[len(text) :].removeprefix("\n")
            whole.extend(for_whole)
        if part is None:
            assert rest == ""
            continue
        inside = inside_text(
            view.values(range(part, part + 1))[0], view.layout.path_of(part)
        )
        assert rest == inside[read : read + len(rest)]
        read += len(rest)
        if not page.stop.char:
            assert read == len(inside)
            whole.append(part)
            read = 0
    return whole


def _lines(view, whole):
    """What is printed of whole entries: nothing of fields that are left out, at least an empty line of a row."""
    first_row = view.layout.head
    return [
        text
        for index, text in zip(whole, view.printed(whole), strict=True)
        if text or index >= first_row
    ]


def _partial(page):
    """The entry of which a page holds a part, or all in parts; None when it holds whole entries only."""
    if page.stop.char:
        return page.stop.entry
    return page.stop.entry - 1 if page.inside else None
