"""Which values does the next step of a recorded agent need, and does a request show them?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.edits import text_of

FAR_MESSAGES = 6  # last seen longer ago than two calls with their results and what was said between
MIN_CHARS = 5  # shorter words stand in any text by chance
MIN_NUMBER_CHARS = 4  # the same of numbers: 17 is everywhere, 1724 is not
BEFORE_CHARS, AROUND_CHARS = 60, 120  # a line of text; what a request shows beside a value may be twice as far off
MOST_MENTIONS, MOST_PLACES = 6, 40  # mentions in the history and in a request that are looked at: linear time

WORD = re.compile(r"[\w./#@:+-]+", re.ASCII)
EDGES = ".:,-+/"
TELLING = re.compile(r"[\d/_.@#]")
PLAIN = re.compile(r"[A-Za-z]{4,}")
FENCED = re.compile(r"```[^`\n]*\n(.*?)```", re.DOTALL)
OPENING = re.compile(r"^[ \t]*<([A-Za-z][\w-]*)(?:[=\s][^<>]*)?>", re.MULTILINE)
CLOSING = re.compile(r"</([A-Za-z][\w-]*)>")
THINKING = re.compile(r"think|thought|reason|analysis|reflect|plan", re.IGNORECASE)
"""Tags of what an agent says to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A value in the arguments of the next call that the history has, too."""

    value: str
    is_far: bool
    beside: frozenset[str]
    """Plain words that stood before it in the history."""

    def in_context(self, request: str) -> bool:
        """True when a request shows the value beside such a word, not in a bare list."""
        at = -1
        for _ in range(MOST_PLACES):
            at = request.find(self.value, at + 1)
            if at < 0:
                return False
            end = at + len(self.value)
            around = f"{request[max(0, at - AROUND_CHARS) : at]} {request[end : end + BEFORE_CHARS]}"
            if self.beside & _plain_words(around):
                return True
        return False


def needed_values(reply: AIMessage, history: Sequence[str]) -> list[Needed]:
    """Return what the calls of a reply name that was seen before, by the texts of the messages so far."""
    everything = "\n".join(history)
    found = list[Needed]()
    for value in sorted({*_named(reply)}):
        if value not in everything:
            continue
        last = max(i for i, text in enumerate(history) if value in text)
        is_far = len(history) - last > FAR_MESSAGES
        found.append(Needed(value=value, is_far=is_far, beside=_beside(value, everything) if is_far else frozenset()))
    return found


def identifiers(text: str) -> Iterator[str]:
    """Yield the words of a text that name one thing: identifiers, paths, addresses, numbers."""
    for match in WORD.finditer(text):
        word = match[0].strip(EDGES) if len(match[0]) >= MIN_CHARS else ""
        if len(word) >= MIN_CHARS and TELLING.search(word):
            yield word


def _named(reply: AIMessage) -> Iterator[str]:
    """What the arguments name; an agent without tool calls writes its command into a fenced block or between tags."""
    for call in reply.tool_calls:
        yield from _in_arguments(call["args"])
    for broken in reply.invalid_tool_calls:
        yield from identifiers(broken["args"] or "")
    if not reply.tool_calls and not reply.invalid_tool_calls:
        text = text_of(reply.content)
        for block in (*FENCED.findall(text), *_tagged(text)):
            yield from identifiers(block)


def _tagged(text: str) -> Iterator[str]:
    """Yield what stands in elements whose opening tag begins a line, whatever its name: `<command>ls src</command>`."""
    closed = {match[1]: match.start() for match in CLOSING.finditer(text)}
    end = 0
    for opening in OPENING.finditer(text):
        name = opening[1]
        if end <= opening.start() < closed.get(name, 0):
            end = text.index(f"</{name}>", opening.end())
            if not THINKING.search(name):
                yield text[opening.end() : end]


def _in_arguments(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _in_arguments(item)
    elif isinstance(value, str):
        yield from identifiers(value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and len(str(value)) >= MIN_NUMBER_CHARS:
        yield str(value)


def _beside(value: str, everything: str) -> frozenset[str]:
    words, at = set[str](), len(everything)
    for _ in range(MOST_MENTIONS):
        at = everything.rfind(value, 0, at)
        if at < 0:
            break
        words |= _plain_words(everything[max(0, at - BEFORE_CHARS) : at])
    return frozenset(words)


def _plain_words(text: str) -> set[str]:
    return {word.lower() for word in PLAIN.findall(text)}
