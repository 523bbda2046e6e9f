"""Sentences: where one statement ends and the next begins, in prose, code and tool output of any size; and terms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import log1p
from unicodedata import normalize

Span = tuple[int, int]  # where a piece of a text begins and where it stops
# a longer statement is cut between words: what is on one line of data need not belong together
LONGEST_STATEMENT_CHARS = 600
# At blank lines; at line ends, but for lines that are broken for their width: long ones that go on in lower case;
# behind sentences, in the punctuation of many scripts, but for abbreviations and initials (`U.S.`, `z. B.`), ordinals
# and closing quotes. Thai and Lao have only spaces for it.
_END = re.compile(
    r"\n(?:[^\S\n]*+\n)++|(?<![^\n]{40})\n|\n(?![a-z\xdf-\xff\u0430-\u044f])"
    r"|(?<=[.!?\u0964\u061f\u06d4])(?<!\b\w\.)(?<!\b(?:Mr|Ms|Dr|St|No|Nr|Sr|ca|vs)\.)"
    r"(?<!\b(?:Mrs|Mme|Sra|Fig|etc)\.)(?<!\bProf\.)\s+(?=[^\sa-z\xbb])"
    r"|(?<=[\u3002\uff01\uff1f])(?![\u201d\u300d\u300f\uff09])|(?<=[\u0e00-\u0eff])[ \t]++(?=[\u0e00-\u0eff])"
)


def statement_spans(text: str, start: int, stop: int) -> Iterator[Span]:
    """Yield where the statements of `text[start:stop]` are: sentences of prose, also wrapped, and lines of other text.

    The spans follow each other without gaps; each ends with the white space after its statement.
    """
    ends = (match.end() for match in _END.finditer(text, start, stop))
    for end in (*ends, stop):
        while end - start > LONGEST_STATEMENT_CHARS:
            cut = word_cut(text, start, start + LONGEST_STATEMENT_CHARS)
            yield start, cut
            start = cut
        if start < end:
            yield start, end
            start = end


def word_cut(text: str, start: int, limit: int) -> int:
    """Return where to cut `text[start:limit]`: after the last space of its second half, else at the limit."""
    positions = range(limit, (start + limit) // 2, -1)
    return next(
        (position for position in positions if text[position - 1].isspace()), limit
    )


MAX_WORDS = 65_536  # words whose terms are remembered: the vocabulary of a very long conversation, about 20 MB
MAX_WORD_CHARS = 64  # a longer word is a digest or data and is found only as a whole
MAX_NAME_PARTS = 8  # changes of case and of digits inside a name; with more it is a digest, and its parts say nothing

# Combining marks are parts of words, but not for `\w`.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0970-\u0dff"
    "\u0e30-\u0e3a\u0e40-\u0e4e\u0eb0-\u0ece\u0f18-\u0f39\u0f71-\u0fbc\u102b-\u109d\u17b4-\u17d3\u200c\u200d\u3099\u309a"
)
_HAN = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = f"{_HAN}\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3041-\u30ff\uac00-\ud7a3"

# Marks in a row that no script has. To put n of them in order takes n * n steps: a page full of them would take hours.
_TOO_MANY_MARKS = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){33,}")
_WORD = re.compile(rf"[\w{_MARKS}]+(?:[-./:@+#&][\w{_MARKS}]+)*")
_JOINT = re.compile(r"[-./:@+#&_]+")
_RUNS = re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_IS_HAN = re.compile(rf"[{_HAN}]")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# English endings of number and tense behind three letters with a vowel among them (`thing`, `string` and `bed` keep
# theirs), and what is left doubled before one.
_ENDING = re.compile(
    r"^([a-z]*?[aeiouy][a-z]*?)(?<=...)(?:(ie)[sd]|(y)|ings?|(?<!e)ed|es|(?<![sui])s|e)$"
)
_DOUBLED = re.compile(r"([^aeioulsz])\1$")

_COMMON = """
a about after again all also am an and any are as at be because been before being but by can could d did do does doing
don down during each few for from further had has have having he her here hers him his how i if in into is it its just
ll m me more most my no nor not now of off on once only or other our out over own re s same she should so some such t
than that the their them then there these they this those through to too under until up us ve very was we were what
when where which while who whom whose why will with would you your yours
"""


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order and with repetition.

    Examples:
        >>> terms("Orders were shipped: ORD-1234, getUserName")
        ['order', 'wer', 'ship', 'ord-1234', 'ord', '1234', 'getusernam', 'get', 'user', 'nam']
        >>> terms("東京駅")
        ['東', '東京', '京', '京駅', '駅']
    """
    if not text.isascii():  # one spelling for all forms of a character
        text = normalize("NFKC", _TOO_MANY_MARKS.sub(" ", text))
    return [term for word in _WORD.findall(text) for term in _word_terms(word)]


def query_terms(query: str) -> list[str]:
    """Return what a query asks for, each term once: without common English words, unless it has no others."""
    wanted = dict.fromkeys(terms(query))
    return [term for term in wanted if term not in _COMMON_TERMS] or list(wanted)


class TermIndex:
    """BM25: for every term, the texts that have it. Immutable once it is built, so that threads may share it.

    Args:
        texts: how often each term counts in each text.
        saturation: BM25's k1.
        length_share: BM25's b.
    """

    def __init__(
        self,
        texts: Sequence[Mapping[str, float]],
        *,
        saturation: float,
        length_share: float,
    ) -> None:
        self._count = len(texts)
        self._places: dict[str, list[tuple[int, float]]] = {}
        lengths = [sum(text.values()) for text in texts]
        # the least one is for texts without any word
        mean = max(sum(lengths) / max(self._count, 1), 1e-9)
        for owner, text in enumerate(texts):
            relative = 1 - length_share + length_share * lengths[owner] / mean
            for term, times in text.items():
                saturated = times / (times + saturation * relative)
                self._places.setdefault(term, []).append((owner, saturated))

    def having(self, term: str) -> int:
        """Return in how many texts a term is."""
        return len(self._places.get(term, ()))

    def scores(self, wanted: Mapping[str, float]) -> list[float]:
        """Return a score per text for weighted terms; 0 without a common one."""
        scores = [0.0] * self._count
        for term, weight in wanted.items():
            having = self.having(term)
            worth = weight * log1p((self._count - having + 0.5) / (having + 0.5))
            for owner, saturated in self._places.get(term, ()):
                scores[owner] += worth * saturated
        return scores


@lru_cache(maxsize=MAX_WORDS)
def _word_terms(word: str) -> tuple[str, ...]:
    if len(word) > MAX_WORD_CHARS and not _IS_UNSPACED.search(word):
        return (word.casefold(),)
    runs = [run for piece in _JOINT.split(word) for run in _RUNS.findall(piece)]
    whole = (word.casefold(),) if len(runs) > 1 and len(word) <= MAX_WORD_CHARS else ()
    return (*whole, *(term for run in runs for term in _run_terms(run)))


def _run_terms(run: str) -> Iterator[str]:
    # every two characters; Chinese ones singly too, because one can be a word
    if _IS_UNSPACED.match(run):
        for index, character in enumerate(run):
            if len(run) == 1 or _IS_HAN.match(character):
                yield character
            if index + 1 < len(run):
                yield run[index : index + 2]
        return
    parts = _NAME_PARTS.findall(run) if run.isascii() else []
    yield _stem(run.casefold())
    if 1 < len(parts) <= MAX_NAME_PARTS:
        yield from (_stem(part.lower()) for part in parts)


def _stem(word: str) -> str:
    """Cut English endings of number and tense, so that most forms of a word meet; the result need not be a word."""
    if not word.isascii() or not word.isalpha():
        return word
    found = _ENDING.match(word)
    if found is None:
        return word
    return f"{found[1]}i" if found[2] or found[3] else _DOUBLED.sub(r"\1", found[1])


_COMMON_TERMS = frozenset(term for word in _COMMON.split() for term in terms(word))
