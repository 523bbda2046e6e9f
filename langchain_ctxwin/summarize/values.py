"""Which values does a statement state, and which words say what they are values of?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

NAME = "name"
NUMBER = "number"

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|January|February|March|April|June|July|August|\
September|October|November|December)"
_COUNTED = r"(?:one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|forty|fifty|hundred|thousand|million)"
_CURRENCY = r"(?:dollars?|euros?|pounds?|yen|rupees?|USD|EUR|GBP|JPY|CHF|INR|CNY)"
_CAPITALIZED = r"\b[A-Z](?:[^\W\d_]|['\u2019-](?=[^\W\d_]))*(?!-?\w|/)"
_PLAIN = "plain"
# Every repetition is bounded, so that no text takes more than linear time.
_KINDS = {
    _PLAIN: rf"(?:\b(?!{_COUNTED}\b)[a-z']{{1,40}}[.,;:!?]{{0,3}}\s+)+",  # passes over runs of plain words at once
    "quoted": r"`[^`\n]{1,80}`",
    "url": r"https?://[^\s\"'<>)\]}]*[^\s\"'<>)\]}.,;:!?]",
    "money": rf"[$€£¥]\s?\d+(?:[,.]\d+){{0,8}}(?:\s?(?:[kKmM]\b|million|billion|thousand))?"
    rf"|\b\d[\d,.]{{0,20}}\s?{_CURRENCY}\b"
    rf"|\b{_COUNTED}(?:[ -](?:and[ -])?{_COUNTED}){{0,8}}\s{_CURRENCY}\b",
    "date": rf"\b\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d\S*)?|\b\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}\b"
    rf"|\b{_MONTH}\.? \d{{1,2}}\b(?:,? \d{{4}}\b)?|\b\d{{1,2}}\.? {_MONTH}\b(?:,? \d{{4}}\b)?",
    "day": r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b",
    "time": r"\b\d{1,2}:\d\d(?::\d\d)?(?:\s?[ap]\.?m\b)?|\b\d{1,2}\s?[ap]m\b",
    "mail": r"\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{0,64}\w",
    "path": r"(?<![\w/])~?(?:/[\w.@-]{1,100}){2,20}/?"
    r"|\b[\w.-]{0,60}\w/(?=[\w./@-]{0,60}[\d._-]|[A-Z])[\w./@-]{0,200}\w",
    "file": r"\b\w[\w-]{0,60}(?:\.[a-z][a-z0-9]{0,4}){1,4}\b(?!\()",
    "version": r"\bv?\d+(?:\.\d+){2,5}\b",
    "code": r"\b[A-Za-z]{1,30}(?:[-_][A-Za-z]{1,30}){0,4}[-_]?\d[\w-]{0,80}\b|\b\d{1,30}[A-Za-z][\w-]{0,80}\b"
    r"|\b[A-Za-z]\w{0,60}_\w{1,60}\b"
    r"|\b[a-z]{1,60}[A-Z]\w*|#\d+\b",
    NUMBER: r"\b\d+(?:[.,]\d+){0,8}\s?%?",
    NAME: rf"{_CAPITALIZED}(?: {_CAPITALIZED}){{0,3}}",
}
_VALUE = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()))
_HAS_VALUE = re.compile(rf"[\d`@A-Z_]|\w[/.]\w|/\w|{_CURRENCY}")
_OPENS_SENTENCE = re.compile(r"(?:^|[.!?:;\"“(*\-]|\n)\s*$")
_WORD = re.compile(r"[^\W\d_]{2,}")
_WIDE_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")  # scripts that write words without spaces

_GRAMMAR = """
the a an this that these those it its he she him her his they them their we us our you your my me i in on at of to for
from by with as is are was were be been being am has have had do does did done doing will would shall should can could
may might must not no never ever always only and or but if so than then when while where which who whom what how why
there here now also just very too all any each every some more most less least own same such please user users team
using used use uses get got keep keeps put make makes let go going new old current currently latest previous update
updated change changed moved today week day time once again still yet under over below above into onto out up down off
about between after before until unless instead rather one dollar dollars euro euros free explicit total
"""
GRAMMAR = frozenset(_GRAMMAR.split())
"""Words that say nothing about what a statement is about: grammar, and what is said of everything."""

_SUFFIX = re.compile(r"(?:'s|\u2019s|s'|ations?|ings?|ed|ers?|es|s|e)$")
_MIN_STEM_CHARS = 3
_STEMS = 4_096  # words remembered: more than one conversation uses


@dataclass(frozen=True, slots=True)
class Value:
    """One value as it is written."""

    kind: str
    text: str
    start: int

    @property
    def key(self) -> str:
        """The value for comparison: without case, quotes and spaces at its ends."""
        return self.text.strip("`\"' ").casefold()


def values(text: str) -> tuple[Value, ...]:
    """Return the values that `text` states, in order: identifiers, paths, addresses, amounts, dates, numbers, names.

    A capitalized word that opens a sentence is no name.

    Example:
        >>> [(value.kind, value.text) for value in values("Ship INV-7 to Ann by 2027-01-02 for $50.")]
        [('code', 'INV-7'), ('name', 'Ann'), ('date', '2027-01-02'), ('money', '$50')]
    """
    return tuple(_values(text)) if _HAS_VALUE.search(text) else ()


def _values(text: str) -> Iterator[Value]:
    for match in _VALUE.finditer(text):
        kind, start, found = str(match.lastgroup), match.start(), match[0]
        if kind == _PLAIN:
            continue
        if kind == NAME and _OPENS_SENTENCE.search(text, max(0, start - 3), start):
            opening, _, found = found.partition(" ")
            start += len(opening) + 1
            if not found and not (opening.isupper() and len(opening) > 1):
                continue
            found = found or opening
        if found.casefold() not in GRAMMAR:
            yield Value(kind, found.rstrip(), start)


def words(text: str) -> list[str]:
    """Return the stems of the words that say what `text` is about, in order; grammar is left out.

    Example:
        >>> words("The owner of this database is Ann.")
        ['own', 'databas', 'ann']
    """
    found = [stem(word) for word in _WORD.findall(text.casefold()) if word not in GRAMMAR]
    wide = [run[at : at + 2] for run in _WIDE_RUN.findall(text) for at in range(len(run) - 1)]
    return [*found, *wide]


@lru_cache(maxsize=_STEMS)
def stem(word: str) -> str:
    """Return `word` without its commonest English endings, so that forms of one word compare as equal."""
    cut = _SUFFIX.sub("", word)
    return cut if len(cut) >= _MIN_STEM_CHARS else word
