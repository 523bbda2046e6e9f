"""How well each tool serves a request: what tools offer, what is asked for, nearness by words and by meaning."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from numbers import Real
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.tools import BaseTool
from numpy.typing import NDArray

from langchain_ctxwin.core.tool_schemas import MAX_DEPTH, NAMED_PARTS, PARAMETER_KEYS, SINGLE_PARTS, tool_definition
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import ToolRanker
from langchain_ctxwin.text import MAX_WORDS, TermIndex, query_terms, terms
from langchain_ctxwin.util.background import ForkSafeLock, in_daemon
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, once

MEANING_SHARE = 0.4  # beside words, where there are embeddings: neither alone finds what both together find
# A part of a request is a clear wish when its best tool shares two words with it, which are a third of its own, or is
# so near in meaning: unrelated sentences are below 0.3 in common models.
CLEAR_TERMS, CLEAR_TERM_SHARE = 2, 1 / 3
CLEAR_COSINE = 0.45

# How much a word counts by where it stands: names are short and say most, a choice of values only what is possible.
WEIGHTS = {"title": 2.0, "description": 1.0, "fields": 1.0, "field_texts": 1.0, "values": 0.5}
# Fragments of four letters find another form of a word: `convert` and `conversion` share one. Their weight is too small
# to beat the word itself, they are looked for where they are few, and a run of more than 60 is no word.
FRAGMENT_CHARS, MAX_FRAGMENTS = 4, 60
FRAGMENT_FIELDS = ("title", "description")
FRAGMENT_SHARE = 0.3

PHRASING_WEIGHT = 0.1  # of a word that requests are phrased with: a tool that is called `help` is still found
# A request is extended by the words (a paragraph) of the best tools: enough to order tools that share no word with it.
FEEDBACK_SHARE, FEEDBACK_TOOLS, FEEDBACK_TERMS = 0.3, 10, 30

TERM_SATURATION, LENGTH_NORMALIZATION = 1.5, 0.75  # BM25's k1 and b, the usual: descriptions are a word to a page long
MAX_QUERIES = 256  # embedded requests that are remembered: the parts of a plan come back step after step

_LETTERS = re.compile(r"[^\W\d_]+")

Scores = NDArray[Any]  # one per tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that is wanted, and how well each tool serves it."""

    scores: Scores  # 1 for the best tool
    is_clear: bool  # the best tool is more than a chance match


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The tools in the order of their use for a request."""

    order: tuple[int, ...]  # positions of all tools, best first
    wishes: tuple[Wish, ...]  # the request as a whole, and its parts
    scores: Scores  # 0 is no match


class Ranker:
    """Ranks the tools of a set; thread-safe."""

    def __init__(self, entries: Sequence[Entry], ranker: ToolRanker | None, embeddings: Embeddings | None) -> None:
        if ranker is not None and not callable(getattr(ranker, "rank", None)):
            raise ConfigError(f"ranker={ranker!r}: give an object with a method `rank(query, tools) -> list[float]`")
        self._entries = entries
        self._custom = ranker
        self._embeddings = embeddings
        self._vectors: Scores | None = None
        self._queries: Lru[Scores] = Lru(MAX_QUERIES)
        self._words: WordIndex | None = None  # built at the first choice, once for all that wait
        self._building = ForkSafeLock()

    def rank(self, needs: Needs) -> Ranking:
        """Return the tools in order; a custom ranker that does not return a score for each is a `ConfigError`."""
        if self._custom is not None:
            scores = self._custom_scores(self._custom, needs.request)
            wishes = [Wish(scores=scores, is_clear=bool(scores.any()))]
        else:
            wishes = self._wishes((needs.request, *needs.parts))
            scores = self._combined(wishes)
        order = tuple(np.argsort(-scores, kind="stable").tolist())
        return Ranking(order=order, wishes=tuple(wishes), scores=scores)

    async def arank(self, needs: Needs) -> Ranking:
        """Like `rank`, in a thread: an index of thousands of tools takes seconds, and embeddings ask a service."""
        ranked: Ranking = await asyncio.wrap_future(in_daemon(partial(copy_context().run, self.rank, needs)))
        return ranked

    def _custom_scores(self, ranker: ToolRanker, request: str) -> Scores:
        given = list(ranker.rank(request, [entry.tool for entry in self._entries]))
        if len(given) != len(self._entries) or not all(isinstance(score, Real) for score in given):
            raise ConfigError(
                f"{type(ranker).__name__}.rank returned {len(given)} values for {len(self._entries)} tools, or no "
                "numbers: return one score per tool, in their order"
            )
        return to_one(np.nan_to_num(np.asarray(given, dtype=np.float64), nan=0.0, posinf=1e9, neginf=0.0).clip(0))

    def _wishes(self, texts: Sequence[str]) -> list[Wish]:
        """What each text wants, by its words, and by meaning where there are embeddings that answer."""
        try:
            cosines = self._cosines(texts)
        except Exception as error:  # noqa: BLE001  # whatever a model's client raises: words rank as well
            log.warning("tools.embeddings_failed", error=f"{type(error).__name__}: {error}")
            cosines = [None] * len(texts)
        return [self._wish(text, cosine) for text, cosine in zip(texts, cosines, strict=True)]

    def _wish(self, text: str, cosines: Scores | None) -> Wish:
        index = self._index()
        scores = index.scores(text)
        if cosines is not None:
            scores = to_one((1 - MEANING_SHARE) * scores + MEANING_SHARE * to_one(cosines))
        best = int(scores.argmax()) if len(scores) else -1
        if best < 0 or scores[best] <= 0:
            return Wish(scores=scores, is_clear=False)
        wanted = index.numbers(text)
        shared = sum(number in index.terms[best] for number in wanted)
        is_near = cosines is not None and float(cosines[best]) >= CLEAR_COSINE
        return Wish(scores=scores, is_clear=is_near or shared >= max(CLEAR_TERMS, CLEAR_TERM_SHARE * len(wanted)))

    def _combined(self, wishes: Sequence[Wish]) -> Scores:
        scores = wishes[0].scores
        if len(wishes) > 1:
            # The best of any part counts beside the whole, so that a request for several things gets tools for each.
            scores = to_one(scores + np.max([wish.scores for wish in wishes[1:]], axis=0))
        scores = scores + FEEDBACK_SHARE * to_one(self._index().resembling(scores))
        # However many copies of a tool one part wants, each other part has its best tool.
        best = [int(wish.scores.argmax()) for wish in wishes if wish.is_clear]
        scores[best] = np.nextafter(scores.max(initial=0.0), np.inf)
        return scores

    def _index(self) -> WordIndex:
        with self._building:
            self._words = self._words or WordIndex(self._entries)
            return self._words

    def _cosines(self, texts: Sequence[str]) -> list[Scores | None]:
        """The nearness of each tool to each text; None where there are no embeddings, or no usable ones."""
        if self._embeddings is None or not self._entries:
            return [None] * len(texts)
        if self._vectors is None:
            self._vectors = _unit(self._embeddings.embed_documents([entry.text for entry in self._entries]))
        vectors, embed_query = self._vectors, self._embeddings.embed_query

        def embedded(text: str) -> Scores:
            vector: Scores = _unit([embed_query(text)])[0]
            return vector

        queries = [once(self._queries, text, partial(embedded, text)) for text in texts]
        if len(vectors) != len(self._entries):
            return [None] * len(texts)
        return [(vectors @ one).clip(0) if len(one) == vectors.shape[1] else None for one in queries]


def _unit(vectors: Sequence[Sequence[float]]) -> Scores:
    """The vectors at length 1; one without a length, because it holds no number or only zeros, is near to nothing."""
    found = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    unit: Scores = np.divide(found, lengths, out=np.zeros_like(found), where=(lengths > 0) & (lengths < np.inf))
    return unit


class WordIndex:
    """The words of a tool set. Immutable once it is built, so that threads may share it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        texts = [_weighed(entry, WEIGHTS, terms) for entry in entries]
        self._words = TermIndex(texts, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION)
        fragments = [_weighed(entry, FRAGMENT_FIELDS, _fragments) for entry in entries]
        self._fragments = TermIndex(fragments, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION)
        self.terms = [frozenset(self._words.numbers(text)) for text in texts]
        # How telling a term is, by its number; one that a single tool has leads to no other tool.
        having = self._words.having
        self._rarity = np.where(having > 1, np.log(max(len(texts), 1) / np.maximum(having, 1)), 0.0)
        # Without common words, which would lead anywhere.
        joined = (" ".join(getattr(entry, field) for field in WEIGHTS) for entry in entries)
        own = (self._words.numbers(query_terms(text)) for text in joined)
        self._own = [np.array(sorted(numbers), dtype=np.int64) for numbers in own]

    def scores(self, text: str) -> Scores:
        """Return a score per tool, 1 for the best; 0 without a common word or fragment."""
        asked = _PHRASING.sub(" ", text)
        wanted = dict.fromkeys(self._numbers(text), PHRASING_WEIGHT)
        wanted |= dict.fromkeys(self._numbers(asked), 1.0)
        telling = set(query_terms(asked))
        words = (word for word in _LETTERS.findall(asked) if _term(word) in telling)
        numbers = self._fragments.numbers(fragment for word in words for fragment in _cut(word))
        near = self._fragments.scores(dict.fromkeys(numbers, 1.0))
        return to_one(to_one(self._words.scores(wanted)) + FRAGMENT_SHARE * to_one(near))

    def numbers(self, text: str) -> list[int]:
        """Return the known terms of what a request asks for."""
        return self._numbers(_PHRASING.sub(" ", text))

    def resembling(self, scores: Scores) -> Scores:
        """Return a score per tool for having the words of the best tools: how tools that share no word are found."""
        weights = np.zeros(len(self._words))
        for index in np.argsort(-scores, kind="stable")[:FEEDBACK_TOOLS]:
            own = self._own[index]
            weights[own] += scores[index] * self._rarity[own]
        telling = np.argsort(-weights, kind="stable")[:FEEDBACK_TERMS]
        wanted = {int(number): float(weights[number]) for number in telling if weights[number] > 0}
        found: Scores = self._words.scores(wanted)
        return found

    def _numbers(self, text: str) -> list[int]:
        """The known terms of a text; plain numbers are values of parameters, and say nothing of the tool."""
        return self._words.numbers(term for term in query_terms(text) if not term.isdigit())


def to_one(scores: Scores) -> Scores:
    """Scale so that the best is 1; scores without a match stay."""
    best = float(scores.max()) if len(scores) else 0.0
    return scores / best if best > 0 else scores


def _weighed(entry: Entry, fields: Iterable[str], cut: Callable[[str], Iterable[str]]) -> Mapping[str, float]:
    """How much each piece of a tool's texts counts."""
    weighed: dict[str, float] = {}
    for field in fields:
        for piece in cut(getattr(entry, field)):
            weighed[piece] = weighed.get(piece, 0.0) + WEIGHTS[field]
    return weighed


def _fragments(text: str) -> list[str]:
    return [fragment for word in _LETTERS.findall(text) for fragment in _cut(word)]


@lru_cache(maxsize=MAX_WORDS)
def _term(word: str) -> str:
    return terms(word)[0]


@lru_cache(maxsize=MAX_WORDS)
def _cut(word: str) -> tuple[str, ...]:
    """Every four letters in a row; a short word whole."""
    plain = word.casefold()
    last = min(max(1, len(plain) - FRAGMENT_CHARS + 1), MAX_FRAGMENTS)
    return tuple(plain[start : start + FRAGMENT_CHARS] for start in range(last))


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
    is_unnamed: bool  # a provider's own tool, which is called by its type
    title: str  # the words of its names
    description: str
    fields: str  # the names of its parameters
    field_texts: str  # and their descriptions
    values: str  # that they can have, as far as they are listed

    @property
    def text(self) -> str:
        """What embeddings are made from."""
        return f"{self.title}: {self.description}" if self.description else self.title

    @property
    def summary(self) -> str:
        """The first sentence of the description, on one line."""
        first = re.split(r"(?<=[.!?])\s", " ".join(self.description.split()), maxsplit=1)[0]
        return first if len(first) <= MAX_SUMMARY_CHARS else f"{first[: MAX_SUMMARY_CHARS - 3].rstrip()}..."


def entries_of(tools: Iterable[Any]) -> tuple[Entry, ...]:
    """Read tools. Of provider tools that have no name but their type, the second of a type is called `type 2`."""
    entries, seen = list[Entry](), Counter[str]()
    for entry in map(entry_of, tools):
        seen[entry.name] += 1
        name = f"{entry.name} {seen[entry.name]}"
        again = entry.is_unnamed and seen[entry.name] > 1
        entries.append(replace(entry, name=name, names=(name,)) if again else entry)
    return tuple(entries)


def entry_of(tool: Any) -> Entry:
    """Read a tool in any form LangChain takes; what nobody can read has only its name."""
    functions = list(_functions(tool))
    given = tuple(name for function in functions if (name := str(function.get("name") or "")))
    names = given or (_fallback_name(tool),)
    schemas = [schema for function in functions for schema in _schemas(function)]
    properties = [part for schema in schemas if isinstance(part := schema.get("properties"), Mapping)]
    return Entry(
        tool=tool,
        name=names[0],
        names=names,
        is_unnamed=not given and isinstance(tool, Mapping),
        title=_joined(re.sub(r"[\W_]+", " ", name) for name in names),
        description=_joined(_text(function.get("description")) for function in functions),
        fields=_joined(str(name) for part in properties for name in part),
        field_texts=_joined(filter(None, (_text(schema.get("description")) for schema in schemas[1:]))),
        values=_joined(value for schema in schemas for value in _values(schema)),
    )


def _functions(tool: Any) -> Iterator[Mapping[str, Any]]:
    """The definitions in one tool: mostly one."""
    definition = tool if isinstance(tool, Mapping) else tool_definition(tool)
    if not isinstance(definition, Mapping):
        return
    for key in ("function_declarations", "functionDeclarations"):
        if isinstance(declared := definition.get(key), list | tuple):
            yield from (part for part in declared if isinstance(part, Mapping))
            return
    wrapped = (part for key in ("function", "toolSpec") if isinstance(part := definition.get(key), Mapping))
    function = next(wrapped, definition)
    if "name" not in function and "title" in function:
        function = {**function, "name": function["title"], "parameters": function}
    yield function


def _fallback_name(tool: Any) -> str:
    """The name of a provider's own tool, which is its type or its only key; else what the object is called.

    Of servers there are several, told apart by their label.
    """
    if isinstance(tool, Mapping):
        kind, label = tool.get("type"), tool.get("server_label")
        own = kind if isinstance(kind, str) and kind else next(map(str, tool), "")
        return f"{own}:{label}" if isinstance(label, str) and label else own
    name = tool.name if isinstance(tool, BaseTool) else getattr(tool, "name", getattr(tool, "__name__", None))
    return name if isinstance(name, str) and name else type(tool).__name__


def _schemas(function: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema of a function and those inside it, near ones first; each once, so that recursive ones end."""
    root = next((found for key in PARAMETER_KEYS if (found := function.get(key)) is not None), None)
    if isinstance(root, Mapping) and isinstance(inner := root.get("json"), Mapping):
        root = inner  # Bedrock wraps the schema once more
    waiting, seen = deque([(root, 0)]), set[int]()
    while waiting and len(seen) < MAX_FIELDS:
        schema, depth = waiting.popleft()
        if not isinstance(schema, Mapping) or id(schema) in seen or depth >= MAX_DEPTH:
            continue
        seen.add(id(schema))
        yield schema
        named = (part for key in NAMED_PARTS if isinstance(part := schema.get(key), Mapping))
        single = (schema.get(key) for key in SINGLE_PARTS)
        parts = [*(list(part.values()) for part in named)]
        parts += [list(part) if isinstance(part, list | tuple) else [part] for part in single]
        waiting.extend((part, depth + 1) for some in parts for part in some[:MAX_FIELDS])


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    """The texts that a schema lists as possible, usual or example."""
    for key in ("enum", "examples"):
        listed = schema.get(key)
        yield from map(_text, listed[:MAX_FIELDS] if isinstance(listed, list | tuple) else ())
    yield from (_text(schema.get(key)) for key in ("const", "default"))


def _joined(texts: Iterable[str]) -> str:
    return " ".join(texts)[:MAX_TEXT_CHARS]


def _text(value: Any) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""


Asked = str | Sequence[MessageLikeRepresentation]  # a query, or the messages of a conversation
SEARCH_NAME = "search_tools"
LINE_START, LINE_NAME_END = "- ", ": "  # around the name of a tool in a result of `search_tools`
MAX_REQUEST_CHARS = 4_000  # read of a request or a plan, half at either end: pasted text in between is no request
MAX_NEEDS = 20  # parts that are ranked each for itself: time grows with them, and longer lists of wishes are rare
MIN_NEED_TERMS = 2  # a part with fewer words of its own joins the part before it
SHORT_REQUEST_TERMS = 3  # a request with fewer ("yes, do that") is read with what was said before it
DONE = ("completed", "cancelled")  # states of items on a list of things to do that need no tools any more

_CONJUNCTION = r"(?:and|then|also|plus|as well as|along with|additionally|furthermore|moreover)\b[,\s]*+"
# White space is looked at from where it begins, once: from each of its places, a long run would take its square.
_PARTS = re.compile(
    rf"(?<=[.?!;:])\s++|(?<!\s)\n++(?:\s++{_CONJUNCTION})?|\n++|(?:,|(?<!\s))\s++{_CONJUNCTION}",
    re.IGNORECASE,
)

# Words that requests are phrased with; whole words, because "interested" says nothing and "interest" does.
_PHRASES = """
able assist assistance curious dear finally first give good great hello help hey hi hope imagine interested interesting
kind kindly know lastly let like love may maybe might must need next nice ok okay please possible second shall sure tell
thank thanks think third try trying want wanted wish wonder wondering
"""
_PHRASING = re.compile(rf"\b(?:{'|'.join(_PHRASES.split())})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What tools are wanted for."""

    request: str  # the whole request, with what is planned
    parts: tuple[str, ...] = ()  # its parts when it has several, each one a wish of its own
    called: tuple[str, ...] = ()  # names of the tools that the conversation has called, the last one first
    called_now: tuple[str, ...] = ()  # those that it has called since the last request
    found: tuple[str, ...] = ()  # lines of `search_tools` since then, newest results first; each begins with a name
    is_new: bool = True  # while the model has said nothing to the request


def needs_of(asked: Asked) -> Needs:
    """Read a query, or the messages of a conversation; anything else is a `ConfigError`."""
    if isinstance(asked, str):
        request = _clipped(asked)
        return Needs(request=request, parts=_wishes([request]))
    given: object = asked
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise ConfigError(f"query_or_messages={type(asked).__name__}: give a text or a list of messages")
    messages: list[BaseMessage] = list(convert_to_messages(asked))
    start = next((at for at in reversed(range(len(messages))) if isinstance(messages[at], HumanMessage)), 0)
    turn = messages[start:]
    texts = [*_request(messages[:start], turn), *_plan(turn)]
    results = [one for one in reversed(turn) if isinstance(one, ToolMessage) and one.name == SEARCH_NAME]
    lines = (line for result in results for line in result.text.splitlines() if line.startswith(LINE_START))
    return Needs(
        request="\n".join(texts),
        parts=_wishes(texts),
        called=_called(messages),
        called_now=_called(turn),
        is_new=not any(isinstance(message, AIMessage) for message in turn),
        found=tuple(dict.fromkeys(line.removeprefix(LINE_START) for line in lines)),
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
    return [*(_clipped(said) for kind in (HumanMessage, AIMessage) if (said := _last_text(before, kind))), request]


def _plan(turn: Sequence[BaseMessage]) -> list[str]:
    """What the model last said in this turn, and what is open on its list of things to do."""
    calls = [call["args"] for message in turn if isinstance(message, AIMessage) for call in message.tool_calls]
    lists = [todos for args in calls if isinstance(todos := args.get("todos"), list)]
    items = [item for item in (lists or [[]])[-1] if isinstance(item, Mapping) and item.get("status") not in DONE]
    to_do = "\n".join(content for item in items if isinstance(content := item.get("content"), str))
    return [_clipped(text) for text in (_last_text(turn, AIMessage), to_do) if text]


def _called(messages: Sequence[BaseMessage]) -> tuple[str, ...]:
    calls = [call["name"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return tuple(name for name in dict.fromkeys(reversed(calls)) if name != SEARCH_NAME)


def _wishes(texts: Iterable[str]) -> tuple[str, ...]:
    parts = list(dict.fromkeys(part for text in texts for part in parts_of(text)))
    return tuple(parts[:MAX_NEEDS]) if len(parts) > 1 else ()


def _last_text(messages: Sequence[BaseMessage], kind: type[BaseMessage]) -> str:
    texts = (str(message.text) for message in reversed(messages) if isinstance(message, kind))
    return next((text for text in texts if text.strip()), "")


def _clipped(text: str) -> str:
    half = MAX_REQUEST_CHARS // 2
    return text if len(text) <= MAX_REQUEST_CHARS else f"{text[:half]}\n{text[-half:]}"
