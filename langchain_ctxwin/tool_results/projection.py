"""Projection: which fields of a JSON value are shown, by paths or by rules, and which sentences of a long text.

Values that stand at the same path (the `owner` of each of 5,000 rows) are looked at together: what is left out is
reported once. What is kept of a row depends on that row alone, so pages agree.

By rules, left out are nulls and empty values; answers to yes-or-no questions (`has_wiki: true`, `can_edit: 0`); and
addresses, but for one where neither the object nor the one it belongs to has an identifier. A key is split into words
(`createdAt`, `created_at` and `Created At` are the same two) and judged by the last one, a question by the first; a
plural counts as its singular. The words are those of REST and SQL naming in general, not of one service.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum, log
from typing import Any, Final

from langchain_ctxwin.core.field_paths import WHOLE, Wanted, after, compile_fields, exists, joined
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.text import Span, clean_cut, query_terms, statement_spans, terms, word_cut

_NAMES = (
    "id uuid guid ulid oid pk key sha hash digest fingerprint checksum slug number no num code ref reference login "
    "username handle email phone sku isbn ean upc asin doi iban bic vin symbol ticker token identifier cursor"
)
_IDENTIFIERS = frozenset(_NAMES.split())
_LINKS = frozenset({"url", "uri", "href"})
_QUESTIONS = frozenset({"has", "can", "should", "may", "allow", "allows"})  # how things are (`is_open`) is a state

GAP = " … "  # stands where statements between two others were left out
MIN_CHARS = 60  # the shortest text that has room for a few words and for the count of the others
MOST_WORDS = 64  # of a question: it has fewer, and of a pasted document the first ones say what it is about
QUERY_CHARS = 20_000  # of one argument or message are read for words
HEAD_CHARS, BLOCK_CHARS = 24_000, 2_000  # of a text are read, at its beginning, its end, and where a word occurs first
STEM_CHARS = 5  # at the beginning of a word are searched for, since endings differ

_WORD = re.compile(r"[A-Z]{2,}(?=s(?![a-z]))|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S*")
_ITEMS: Final = object()  # the step from a list to its items
_GONE: Final = object()  # nothing is kept of this value; None is a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """What is shown of a value, and what is not."""

    value: Any
    missing: tuple[str, ...] = ()  # configured paths that lead to nothing
    left_out: tuple[str, ...] = ()
    """Paths that are in the value and not shown, each once, as a path of `fields` would name them; of something that
    is left out as a whole only its own path. Nulls and empty values that rules left out are not named."""

    shortened: tuple[str, ...] = ()  # paths of texts that were cut


def project(value: Any, fields: Sequence[str]) -> Projected:
    """Keep only what `fields` name (see `core.field_paths` for how), in the order of the value.

    Lists keep their length: an item that has none of the fields is shown as {}. A list or object of which nothing is
    named is left out; a scalar at the top is kept, as there is nothing to choose from.
    """
    wanted = compile_fields(fields)
    root = _Place(wanted=wanted)
    kept = _chosen(value, root)
    if kept is _GONE:
        kept = [{} for _ in value] if type(value) is list else {} if type(value) is dict else value
    missing = tuple(path for path, steps in zip(fields, wanted, strict=True) if not exists(value, steps))
    return Projected(value=kept, missing=missing, left_out=_all_left_out(root))


def project_automatically(value: Any, *, text_chars: int, shorten: Callable[[str, int], str]) -> Projected:
    """Leave out nulls, empty values, answers to yes-or-no questions and addresses, by the rules of this module.

    An object at the top or in a list of which nothing would be left is kept whole, and lists keep all of their items.
    `shorten` cuts texts of more than `text_chars` to about as many that say most.
    """
    rules, root = _Automatic(text_chars=text_chars, shorten=shorten), _Place()
    shown = rules.value(value, root, is_identified=False, is_row=True)
    for place in rules.left_out:
        place.is_left_out = True
    return Projected(value=shown, left_out=_all_left_out(root), shortened=tuple(rules.shortened))


def _chosen(value: Any, place: _Place) -> Any:
    """Return what the paths want of a value at this place, `_GONE` where that is nothing."""
    if WHOLE in place.wanted:
        return value
    if type(value) is list:
        place = place.items()
        place.is_shown = True
        items = [_chosen(item, place) for item in value]
        return _GONE if items and all(item is _GONE for item in items) else [{} if i is _GONE else i for i in items]
    if type(value) is not dict or not value:  # it has no fields
        place.is_left_out = True
        return _GONE
    kept: dict[str, Any] = {}
    for key, item in value.items():
        child = place.children.get(key) or place.child(key)
        part = _chosen(item, child) if child.wanted else _GONE
        if part is not _GONE:
            kept[key] = part
            child.is_shown = True
        elif not child.wanted:
            child.is_left_out = True
    return kept or _GONE


@dataclass(slots=True, eq=False)
class _Place:
    """One path of the value: what its key tells, and whether any row shows it or leaves it out."""

    above: _Place | None = None
    key: str = ""
    of_items: bool = False
    wanted: Wanted = ()
    children: dict[Hashable, _Place] = field(default_factory=dict)
    is_shown: bool = False
    is_left_out: bool = False
    role: str = field(init=False)

    def __post_init__(self) -> None:
        self.role = _role_of(self.key)

    def child(self, key: str) -> _Place:
        place = self.children.get(key)
        if place is None:
            place = self.children[key] = _Place(self, key, wanted=after(self.wanted, key))
        return place

    def items(self) -> _Place:
        place = self.children.get(_ITEMS)
        if place is None:
            place = self.children[_ITEMS] = _Place(self, self.key, of_items=True, wanted=self.wanted)
        return place

    def path(self) -> str:
        return "" if self.above is None else self.below(self.above.path())

    def below(self, above: str) -> str:
        return f"{above}[]" if self.of_items else joined(above, self.key)


@lru_cache(maxsize=4_096)  # the keys of a few hundred kinds of results
def _role_of(key: str) -> str:
    words = [word.lower() for word in _WORD.findall(key)] or [""]
    last = words[-2] if len(words) > 1 and words[-1] == "s" else words[-1]  # the plural of an acronym: `IDs`
    forms = {last, last.removesuffix("s"), last.removesuffix("es")}
    if forms & _IDENTIFIERS:
        return "identifier"
    if forms & _LINKS:
        return "link"
    return "question" if words[0] in _QUESTIONS else ""


def _all_left_out(root: _Place) -> tuple[str, ...]:
    """The highest paths below the top that no row shows, or of which some rows left something out."""
    found: list[str] = []

    def add(place: _Place, path: str) -> bool:
        """Add paths from here down, and say whether there are any; each is part of thousands of others."""
        if place.is_left_out:
            found.append(path)
        above = len(found)
        are_below = [add(child, child.below(path)) for child in place.children.values()]
        if not place.is_shown:
            del found[above:]
            if any(are_below) and not place.is_left_out:
                found.append(path)
        return place.is_left_out or any(are_below)

    root.is_shown, root.is_left_out = True, False
    add(root, "")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Automatic:
    """The automatic projection of one value, row by row."""

    text_chars: int
    shorten: Callable[[str, int], str]
    shortened: dict[str, None] = field(default_factory=dict)
    left_out: list[_Place] = field(default_factory=list)
    """One entry for each value that was left out, so that those of a row that is kept whole can be taken back."""

    def value(self, value: Any, place: _Place, *, is_identified: bool, is_row: bool) -> Any:
        if type(value) is list:
            items = place.items()
            items.is_shown = True
            return [self.value(item, items, is_identified=False, is_row=True) for item in value]
        if type(value) is not dict:
            return self.text(value, place)
        before = len(self.left_out)
        shown = self.object(value, place, is_identified=is_identified)
        if shown or not is_row:
            return shown
        del self.left_out[before:]
        return {key: self.whole(item, place.child(key)) for key, item in value.items()}

    def object(self, each: dict[str, Any], place: _Place, *, is_identified: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        links: list[tuple[str, _Place]] = []
        containers: list[tuple[str, _Place]] = []
        for key, value in each.items():
            if value is None or value == "":
                continue
            child = place.children.get(key) or place.child(key)
            if child.role == "question" and value in (0, 1):
                self.left_out.append(child)
                continue
            shown[key] = value
            if isinstance(value, dict | list):
                containers.append((key, child))
            elif isinstance(value, str) and (
                child.role == "link" or (child.role != "identifier" and _URL.fullmatch(value))
            ):
                links.append((key, child))
            else:
                is_identified = is_identified or child.role == "identifier"
                shown[key] = self.text(value, child)
        for key, child in links:  # one stays where nothing else identifies
            if is_identified:
                del shown[key]
                self.left_out.append(child)
            else:
                is_identified = True
                shown[key] = self.text(shown[key], child)
        for key, child in containers:
            if inside := self.value(shown[key], child, is_identified=is_identified, is_row=False):
                shown[key] = inside
                child.is_shown = True
            else:
                del shown[key]
        return shown

    def text(self, value: Any, place: _Place) -> Any:
        if not isinstance(value, str) or len(value) <= self.text_chars:
            return value
        short = self.shorten(value, self.text_chars)
        if short != value:
            self.shortened[place.path() or "*"] = None
        return short

    def whole(self, value: Any, place: _Place) -> Any:
        """Shorten texts only."""
        if type(value) is dict:
            place.is_shown = True
            return {key: self.whole(item, place.child(key)) for key, item in value.items()}
        if type(value) is list:
            items = place.items()
            place.is_shown = items.is_shown = True
            return [self.whole(item, items) for item in value]
        return self.text(value, place)


def extract(text: str, max_chars: int, words: Collection[str] = ()) -> str:
    """Return whole statements of `text` in at most `max_chars`, verbatim and in order: those with most of the words.

    A shorter text is returned as it is. Where room is left, or without any word, statements are added from the
    beginning. Where statements are missing stands `GAP`, at the end the number of characters that were left out. Less
    than `MIN_CHARS` are the first characters. Of the words, as `query_words` finds them in a question, one that few
    statements have counts for more.

    Examples:
        >>> text = "It rains today. Trains run on time. Bread costs 4.20. Cats sleep all day."
        >>> extract(text, 65, query_words(["Bread?"]))
        'It rains today. … Bread costs 4.20. ... [41 more characters]'
    """
    if len(text) <= max_chars:
        return text
    if max_chars < MIN_CHARS:
        return f"{text[: clean_cut(text, 0, max_chars - 1)]}…" if max_chars > 0 else ""
    room = max_chars - len(_ending(len(text)))  # each piece takes a gap as well, but for the first one
    pieces = [piece for block in _blocks(text, words) for piece in _pieces(text, block, room - len(GAP))]
    having = {span: set(terms(text[slice(*span)])).intersection(words) if words else set() for span in pieces}
    times = Counter(word for found in having.values() for word in found)
    worth = {span: fsum(log(1 + len(pieces) / times[word]) for word in found) for span, found in having.items()}
    telling = sorted((span for span in pieces if worth[span]), key=lambda span: (-worth[span], span))
    others = [span for span in pieces if not worth[span]]

    def chars(span: Span) -> int:
        return span[1] - span[0] + len(GAP)

    fit: Fit[Span] = take_while_fits(telling, room, chars, on_overflow="skip")
    rest: Fit[Span] = take_while_fits(others, room - fit.tokens, chars)
    return _joined(text, sorted([*fit.kept, *rest.kept]))


def query_words(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the words that say what is asked for, as they are compared.

    Examples:
        >>> query_words(["Where are my orders INV-7?"])
        ('order', 'inv-7', 'inv', '7')
    """
    found = dict.fromkeys(word for text in texts for word in query_terms(text[:QUERY_CHARS]))
    return tuple(found)[:MOST_WORDS]


def _blocks(text: str, words: Collection[str]) -> Iterator[Span]:
    """The parts of a text that are read: its head, its end, and where a word occurs first between them."""
    head, last = HEAD_CHARS, max(HEAD_CHARS, len(text) - BLOCK_CHARS)
    yield 0, min(head, len(text))
    folded = text[:last].lower() if last > head else ""
    found = {folded.find(word[:STEM_CHARS], head) // BLOCK_CHARS for word in words}
    for number in sorted(found - {-1}):
        yield max(head, number * BLOCK_CHARS), min(last, (number + 1) * BLOCK_CHARS)
    if last < len(text):
        yield last, len(text)


def _pieces(text: str, block: Span, longest: int) -> Iterator[Span]:
    """The statements of a block without the space around them, in pieces where they are too long."""
    found = list(statement_spans(text, *block))
    whole = found[block[0] > 0 : len(found) - (block[1] < len(text))]  # others go on outside of the block
    for first, stop in whole or found:
        start = first
        while start < stop:
            end = stop if stop - start <= longest else word_cut(text, start, start + longest)
            piece = text[start:end]
            if not piece.isspace():
                yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
            start = end


def _joined(text: str, kept: Sequence[Span]) -> str:
    """The kept pieces; what lies between two of them is shown as it is when it is a little white space."""
    shown: list[str] = []
    end = left_out = 0
    for start, stop in kept:
        between = text[end:start]
        if between.strip():
            left_out += len(between)
            between = GAP if shown else GAP.lstrip()
        shown += [between if len(between) <= len(GAP) else " ", text[start:stop]]
        end = stop
    rest = text[end:]
    left_out += len(rest) if rest.strip() else 0
    return "".join([*shown, _ending(left_out) if left_out else ""])


def _ending(chars: int) -> str:
    return f" ... [{chars:,} more characters]"
