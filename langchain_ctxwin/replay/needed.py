"""Which values does the next step of a recorded agent need?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.edits import text_of

MIN_CHARS = 5  # shorter words stand in any text by chance
MIN_NUMBER_CHARS = 4  # the same of numbers: 17 is everywhere, 1724 is not

WORD = re.compile(r"[\w./#@:+-]+", re.ASCII)
EDGES = ".:,-+/"
TELLING = re.compile(r"[\d/_.@#]")
FENCED = re.compile(r"```[^`\n]*\n(.*?)```", re.DOTALL)
OPENING = re.compile(r"^[ \t]*<([A-Za-z][\w-]*)(?:[=\s][^<>]*)?>", re.MULTILINE)
CLOSING = re.compile(r"</([A-Za-z][\w-]*)>")
THINKING = re.compile(r"think|thought|reason|analysis|reflect|plan", re.IGNORECASE)
"""Tags of what an agent says to itself."""


def needed_values(reply: AIMessage, history: Sequence[str]) -> list[str]:
    """Return what the calls of a reply name that was seen before, by the texts of the messages so far.

    An agent without tool calls writes its command into a fenced block or between tags.
    """
    named = set[str]()
    for call in reply.tool_calls:
        named |= {*_in_arguments(call["args"])}
    for broken in reply.invalid_tool_calls:
        named |= {*identifiers(broken["args"] or "")}
    if not reply.tool_calls and not reply.invalid_tool_calls:
        text = text_of(reply.content)
        for block in (*FENCED.findall(text), *_tagged(text)):
            named |= {*identifiers(block)}
    everything = "\n".join(history)
    return [value for value in sorted(named) if value in everything]


def identifiers(text: str) -> Iterator[str]:
    """Yield the words of a text that name one thing: identifiers, paths, addresses, numbers."""
    for match in WORD.finditer(text):
        word = match[0].strip(EDGES) if len(match[0]) >= MIN_CHARS else ""
        if len(word) >= MIN_CHARS and TELLING.search(word):
            yield word


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
