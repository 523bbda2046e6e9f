"""What is wrong with a setting, in words: its name, its value unless that may be secret, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

MAX_AMOUNT = 10**15
"""Largest number of tokens, rows or messages: floats hold every whole number up to it, no window comes near it."""

SECRET_NAMES = frozenset({"cursor_keys"})
"""Settings whose values are never shown."""

SHOWN_CHARS = 80
"""Longest value or name in an error: enough to recognize it."""


def explained(problem: ErrorDetails, given: Mapping[str, Any], known: Collection[str]) -> str:
    """Return one problem in words: the setting, its value unless that may be a secret, and what to do.

    Args:
        problem: as pydantic describes it.
        given: what code or a file gave; what is not among it came from the environment.
        known: names of all settings, one of which may be meant.
    """
    place, kind = problem["loc"], problem["type"]
    name = ".".join(printable(str(part)) for part in place) or "settings"
    if kind == "extra_forbidden":  # a misspelt name may well stand before a secret
        return f"unknown setting {name}{_suggestion(name, known)}: remove it or correct its name"
    origin = "" if place and place[0] in given else " (from the environment)"
    return f"{name}{_value(problem)}{origin}: {_advice(problem)}"


def _value(problem: ErrorDetails) -> str:
    """The value as it was given, unless it is a secret, or a whole table or list that may hold one."""
    value = problem["input"]
    if SECRET_NAMES.intersection(map(str, problem["loc"])) or problem["type"] in {"model_type", "dict_type"}:
        return ""
    if not isinstance(value, str | int | float | bool | None):
        return ""
    if isinstance(value, int) and abs(value) > MAX_AMOUNT:  # Python refuses to print very long ones
        return f"=(a number of {value.bit_length():,} bits)"
    return f"={_shortened(repr(value))}"


def _advice(problem: ErrorDetails) -> str:
    if problem["type"] in {"model_type", "dict_type"}:
        return f"give a table of settings, not {type(problem['input']).__name__}"
    least = problem.get("ctx", {}).get("ge")
    return problem["msg"] if least is None else f"give at least {least}"


def _suggestion(name: str, known: Collection[str]) -> str:
    last = name.rpartition(".")[2]
    close = [other for other in known if other.rpartition(".")[2] == last] or get_close_matches(name, known)
    return f" (did you mean {close[0]}?)" if close else ""


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def printable(text: str) -> str:
    """Return a text of a file so that it can stand in a line: cut, and what is no character to see is escaped."""
    return escaped(_shortened(text))


def escaped(text: str) -> str:
    """Return a text with everything that is no character to see, such as control characters, escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
