"""Which questions does the demo ask about the rows of a payload, and what are the true answers?"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from langchain_ctxwin.demo import phrases, row_phrases
from langchain_ctxwin.demo.checks import Verdict, keeps_rule
from langchain_ctxwin.demo.payload import Payload, Row
from langchain_ctxwin.demo.questions import WORDS, Question
from langchain_ctxwin.demo.sight import digest, read_facts
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.projection import project_automatically

T = TypeVar("T")

END_SHARE = 0.97
"""Rows after this part of the payload are near its end."""

NAME_CHARS = (5, 60)
"""Shortest and longest text that names a row in a question."""

SET_ROWS = 150
"""Rows of a set that takes a few pages; the set of about this size is asked about."""

MOST_SET_ROWS = 1_000
"""A larger set takes too long to watch."""

MOST_KINDS = 400
"""A field with more values than this says no kind."""

KIND_CHARS = 30
"""Longest text that says a kind; longer ones are prose."""

LONG_CHARS = 20_000
"""A text of several pages."""

SUM_DIGITS = 2

SIMPLE_NAME = re.compile(r"[A-Za-z_](?:[\w ]*\w)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A row near the end, and what names it."""

    key: str
    row: Row


class Inquiry:
    """The questions about one payload; the same payload and seed give the same ones.

    Raises:
        ConfigError: no row near the end of the payload can be named in a question.
    """

    def __init__(self, payload: Payload, *, seed: int = 0) -> None:
        self._rows = payload.rows
        self._seed = seed
        self._names = _simple_fields(payload.rows)
        self._targets = list(self._near_the_end())
        self.rule_word = self._pick(WORDS, "rule")
        if not self._targets:
            raise ConfigError(f"{payload.name}: no value of its last rows names one row alone: give another payload")

    def opening(self) -> Question:
        """Return the first question, with the rule that holds until the end."""
        return _asked("find", self._find("first"), before=f"{phrases.RULE.format(word=self.rule_word)} ")

    def questions(self) -> Iterator[Question]:
        """Yield the questions that make the reader walk through pages, as far as the payload has what they ask for."""
        found = {"count": self._count(), "total": self._total(), "text": self._text()}
        yield from (_asked(kind, fields) for kind, fields in found.items() if fields)

    def borrowed(self, cursor: str) -> Question:
        """Return a question about a cursor that is not good."""
        return _asked("borrowed", {"cursor": cursor})

    def later(self) -> Question:
        """Return another question about a row near the end."""
        return _asked("find", self._find("later"))

    def closing(self) -> Question:
        """Return the last question."""
        return _asked("recall", {})

    def verify(self, answer: str, question: Question) -> Verdict:
        """Compare an answer with the payload."""
        stated = read_facts(answer)
        expected = {"question": digest(question.text), **self._truth(question.kind, question.fields)}
        wrong = tuple(
            f"{key}: {stated.get(key, 'nothing')!r} instead of {expected.get(key, 'nothing')!r}"
            for key in dict.fromkeys([*expected, *stated])
            if stated.get(key) != expected.get(key)
        )
        return Verdict(is_true=not wrong, keeps_rule=keeps_rule(answer, self.rule_word), wrong=wrong)

    def _truth(self, kind: str, fields: dict[str, str]) -> dict[str, Any]:
        if kind == "recall":
            opening = self.opening()
            return self._truth(opening.kind, opening.fields)
        if kind == "borrowed":
            return {"refused": True}
        field, value = fields["field"], fields["value"]
        if kind == "count":
            return {"rows": sum(spelled(row.get(field)) == value for row in self._rows)}
        rows = [row for row in self._rows if spelled(row.get(fields["key"])) == value]
        if kind == "find":
            return {"value": rows[0][field]}
        if kind == "text":
            return {"times": rows[0][field].count(fields["word"])}
        return {"rows": len(rows), "sum": total(row.get(field) for row in rows)}

    def _near_the_end(self) -> Iterator[Target]:
        """Rows that one of their values names alone; texts rather than numbers, of the field with most such values."""
        counts = {name: Counter(spelled(row.get(name)) for row in self._rows) for name in self._names}
        kinds = {name: isinstance(self._rows[-1].get(name), str) for name in self._names}
        names = sorted(self._names, key=lambda name: (-kinds[name], -len(counts[name])))
        for row in self._rows[int(END_SHARE * len(self._rows)) :]:
            unique = (name for name in names if _is_name(row.get(name)) and counts[name][spelled(row[name])] == 1)
            key = next(unique, None)
            if key is not None and any(self._askable(row, key)):
                yield Target(key=key, row=row)

    def _askable(self, row: Row, key: str) -> list[str]:
        return [name for name in self._names if name != key and spelled(row.get(name)) not in ("", "null")]

    def _find(self, purpose: str) -> dict[str, str]:
        target = self._pick(self._targets, purpose)
        field = self._pick(self._askable(target.row, target.key), f"{purpose} field")
        return {"field": field, "key": target.key, "value": spelled(target.row[target.key])}

    def _count(self) -> dict[str, str] | None:
        """A field that the first page leaves out, else one that it shows."""
        shown = project_automatically(list(self._rows), text_chars=LONG_CHARS, shorten=lambda text, _: text)
        left_out = {path.removeprefix("[].") for path in shown.left_out}
        kinds = self._kinds()
        fields = [name for name in kinds if name in left_out] or list(kinds)
        if not fields:
            return None
        field = self._pick(fields, "count")
        return {"field": field, "value": self._pick(list(kinds[field]), "count value")}

    def _total(self) -> dict[str, str] | None:
        """A set of some pages, and numbers in it."""
        kinds = self._kinds().items()
        sets = [
            (abs(n - SET_ROWS), name, value)
            for name, found in kinds
            for value, n in found.items()
            if n <= MOST_SET_ROWS
        ]
        if not sets:
            return None
        _, key, value = min(sets)
        rows = [row for row in self._rows if spelled(row.get(key)) == value]
        fields = [name for name in self._names if name != key and any(_is_number(row.get(name)) for row in rows)]
        return {"field": self._pick(fields, "total"), "key": key, "value": value} if fields else None

    def _text(self) -> dict[str, str] | None:
        """A text that is longer than a page."""
        for row in self._rows:
            key = next((name for name in self._names if _is_name(row.get(name))), None)
            for name, text in row.items():
                if key and isinstance(text, str) and len(text) >= LONG_CHARS and SIMPLE_NAME.fullmatch(name):
                    words = sorted(set(re.findall(r"\b[a-z]{6,}\b", text)))
                    return {"field": name, "key": key, "value": row[key], "word": self._pick(words, "word")}
        return None

    def _kinds(self) -> dict[str, Counter[str]]:
        """Per field that says a kind of row: how many rows are of each kind."""
        found: dict[str, Counter[str]] = {}
        for name in self._names:
            values = Counter(row[name] for row in self._rows if isinstance(row.get(name), str | bool))
            if 1 < len(values) <= MOST_KINDS and max(len(spelled(value)) for value in values) <= KIND_CHARS:
                found[name] = Counter({spelled(value): n for value, n in values.items() if _is_quotable(value)})
        return {name: values for name, values in found.items() if values}

    def _pick(self, items: Sequence[T], purpose: str) -> T:
        """Choose evenly, but the same each time."""
        seen = hashlib.sha256(f"{self._seed}:{purpose}".encode()).digest()
        return items[int.from_bytes(seen[:8], "big") % len(items)]


def spelled(value: Any) -> str:
    """Return a value as it stands in a question."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def total(values: Any) -> float:
    """Return the sum of what are numbers, rounded so that the order of adding does not matter."""
    return round(math.fsum(value for value in values if _is_number(value)), SUM_DIGITS)


def _asked(kind: str, fields: dict[str, str], *, before: str = "") -> Question:
    return Question(text=before + row_phrases.WORDING.ask(kind, fields), kind=kind, fields=fields)


def _simple_fields(rows: Sequence[Row]) -> list[str]:
    """Fields whose values are scalars and whose names need no quotes, in the order of their first appearance."""
    names = dict.fromkeys(name for row in rows for name in row if SIMPLE_NAME.fullmatch(name))
    nested = {name for row in rows for name, value in row.items() if isinstance(value, dict | list)}
    long = {name for row in rows for name, value in row.items() if isinstance(value, str) and len(value) > LONG_CHARS}
    return [name for name in names if name not in nested | long]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_name(value: Any) -> bool:
    low, high = NAME_CHARS
    is_kind = _is_number(value) or (isinstance(value, str) and _is_quotable(value))
    return is_kind and low <= len(spelled(value)) <= high


def _is_quotable(value: Any) -> bool:
    return not isinstance(value, str) or (bool(value.strip()) and value.isprintable() and "`" not in value)
