"""What is wrong with settings, in words that repeat no secret?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

SECRET_NAMES = frozenset({"cursor_keys"})
"""Settings whose values are never shown."""

SHOWN_CHARS = 80
"""Longest value or name in an error: enough to recognize it."""

SHOWN_FAULTS = 10
"""Most faults in one error: enough to begin with."""


def explained(error: ValidationError, given: Mapping[str, Any], known: Collection[str]) -> str:
    """Return one line with the first faults: name, value, and what to give instead.

    Args:
        error: what pydantic found.
        given: the values that code or a file gave; what is not among them came from the environment.
        known: the names of all settings, dotted.
    """
    found = error.errors(include_url=False)
    problems = [_explained(problem, given, known) for problem in found[:SHOWN_FAULTS]]
    if len(found) > SHOWN_FAULTS:
        problems.append(f"and {len(found) - SHOWN_FAULTS:,} more")
    return f"invalid {error.title}: " + "; ".join(problems)


def printable(text: str) -> str:
    """Return a text of a file so that it can stand in a line: cut, and what is no character to see is escaped."""
    return escaped(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")


def escaped(text: str) -> str:
    """Return a text with everything that is no character to see, such as control characters, escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _explained(problem: ErrorDetails, given: Mapping[str, Any], known: Collection[str]) -> str:
    place, kind = problem["loc"], problem["type"]
    name = ".".join(printable(str(part)) for part in place) or "settings"
    if kind == "extra_forbidden":  # a misspelt name may well stand before a secret
        return f"unknown setting {name}{_suggestion(name, known)}: remove it or correct its name"
    origin = "" if _is_among(given, place) else " (from the environment)"
    return f"{name}{_value(problem)}{origin}: {_advice(problem)}"


def _value(problem: ErrorDetails) -> str:
    """The value as it was given, unless it is a secret, or a whole table or list that may hold one."""
    value = problem["input"]
    if SECRET_NAMES.intersection(map(str, problem["loc"])) or problem["type"] in {"model_type", "dict_type"}:
        return ""
    if not isinstance(value, str | int | float | bool | None):
        return ""
    text = repr(value)
    return f"={text}" if len(text) <= SHOWN_CHARS else f"={text[:SHOWN_CHARS]}..."


def _advice(problem: ErrorDetails) -> str:
    if problem["type"] in {"model_type", "dict_type"}:
        return f"give a table of settings, not {type(problem['input']).__name__}"
    least = problem.get("ctx", {}).get("ge")
    return problem["msg"] if least is None else f"give at least {least}"


def _suggestion(name: str, known: Collection[str]) -> str:
    last = name.rpartition(".")[2]
    close = [other for other in known if other.rpartition(".")[2] == last] or get_close_matches(name, known)
    return f" (did you mean {close[0]}?)" if close else ""


def _is_among(given: Mapping[str, Any], place: tuple[int | str, ...]) -> bool:
    inner: Any = given
    for name in place:
        if not isinstance(inner, Mapping) or name == "[key]":
            break  # an item of a list or a name in a table: the whole was given
        named = {str(key): value for key, value in inner.items()}
        if str(name) not in named:
            return False
        inner = named[str(name)]
    return True
