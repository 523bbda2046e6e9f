"""What can a model see in the messages it is given? Everything the offline model decides from stands here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxwin.demo import phrases

EVIDENCE = "Evidence: "
"""Opens the line of an answer that holds its facts as JSON."""

NOTE = re.compile(r"\A(?>.*?\[note )([^\]]*)\]", re.DOTALL)
GAP = re.compile(r"\[\.\.\. [\d,]+ characters left out")
GONE = re.compile(r"^\[(?:Tool result cleared|No result)")
EDITORIAL = re.compile(r"^\[[^\]]*\]$|^<record>")
"""A user-side message that somebody put in between: a request to continue, the record of earlier messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One result of the latest calls, as far as it is visible."""

    name: str
    args: dict[str, Any]
    text: str
    is_error: bool

    @property
    def is_whole(self) -> bool:
        """True when nothing was left out of it."""
        return GAP.search(self.text) is None

    @property
    def is_gone(self) -> bool:
        """True when only a stub is left."""
        return GONE.search(self.text) is not None

    @property
    def lines(self) -> list[str]:
        """The lines without the last one, which says what the result covers."""
        return self.text.split("\n")[:-1]

    def totals(self, pattern: str) -> list[int]:
        """Return the numbers in the last line, which must match as a whole; empty when it does not."""
        match = re.fullmatch(pattern, self.text.rpartition("\n")[2])
        return [int(number) for number in match.groups()] if match else []

    def line(self, number: int) -> str | None:
        """Return a numbered line of a file; None when it is not visible."""
        start = f"{number}: "
        found = (line.removeprefix(start) for line in self.lines if line.startswith(start))
        return next(found, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one request shows."""

    question: str = ""
    """The current user message as it reads; empty when none is visible."""

    rule_word: str = ""
    """The word that answers must end with; empty when no visible message asks for one."""

    note: dict[str, str] = field(default_factory=dict)
    """What the model wrote down for itself beside its latest calls."""

    results: tuple[Result, ...] = ()
    """Results of the latest calls, in their order; empty at the beginning of a turn."""

    first_answer: dict[str, Any] = field(default_factory=dict)
    """Facts of the answer to the first visible question."""


def look(messages: Sequence[BaseMessage]) -> Sight:
    """Read a request the way a model does: by its text and order alone."""
    asked = [index for index, message in enumerate(messages) if _is_question(message)]
    if not asked:
        return Sight()
    after = messages[asked[-1] + 1 :]
    caller = next((message for message in reversed(after) if isinstance(message, AIMessage)), None)
    rules = (phrases.read_rule(messages[index].text) for index in asked)
    return Sight(
        question=messages[asked[-1]].text,
        rule_word=next(filter(None, rules), ""),
        note=_note(caller.text) if caller else {},
        results=tuple(_results(caller, after)) if caller else (),
        first_answer=_first_facts(messages[asked[0] + 1 : asked[1]]) if len(asked) > 1 else {},
    )


def _first_facts(turn: Sequence[BaseMessage]) -> dict[str, Any]:
    """The facts of the first answer in a turn: its calls come before it, as long as they are visible."""
    answers = (read_facts(message.text) for message in turn if isinstance(message, AIMessage))
    return next(filter(None, answers), {})


def digest(text: str) -> str:
    """Return a short fingerprint of a text: who can state it has read every character."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def read_facts(answer: str) -> dict[str, Any]:
    """Return the facts that an answer states; empty when it states none."""
    line = next((line for line in answer.split("\n") if line.startswith(EVIDENCE)), "")
    try:
        facts = json.loads(line.removeprefix(EVIDENCE) or "{}")
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def write_note(values: dict[str, Any]) -> str:
    """Return the line that the model leaves for itself."""
    return f"[note {' '.join(f'{key}={value}' for key, value in values.items())}]" if values else ""


def _is_question(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and EDITORIAL.match(message.text) is None


def _note(text: str) -> dict[str, str]:
    match = NOTE.search(text)
    return dict(pair.split("=", 1) for pair in match[1].split() if "=" in pair) if match else {}


def _results(caller: AIMessage, messages: Iterable[BaseMessage]) -> Iterable[Result]:
    found = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    for call in caller.tool_calls:
        message = found.get(call["id"] or "")
        text = message.text if message else "[No result]"
        is_error = message is not None and message.status == "error"
        yield Result(name=call["name"], args=call["args"], text=text, is_error=is_error)
