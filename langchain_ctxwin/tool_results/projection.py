"""Projection: which fields of a JSON value are shown, by paths or by rules that find what tells its rows apart.

Values that stand at the same path (the `owner` of each of 5,000 rows) are looked at together: each path is judged once,
and what is left out is reported once. What is kept of a row depends on that row alone, so pages agree.

By rules, fields are kept for their kind. A key is split into words (`createdAt`, `created_at` and `Created At` are the
same two words; a number at the end does not count) and judged by its last word, in the tables below, together with the
shape of the value. First match wins:

    bool        state if the last word is a state word or the first is `is`, else flag
    number      0 or 1 under `is_...`: state, under `has_...`, `can_...`: flag; identifier and date by the last word;
                every other number is an amount
    text        1. identifier  last word in IDENTIFIERS
                2. url         `scheme://...`, or the last word in LINKS
                3. identifier  a UUID
                4. date        last word in DATES, or starts like 2024-05-31 or 31/05/2024
                5. amount      a number as text, or a digit in it and a word of the key in AMOUNTS
                6. name        last word in NAMES, at most `LINE_CHARS` long
                7. state       last word in STATES, or the first is `is`
                8. text        last word in TEXTS, or longer than `LINE_CHARS` and not one unbroken run of ASCII
                9. other

A plural counts as its singular. The words are those of REST and SQL naming in general, not of one service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import lru_cache
from typing import Any, Final

from langchain_ctxwin.core.field_paths import WHOLE, Wanted, after, compile_fields, exists, joined

LINE_CHARS = 120
"""A text longer than a line is read as prose, not as a label."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IDENTIFIERS = _words(
    "id uuid guid ulid oid pk key sha hash digest fingerprint checksum slug number no num code ref reference login "
    "username handle email phone sku isbn ean upc asin doi iban bic vin symbol ticker token identifier cursor"
)
NAMES = _words(
    "name title label subject headline author owner user member guest customer client host assignee creator sender "
    "recipient from to cc by company organization org team vendor supplier brand product item model director artist "
    "country city region place location address path filename file repo repository branch topic"
)
STATES = _words(
    "state status type kind category conclusion result outcome verdict decision phase stage step visibility role "
    "permission priority severity level grade rating tier plan reason action event mode method direction gender sex "
    "currency unit active inactive enabled disabled archived draft merged mergeable locked paid closed deleted removed "
    "private public open available confirmed cancelled canceled resolved verified approved accepted rejected signed "
    "default live success ok failed error pending completed done finished refunded captured"
)
AMOUNTS = _words(
    "amount price cost fee total subtotal sum balance tax vat discount commission deposit payout salary revenue budget "
    "rate ratio percent percentage count quantity qty size length width height weight distance duration score"
)
DATES = _words(
    "at on date datetime time timestamp day week month quarter year created updated modified published posted expires "
    "expiry expiration start end started ended begin until since due deadline arrival departure checkin checkout "
    "birthday dob period"
)
TEXTS = _words(
    "body description text content message summary comment snippet note abstract bio instruction question answer "
    "excerpt review explanation detail"
)
LINKS = _words("url uri href")
QUESTIONS = _words("has can should may allow allows")
"""First words of a yes-or-no question, which a 0 or 1 answers."""

_WORD = re.compile(r"[A-Z]{2,}(?=s(?![a-z]))|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
# Digits are possessive here and where values are printed: of a long run before a letter none is given back.
_SHAPE = re.compile(
    r"(?P<url>[a-zA-Z][a-zA-Z0-9+.-]*://)"
    r"|(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z)"
    r"|(?P<date>\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d\d?[/.]\d\d?[/.]\d{4})"
    r"|(?P<amount>[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?\Z)"
)
_UNBROKEN = re.compile(r"[!-~]+")
_DIGIT = re.compile(r"\d")
_KEYS_MAX = 4_096  # keys remembered: those of a few hundred kinds of results
_ITEMS: Final = object()  # the step from a list to its items
_GONE: Final = object()  # nothing is kept of this value; None is a value


class Kind(StrEnum):
    """What a field tells its reader."""

    IDENTIFIER = auto()
    NAME = auto()
    STATE = auto()
    AMOUNT = auto()
    DATE = auto()
    TEXT = auto()
    URL = auto()
    FLAG = auto()
    OTHER = auto()


_KEPT = {Kind.IDENTIFIER, Kind.NAME, Kind.STATE, Kind.AMOUNT, Kind.DATE, Kind.TEXT}
_TELLING = {Kind.IDENTIFIER, Kind.NAME}  # with one of these, a reader knows what an object is

_BY_LAST_WORD = (
    (IDENTIFIERS, Kind.IDENTIFIER), (LINKS, Kind.URL), (DATES, Kind.DATE), (STATES, Kind.STATE),
    (AMOUNTS, Kind.AMOUNT), (NAMES, Kind.NAME), (TEXTS, Kind.TEXT),
)  # fmt: skip
_BY_SHAPE = {"url": Kind.URL, "uuid": Kind.IDENTIFIER, "date": Kind.DATE, "amount": Kind.AMOUNT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """What is shown of a value, and what is not."""

    value: Any
    missing: tuple[str, ...] = ()
    """Configured paths that lead to nothing."""

    left_out: tuple[str, ...] = ()
    """Paths that are in the value and not shown, each once, as a path of `fields` would name them; of something that
    is left out as a whole only its own path. Nulls and empty values that rules left out are not named."""

    shortened: tuple[str, ...] = ()
    """Paths of texts that were cut."""


def project(value: Any, fields: Sequence[str]) -> Projected:
    """Keep only what `fields` name (see `core.field_paths` for how), in the order of the value.

    Lists keep their length: an item that has none of the fields is shown as {}. A list or object of which nothing is
    named is left out; a scalar at the top is kept, as there is nothing to choose from.

    Raises:
        ConfigError: A path cannot be read.
    """
    wanted = compile_fields(fields)
    root = _Place(wanted=wanted)
    kept = _chosen(value, root)
    if kept is _GONE:
        kept = [{} for _ in value] if type(value) is list else {} if type(value) is dict else value
    missing = tuple(path for path, steps in zip(fields, wanted, strict=True) if not exists(value, steps))
    return Projected(value=kept, missing=missing, left_out=root.all_left_out())


def project_automatically(value: Any, *, text_chars: int, shorten: Callable[[str, int], str]) -> Projected:
    """Keep identifiers, names, states, amounts, dates and texts, by the rules of this module.

    Left out are nulls and empty values, flags, URLs, and texts of no known kind. A URL stays (one per object) where
    neither the object nor the one it belongs to has an identifier; texts of no known kind stay where an object has no
    identifier and no name. An object at the top or in a list of which nothing would be left is kept whole, and lists
    keep all of their items.

    Args:
        value: Any JSON value.
        text_chars: Longest text that is not cut.
        shorten: Returns at most about so many characters of a text that say most.
    """
    rules, root = _Automatic(text_chars=text_chars, shorten=shorten), _Place()
    shown = rules.value(value, root, is_identified=False, is_row=True)
    for place in rules.left_out:
        place.is_left_out = True
    return Projected(value=shown, left_out=root.all_left_out(), shortened=tuple(rules.shortened))


def classify(key: str, value: str | float | bool) -> Kind:
    """Return the kind of one scalar that is neither null nor empty, by the rules of this module.

    Example:
        >>> classify("createdAt", "3 days ago"), classify("US Gross", 146_083), classify("has_wiki", True)
        (<Kind.DATE: 'date'>, <Kind.AMOUNT: 'amount'>, <Kind.FLAG: 'flag'>)
    """
    if isinstance(value, str):
        return _text_kind(key, value)
    by_key, first = _key_kind(key)
    if isinstance(value, bool):
        return Kind.STATE if by_key is Kind.STATE or first == "is" else Kind.FLAG
    if value in (0, 1) and by_key is not Kind.AMOUNT:
        if first == "is":
            return Kind.STATE
        if first in QUESTIONS:
            return Kind.FLAG
    return by_key if by_key in (Kind.IDENTIFIER, Kind.DATE) else Kind.AMOUNT


def _text_kind(key: str, text: str) -> Kind:
    by_key, first = _key_kind(key)
    if by_key in (Kind.IDENTIFIER, Kind.URL):
        return by_key
    shape = _SHAPE.match(text)
    if shape is not None and shape.lastgroup is not None:
        return _BY_SHAPE[shape.lastgroup]
    is_line = len(text) <= LINE_CHARS
    if by_key is Kind.DATE or (by_key is Kind.NAME and is_line) or (by_key is Kind.AMOUNT and _DIGIT.search(text)):
        return by_key
    if by_key is Kind.STATE or first == "is":
        return Kind.STATE
    is_prose = not is_line and _UNBROKEN.fullmatch(text) is None
    return Kind.TEXT if by_key is Kind.TEXT or is_prose else Kind.OTHER


@lru_cache(maxsize=_KEYS_MAX)
def _key_kind(key: str) -> tuple[Kind, str]:
    """Return the kind that the last word of a key names, and the first word."""
    words = [word.lower() for word in _WORD.findall(key)] or [""]
    last = words[-1]
    if len(words) > 1 and last == "s":  # the plural of an acronym: `IDs`
        last = words[-2]
    forms = {last, last.removesuffix("s"), last.removesuffix("es"), re.sub("ies$", "y", last)}
    for table, kind in _BY_LAST_WORD:
        if not table.isdisjoint(forms):
            return kind, words[0]
    return Kind.OTHER, words[0]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Automatic:
    """The automatic projection of one value, row by row."""

    text_chars: int
    shorten: Callable[[str, int], str]
    shortened: dict[str, None] = field(default_factory=dict)
    left_out: list[_Place] = field(default_factory=list)
    """One entry for each value that was left out, so that those of a row that is kept whole can be taken back."""

    def value(self, value: Any, place: _Place, *, is_identified: bool, is_row: bool) -> Any:
        if type(value) is dict:
            return self._row(value, place) if is_row else self._object(value, place, is_identified=is_identified)
        if type(value) is list:
            items = place.items()
            items.is_shown = True
            return [self.value(item, items, is_identified=False, is_row=True) for item in value]
        return self._text(value, place)

    def _row(self, row: dict[str, Any], place: _Place) -> dict[str, Any]:
        before = len(self.left_out)
        shown = self._object(row, place, is_identified=False)
        if shown:
            return shown
        del self.left_out[before:]
        return {key: self._whole(item, place.child(key)) for key, item in row.items()}

    def _object(self, each: dict[str, Any], place: _Place, *, is_identified: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        doubtful: list[tuple[str, _Place, Kind]] = []
        containers: list[tuple[str, _Place]] = []
        is_telling = False
        for key, value in each.items():
            if not value and (value is None or value == ""):
                continue
            child = place.children.get(key) or place.child(key)
            shown[key] = value
            if type(value) is dict or type(value) is list:
                containers.append((key, child))
                continue
            kind = child.kinds_of_texts.get(value) if type(value) is str else child.kind_of_numbers
            if kind is None or type(value) is bool:
                kind = child.kind(value)
            if kind not in _KEPT:
                doubtful.append((key, child, kind))
                continue
            is_telling = is_telling or kind in _TELLING
            is_identified = is_identified or kind is Kind.IDENTIFIER
            if isinstance(value, str) and len(value) > self.text_chars:
                shown[key] = self._text(value, child)
        is_identified = self._decide(shown, doubtful, is_identified=is_identified, is_telling=is_telling)
        for key, child in containers:
            self._descend(shown, key, child, is_identified=is_identified)
        return shown

    def _decide(
        self, shown: dict[str, Any], doubtful: list[tuple[str, _Place, Kind]], *, is_identified: bool, is_telling: bool
    ) -> bool:
        """Take out what the object can do without, and say whether what stays identifies it."""
        for key, child, kind in doubtful:
            if kind is Kind.OTHER and not is_telling:
                shown[key] = self._text(shown[key], child)
            elif kind is Kind.URL and not is_identified:
                is_identified = True
                shown[key] = self._text(shown[key], child)
            else:
                del shown[key]
                self.left_out.append(child)
        return is_identified

    def _descend(self, shown: dict[str, Any], key: str, place: _Place, *, is_identified: bool) -> None:
        inside = self.value(shown[key], place, is_identified=is_identified, is_row=False)
        if inside:
            shown[key] = inside
            place.is_shown = True
        else:
            del shown[key]

    def _text(self, value: Any, place: _Place) -> Any:
        if not isinstance(value, str) or len(value) <= self.text_chars:
            return value
        short = self.shorten(value, self.text_chars)
        if short != value:
            self.shortened[place.path or "*"] = None
        return short

    def _whole(self, value: Any, place: _Place) -> Any:
        """Shorten texts only."""
        if type(value) is dict:
            place.is_shown = True
            return {key: self._whole(item, place.child(key)) for key, item in value.items()}
        if type(value) is list:
            items = place.items()
            place.is_shown = items.is_shown = True
            return [self._whole(item, items) for item in value]
        return self._text(value, place)


@lru_cache(maxsize=_KEYS_MAX)
def _kind_of_numbers(key: str) -> Kind | None:
    """Return the kind of every number under a key; None when a 0 or 1 there may be a flag."""
    number = classify(key, 2)
    return number if classify(key, 1) is number else None


class _Place:
    """One path of the value: what its key tells, and whether any row shows it or leaves it out."""

    __slots__ = (
        *("above", "children", "is_left_out", "is_shown", "key", "kind_of_numbers", "kinds_of_texts", "of_items"),
        "wanted",
    )

    def __init__(
        self, above: _Place | None = None, key: str = "", *, of_items: bool = False, wanted: Wanted = ()
    ) -> None:
        self.above, self.key, self.of_items, self.wanted = above, key, of_items, wanted
        self.children: dict[Hashable, _Place] = {}
        self.is_shown = self.is_left_out = False
        self.kinds_of_texts: dict[str, Kind] = {}
        self.kind_of_numbers = _kind_of_numbers(key)

    @property
    def path(self) -> str:
        return "" if self.above is None else self._below(self.above.path)

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

    def kind(self, value: Any) -> Kind:
        kind = classify(self.key, value)
        if type(value) is str:
            self.kinds_of_texts[value] = kind
        return kind

    def all_left_out(self) -> tuple[str, ...]:
        """Return the highest paths below the top that no row shows, or of which some rows left something out."""
        self.is_shown, self.is_left_out = True, False
        found: list[str] = []
        self._add_left_out("", found)
        return tuple(found)

    def _add_left_out(self, path: str, found: list[str]) -> bool:
        """Add paths from here down, and say whether there are any.

        Paths are handed down: there are thousands, and each is part of many others.
        """
        if self.is_left_out:
            found.append(path)
        above = len(found)
        below = [place._add_left_out(place._below(path), found) for place in self.children.values()]  # noqa: SLF001  # same class
        if not self.is_shown:
            del found[above:]
            if any(below) and not self.is_left_out:
                found.append(path)
        return self.is_left_out or any(below)

    def _below(self, above: str) -> str:
        return f"{above}[]" if self.of_items else joined(above, self.key)
