"""Sub-questions: those that a question consists of, as a model writes them or as the text is cut by rules."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import structlog
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp

log = structlog.get_logger("langchain_ctxwin")

MAX_SUB_QUESTIONS = 12
"""More parts than this are no questions of one person: the text was misread."""

LEAST_WORDS = 3
"""A shorter part is no question of its own ("and why?")."""

MOST_GROWTH = 2
"""A part that a model wrote is at most so many times as long as the question: pronouns become what they stand for."""

GROWTH_CHARS = 200
"""Growth that is allowed to a short question in any case."""

INSTRUCTIONS = """\
Split the user's question into the separate questions that it asks, each complete in itself: replace pronouns by what \
they stand for. Keep every condition. Do not answer, and add nothing. A question that asks one thing stays as it is.
Reply with a JSON array of strings and nothing else."""

_LIST_ITEM = re.compile(r"(?m)^[ \t]*(?:\(?\d{1,2}[.)]|\(?[a-z][.)]|[-*\u2022])[ \t]+(?=\S)")
_QUESTION_END = re.compile(r"(?<=[?])\s+|(?<=[\uff1f\u061f])\s*")
_MARKS = ("?", "\uff1f", "\u061f")
# White space, and what stands between two words, is looked at once: from each place, a long run would take its square.
_AND = re.compile(
    r"(?:,|(?<!\s))\s++and\s++(?=(?:what|who|whom|whose|when|where|why|how|which)\b)"
    r"|(?:(?<!\s)\s++)?;\s*+(?:and\s++)?",
    re.IGNORECASE,
)
_ASKING = (
    "what|who|whom|whose|when|where|why|how|which|is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|"
    "list|name|count|give|tell|show|find|explain|describe|compare|summari[sz]e|state|say|identify|check"
)
_ASKS = re.compile(
    rf"(?>\A|(?<=\w)\W*?,\s)\W*+(?:(?:and|please|also|then)\s++)*(?:{_ASKING})\b"
    r"|[?\uff1f\u061f][^\w?\uff1f\u061f]*+\Z",
    re.IGNORECASE,
)
_DECODER = json.JSONDecoder()

MAX_BRACKETS = 20
"""Places of a reply where its array may begin: notes and quotes before it have brackets, too."""


def split_question(
    question: str, model: Runnable[Any, Any] | None = None, *, config: RunnableConfig | None = None
) -> tuple[str, ...]:
    """Return the questions that `question` consists of, in its order; itself alone where it asks one thing.

    A model writes them complete in themselves. Without one, and when it fails or its reply cannot be used, the text is
    cut where it is surely several questions: items of a list (each with what leads them in), sentences that end with a
    question mark, clauses after a semicolon or after "and" before a question word. No text is lost by that, but a part
    may refer to another one: show the whole question beside it.

    Example:
        >>> split_question("Who signed the contract and when does it end?")
        ('Who signed the contract', 'when does it end?')
    """
    return questions_in(question, ask(model, split_request(question), config) if model else None)


async def asplit_question(
    question: str, model: Runnable[Any, Any] | None = None, *, config: RunnableConfig | None = None
) -> tuple[str, ...]:
    """Like `split_question`, awaiting the model."""
    return questions_in(question, await aask(model, split_request(question), config) if model else None)


def ask(model: Runnable[Any, Any], request: list[AnyMessage], config: RunnableConfig | None) -> Any:
    """Return the reply of a model, or the exception that it raised; only an interrupt of the graph goes through."""
    try:
        return model.invoke(request, config)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  # whoever asks decides what a failure means
        return error


async def aask(model: Runnable[Any, Any], request: list[AnyMessage], config: RunnableConfig | None) -> Any:
    """Like `ask`, awaiting the model."""
    try:
        return await model.ainvoke(request, config)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  # whoever asks decides what a failure means
        return error


def split_request(question: str) -> list[AnyMessage]:
    """Return the messages that ask a model to split a question."""
    return [SystemMessage(INSTRUCTIONS), HumanMessage(question)]


def questions_in(question: str, reply: Any) -> tuple[str, ...]:
    """Return the questions in a reply of a model, or by rules when there is none, or none that can be used."""
    return (_read(question, reply) if reply is not None else ()) or _cut(question)


def _read(question: str, reply: Any) -> tuple[str, ...]:
    if isinstance(reply, Exception):
        announce_unsplit(f"{type(reply).__name__}: {reply}")
        return ()
    text = str(reply.text if isinstance(reply, BaseMessage) else reply)
    found = _array(text) or _items(text)
    longest_chars = MOST_GROWTH * len(question) + GROWTH_CHARS
    if not 0 < len(found) <= MAX_SUB_QUESTIONS or max(map(len, found)) > longest_chars:
        announce_unsplit(f"unusable reply: {text[:80]!r}")
        return ()
    return found if len(found) > 1 else (question.strip(),)


def announce_unsplit(reason: str) -> None:
    """Report that a question was not split by the model."""
    log.warning("decompose.question_unsplit", reason=reason)


def _array(text: str) -> tuple[str, ...]:
    """The first array of strings; an array of something else is a note or a quote."""
    at = -1
    for _ in range(MAX_BRACKETS):
        at = text.find("[", at + 1)
        if at < 0:
            break
        try:
            values = _DECODER.raw_decode(text, at)[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
            return _unique(values)
    return ()


def _items(text: str) -> tuple[str, ...]:
    """The items of a list that was written instead of an array, if all of them ask something."""
    lines = text.splitlines()
    found = _unique([_LIST_ITEM.sub("", line, count=1) for line in lines if _LIST_ITEM.match(line)])
    return found if all(map(_ASKS.search, found)) else ()


def _unique(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _cut(question: str) -> tuple[str, ...]:
    """The questions that a text surely consists of."""
    for cut in (_by_list, _by_marks, _by_clauses):
        found = cut(question)
        if 1 < len(found) <= MAX_SUB_QUESTIONS:
            return found
    return (question.strip(),)


def _by_list(question: str) -> tuple[str, ...]:
    marks = list(_LIST_ITEM.finditer(question))
    if not 1 < len(marks) <= MAX_SUB_QUESTIONS:  # one item is no list, and of too many each would repeat the lead
        return ()
    lead = question[: marks[0].start()].strip()
    ends = [*(mark.start() for mark in marks[1:]), len(question)]
    items = [question[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    return tuple(f"{lead} {item}".strip() for item in items)


def _by_marks(question: str) -> tuple[str, ...]:
    """Sentences up to each question mark; what is said before a question leads it in, what is said last ends it."""
    found: list[list[str]] = []
    for sentence in filter(None, (part.strip() for part in _QUESTION_END.split(question))):
        if found and (_is_short(sentence) or _is_short(" ".join(found[-1])) or not sentence.endswith(_MARKS)):
            found[-1].append(sentence)
        else:
            found.append([sentence])
    return tuple(map(" ".join, found))


def _is_short(sentence: str) -> bool:
    """True for a few words; other scripts may write whole sentences without spaces."""
    return sentence.isascii() and len(sentence.split()) < LEAST_WORDS


def _by_clauses(question: str) -> tuple[str, ...]:
    """Clauses of one question; all of them or none: one that is short, or asks nothing, belongs to its neighbour."""
    found = tuple(clause.strip() for clause in _AND.split(question))
    return found if all(len(clause.split()) >= LEAST_WORDS and _ASKS.search(clause) for clause in found) else ()
