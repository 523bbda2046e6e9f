"""How well each tool serves a request, as a whole and part by part, by its words, or as a ranker says."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import ToolRanker
from langchain_ctxwin.text import TermIndex, query_terms, terms
from langchain_ctxwin.tools.entries import Entry, Needs

# A part of a request is a clear wish when its best tool shares a third of its words, two of them or one that few tools
# are named by.
CLEAR_TERMS, CLEAR_TERM_SHARE = 2, 1 / 3
FEW_TOOLS = 5

# How much a word counts by where it stands: names are short and say most, a choice of values only what is possible.
WEIGHTS = {
    "title": 2.0,
    "description": 1.0,
    "fields": 1.0,
    "field_texts": 1.0,
    "values": 0.5,
}
# Fragments of four letters find another form of a word: `convert` and `conversion` share one. Their weight is too small
# to beat the word itself, they are looked for where they are few, and a run of more than 60 is no word.
FRAGMENT_CHARS, MAX_FRAGMENTS = 4, 60
FRAGMENT_FIELDS = ("title", "description")
FRAGMENT_SHARE = 0.3

# A request is extended by the words (a paragraph) of the best tools: enough to order tools that share no word with it.
FEEDBACK_SHARE, FEEDBACK_TOOLS, FEEDBACK_TERMS = 0.3, 10, 30

# BM25's k1 and b, the usual: descriptions are a word to a page long
TERM_SATURATION, LENGTH_NORMALIZATION = (1.5, 0.75)

_LETTERS = re.compile(r"[^\W\d_]+")
Scores = list[float]  # one per tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that is wanted, and how well each tool serves it."""

    scores: Scores  # 1 for the best tool
    is_clear: bool  # the best tool is more than a chance match

    def among(self, tools: Iterable[int]) -> Wish:
        """Return the same for some of the tools alone."""
        scores = [0.0] * len(self.scores)
        for tool in tools:
            scores[tool] = self.scores[tool]
        return replace(self, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The tools in the order of their use for a request."""

    wishes: tuple[Wish, ...]  # the request as a whole, and its parts
    scores: Scores  # 0 is no match

    @property
    def order(self) -> list[int]:
        """Positions of all tools, best first."""
        return best_first(self.scores)


class WordIndex:
    """The words of a tool set. Immutable once it is built, so that threads may share it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._count = len(entries)
        self._texts = [_weighed(entry, WEIGHTS, terms) for entry in entries]
        self._words = _index(self._texts)
        self._fragments = _index(
            [_weighed(entry, FRAGMENT_FIELDS, _fragments) for entry in entries]
        )
        self._names = [frozenset(terms(entry.title)) for entry in entries]
        # Without common words, which would lead anywhere.
        joined = (
            " ".join(getattr(entry, field) for field in WEIGHTS) for entry in entries
        )
        self._own = [query_terms(text) for text in joined]

    def ranking(self, needs: Needs) -> Ranking:
        """Return the tools in order, by the request as a whole and by its parts.

        A text that a person has just said is clear by one word that few tools are named by.
        """
        texts = (needs.request, *needs.parts)
        wishes = [self._wish(text, by_name=text in needs.new) for text in texts]
        scores = wishes[0].scores
        if len(wishes) > 1:
            # The best of any part counts beside the whole, so that a request for several things gets tools for each.
            best = map(max, zip(*(wish.scores for wish in wishes[1:]), strict=True))
            scores = to_one(list(map(operator.add, scores, best)))
        like = to_one(self._resembling(scores))
        scores = list(map(_feedback, scores, like))
        # However many copies of a tool one part wants, each other part has its best tool.
        first = math.nextafter(max(scores, default=0.0), math.inf)
        for wish in wishes:
            if wish.is_clear:
                scores[wish.scores.index(max(wish.scores))] = first
        return Ranking(wishes=tuple(wishes), scores=scores)

    def _wish(self, text: str, *, by_name: bool) -> Wish:
        scores = self._scores(text)
        best = scores.index(max(scores)) if any(scores) else None
        is_clear = best is not None and self._serves(best, text, by_name=by_name)
        return Wish(scores=scores, is_clear=is_clear)

    def _scores(self, text: str) -> Scores:
        """A score per tool, 1 for the best; 0 without a common word or fragment."""
        wanted = dict.fromkeys(_wanted(text), 1.0)
        words = (word for word in _LETTERS.findall(text) if terms(word)[0] in wanted)
        cut = dict.fromkeys((part for word in words for part in _cut(word)), 1.0)
        alike = to_one(self._words.scores(wanted))
        near = to_one(self._fragments.scores(cut))
        return to_one(
            [a + FRAGMENT_SHARE * b for a, b in zip(alike, near, strict=True)]
        )

    def _serves(self, tool: int, text: str, *, by_name: bool) -> bool:
        """Whether a tool has enough of a text's words to be what it asks for, or is named by one of them."""
        wanted = [term for term in _wanted(text) if term in self._words]
        shared = [term for term in wanted if term in self._texts[tool]]
        is_named = by_name and any(
            term in self._names[tool] and self._words.having(term) <= FEW_TOOLS
            for term in shared
        )
        return len(shared) >= CLEAR_TERM_SHARE * len(wanted) and (
            is_named or len(shared) >= CLEAR_TERMS
        )

    def _resembling(self, scores: Scores) -> Scores:
        """A score per tool for having the words of the best tools: how tools that share no word are found."""
        weights: dict[str, float] = {}
        for tool in best_first(scores)[:FEEDBACK_TOOLS]:
            for term in self._own[tool]:
                having = self._words.having(term)
                # one that a single tool has leads to no other tool
                if having > 1 and scores[tool]:
                    weights[term] = weights.get(term, 0.0) + scores[tool] * math.log(
                        self._count / having
                    )
        telling = sorted(weights, key=lambda term: -weights[term])[:FEEDBACK_TERMS]
        return self._words.scores({term: weights[term] for term in telling})


def custom_ranking(ranker: ToolRanker, tools: Sequence[Any], request: str) -> Ranking:
    """Return the order of a ranker of the user's own; one score per tool, of which 0 or less, or none, is no match."""
    said = ranker.rank(request, tools)
    if len(said) != len(tools):
        raise ConfigError(
            f"{type(ranker).__name__}.rank returned {len(said)} values for {len(tools)} tools: "
            "return one score per tool, in their order"
        )
    scores = to_one([float(score) if score > 0 else 0.0 for score in said])
    wish = Wish(scores=scores, is_clear=any(scores))
    return Ranking(wishes=(wish,), scores=scores)


def _wanted(text: str) -> list[str]:
    """What a request asks for; plain numbers are values of parameters, and say nothing of the tool."""
    return [term for term in query_terms(text) if not term.isdigit()]


def best_first(scores: Scores) -> list[int]:
    """Return the positions of scores, the largest first, equal ones in their order."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)


def _feedback(score: float, like: float) -> float:
    return score + FEEDBACK_SHARE * like


def to_one(scores: Scores) -> Scores:
    """Scale so that the best is 1; scores without a match stay."""
    best = max(scores, default=0.0)
    return [score / best for score in scores] if best > 0 else scores


def _weighed(
    entry: Entry, fields: Iterable[str], cut: Callable[[str], Iterable[str]]
) -> Mapping[str, float]:
    """How much each piece of a tool's texts counts."""
    weighed: dict[str, float] = {}
    for field in fields:
        for piece in cut(getattr(entry, field)):
            weighed[piece] = weighed.get(piece, 0.0) + WEIGHTS[field]
    return weighed


def _index(texts: Sequence[Mapping[str, float]]) -> TermIndex:
    return TermIndex(
        texts, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION
    )


def _fragments(text: str) -> list[str]:
    return [fragment for word in _LETTERS.findall(text) for fragment in _cut(word)]


def _cut(word: str) -> list[str]:
    """Every four letters in a row; a short word whole."""
    plain = word.casefold()
    last = min(max(1, len(plain) - FRAGMENT_CHARS + 1), MAX_FRAGMENTS)
    return [plain[start : start + FRAGMENT_CHARS] for start in range(last)]
