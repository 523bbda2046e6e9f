"""What tools say of themselves, what a request asks of them, and how well each of them serves it.

A request is ranked as a whole and part by part, by its words, or as a ranker says.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
)

from langchain_ctxwin.core.pairing import standard
from langchain_ctxwin.core.tool_schemas import functions_of, name_of, schemas_of
from langchain_ctxwin.core.turns import as_messages
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import ToolRanker
from langchain_ctxwin.text import TermIndex, query_terms, terms

# What is read for words: what a tool is for is said at the top of its schema, and in the first two pages of a text.
MAX_FIELDS = 200
MAX_TEXT_CHARS = 4_000

MAX_SUMMARY_CHARS = 160  # two printed lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tool as the ranking sees it."""

    tool: Any  # as it was given
    name: str  # by which the model calls it; of several functions in one tool, the first of its names
    names: tuple[str, ...]
    title: str  # the words of its names
    description: str
    fields: str  # the names of its parameters
    field_texts: str  # and their descriptions
    values: str  # that they can have, as far as they are listed

    @property
    def summary(self) -> str:
        """The first sentence of the description, on one line."""
        text = " ".join(self.description.split())
        first = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
        is_short = len(first) <= MAX_SUMMARY_CHARS
        return first if is_short else f"{first[:MAX_SUMMARY_CHARS]}..."


def entry_of(tool: Any) -> Entry:
    """Read a tool in any form LangChain takes; of a form that is unknown only the name is read."""
    functions = list(functions_of(tool))
    names = tuple(str(one["name"]) for one in functions if one.get("name"))
    names = names or (_fallback_name(tool),)
    schemas = [
        schema
        for function in functions
        for schema in islice(schemas_of(function.get("parameters")), MAX_FIELDS)
    ]
    return Entry(
        tool=tool,
        name=names[0],
        names=names,
        title=_joined(re.sub(r"[\W_]+", " ", name) for name in names),
        description=_joined(one.get("description") for one in functions),
        fields=_joined(name for one in schemas for name in one.get("properties") or ()),
        field_texts=_joined(schema.get("description") for schema in schemas[1:]),
        values=_joined(value for schema in schemas for value in _values(schema)),
    )


def _fallback_name(tool: Any) -> str:
    """The name of a provider's own tool, which is its type or its only key; of several servers, with its label."""
    if not isinstance(tool, Mapping):
        return name_of(tool) or type(tool).__name__
    own, label = tool.get("type") or next(iter(tool), ""), tool.get("server_label")
    return f"{own}:{label}" if label else str(own)


def _values(schema: Mapping[str, Any]) -> Iterator[Any]:
    """What a schema lists as possible or usual."""
    for key in ("enum", "examples"):
        listed = schema.get(key)
        yield from listed if isinstance(listed, list | tuple) else ()
    yield from (schema.get("const"), schema.get("default"))


def _joined(values: Iterable[Any]) -> str:
    texts = (value[:MAX_TEXT_CHARS] for value in values if isinstance(value, str))
    return " ".join(texts)[:MAX_TEXT_CHARS]


# a query, or the messages of a conversation
QueryOrMessages = str | Sequence[MessageLikeRepresentation]
SEARCH_NAME = "search_tools"
FOUND_KEY = "ctxwin_tools"  # of an artifact that names the tools which a search found
MAX_REQUEST_CHARS = 4_000  # read of a request or a plan, half at either end: pasted text in between is no request
MAX_NEEDS = 20  # parts that are ranked each for itself: time grows with them, and longer lists of wishes are rare
MIN_NEED_TERMS = 2  # a part with fewer words of its own joins the part before it
# a request with fewer ("yes, do that") is read with what was said before it
SHORT_REQUEST_TERMS = 3
_CONJUNCTION = r"(?:and|then|also|plus|as well as|along with|additionally|furthermore|moreover)\b[,\s]*+"
# White space is looked at from where it begins, once: from each of its places, a long run would take its square.
_PARTS = re.compile(
    rf"(?<=[.?!;:])\s++|(?<!\s)\n++(?:\s++{_CONJUNCTION})?|\n++|(?:,|(?<!\s))\s++{_CONJUNCTION}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What tools are wanted for."""

    request: str  # the whole request, with what is planned
    # its parts when it has several, each one a wish of its own
    parts: tuple[str, ...] = ()
    # what a person asks for that the model has said nothing to, as a whole and in parts
    new: tuple[str, ...] = ()
    # names of the tools that the conversation has called, the last one first
    called: tuple[str, ...] = ()
    called_now: tuple[str, ...] = ()  # those that it has called since the last request
    # names of the tools that `search_tools` found since then, newest results first
    searched: tuple[str, ...] = ()


def needs_of(query_or_messages: QueryOrMessages) -> Needs:
    """Read a query, or the messages of a conversation; anything else is a `ConfigError`."""
    if isinstance(query_or_messages, str):
        query_or_messages = [HumanMessage(query_or_messages)]
    wanted = "a text or a list of messages"
    expect(query_or_messages, list | tuple, "query_or_messages", wanted)
    conversation = cast("list[AnyMessage]", as_messages(query_or_messages))
    messages = [part for message in conversation for part in standard(message)]
    users = [at for at, one in enumerate(messages) if isinstance(one, HumanMessage)]
    start = users[-1] if users else 0
    turn = messages[start:]
    texts = _request(messages[:start], turn)
    if said := _last_text(turn, AIMessage):
        texts.append(said)
    is_new = not any(isinstance(message, AIMessage) for message in turn)
    own = _clipped(turn[0].text) if is_new and turn else ""
    searched = (
        name
        for one in reversed(turn)
        if isinstance(one, ToolMessage) and isinstance(one.artifact, Mapping)
        for name in one.artifact.get(FOUND_KEY) or ()
    )
    return Needs(
        request="\n".join(texts),
        parts=_wishes(texts),
        called=_called(messages),
        called_now=_called(turn),
        new=(own, *parts_of(own)),
        searched=tuple(dict.fromkeys(searched)),
    )


def parts_of(text: str) -> list[str]:
    """Cut a request into its sentences and clauses; short ones stay with the one before."""
    parts: list[list[str]] = []
    for piece in _PARTS.split(text):
        part = piece.strip(" ,\t")
        if part and parts and len(query_terms(part)) < MIN_NEED_TERMS:
            parts[-1].append(part)
        elif part:
            parts.append([part])
    return [" ".join(joined) for joined in parts]


def _request(before: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> list[str]:
    """The last user message; with what was said before it when it says little itself."""
    if not turn or not isinstance(turn[0], HumanMessage):
        return []
    request = _clipped(turn[0].text)
    if len(query_terms(request)) >= SHORT_REQUEST_TERMS:
        return [request]
    said = (_last_text(before, kind) for kind in (HumanMessage, AIMessage))
    return [*filter(None, said), request]


def _called(messages: Sequence[BaseMessage]) -> tuple[str, ...]:
    calls = [
        call["name"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    return tuple(name for name in dict.fromkeys(reversed(calls)) if name != SEARCH_NAME)


def _wishes(texts: Iterable[str]) -> tuple[str, ...]:
    parts = list(dict.fromkeys(part for text in texts for part in parts_of(text)))
    return tuple(parts[:MAX_NEEDS]) if len(parts) > 1 else ()


def _last_text(messages: Sequence[BaseMessage], kind: type[BaseMessage]) -> str:
    texts = (one.text for one in reversed(messages) if isinstance(one, kind))
    return _clipped(next(filter(str.strip, texts), ""))


def _clipped(text: str) -> str:
    half = MAX_REQUEST_CHARS // 2
    return text if len(text) <= MAX_REQUEST_CHARS else f"{text[:half]}\n{text[-half:]}"


# ---- ranking ---------------------------------------------------------------------------------------------------------

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
        wanted = [term for term in _wanted(text) if self._words.having(term)]
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
