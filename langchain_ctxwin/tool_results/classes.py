"""What kind of value is this field: an identifier, a name, a state, an amount, a date, or nothing a reader misses?

A key is split into words (`createdAt`, `created_at` and `Created At` are the same two words; a number at the end does
not count) and judged by its last word, in the tables below, together with the shape of the value. First match wins:

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
from enum import StrEnum, auto
from functools import lru_cache

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


_BY_LAST_WORD = (
    (IDENTIFIERS, Kind.IDENTIFIER), (LINKS, Kind.URL), (DATES, Kind.DATE), (STATES, Kind.STATE),
    (AMOUNTS, Kind.AMOUNT), (NAMES, Kind.NAME), (TEXTS, Kind.TEXT),
)  # fmt: skip
_BY_SHAPE = {"url": Kind.URL, "uuid": Kind.IDENTIFIER, "date": Kind.DATE, "amount": Kind.AMOUNT}


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
