"""What settings are made of: a TOML, YAML or JSON file, and their faults in words.

No error repeats a text of the file that may be a secret.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from langchain_ctxwin.errors import ConfigError, brief

SECRET_NAMES = frozenset({"cursor_keys"})
"""Settings whose values are never shown."""


def read_bytes(path: Path) -> bytes:
    """Return the content of a file."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # no path can have a zero character
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read settings from {path}: {reason}") from error


def table_of(content: bytes, path: Path) -> dict[str, Any]:
    """Return the settings that a file holds, as JSON values; a byte order mark at its beginning is passed over."""
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigError(
            f"cannot read settings from {path}: use one of {', '.join(sorted(PARSERS))}"
        )
    if not content.strip():
        raise ConfigError(
            f"cannot read settings from {path}: it is empty: give at least one setting, or a comment"
        )
    try:
        values = parse(content.decode("utf-8-sig"))
        # None: YAML of comments only
        table = json.loads(json.dumps({} if values is None else values, default=str))
    except Exception as error:  # noqa: BLE001  # parsers raise whatever a bad value leads to
        # Not chained: the error of a YAML parser quotes the line, and a traceback would show it.
        raise ConfigError(
            f"cannot read settings from {path}: {_reason(error)}"
        ) from None
    if not isinstance(table, dict):
        raise ConfigError(
            f"cannot read settings from {path}: expected a table of settings, got {type(table).__name__}"
        )
    return table


def _reason(error: Exception) -> str:
    """The fault that a parser found, and its place; only the type where the text may quote values."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return (
            f"it is not valid YAML (at line {mark.line + 1}, column {mark.column + 1})"
        )
    if isinstance(
        error, tomllib.TOMLDecodeError | json.JSONDecodeError | UnicodeDecodeError
    ):
        return str(error)
    return f"a value in it cannot be read ({type(error).__name__})"


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415  # few programs read YAML

    return yaml.safe_load(text)


PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": json.loads,
    ".yaml": _yaml,
    ".yml": _yaml,
}


def explained(
    error: ValidationError, kind: type[BaseModel], settings: Mapping[str, Any]
) -> str:
    """Return in words what is wrong with settings: each name, its value unless that may be a secret, and what to do.

    Args:
        error: what pydantic found.
        kind: the class of the settings.
        settings: what was passed; other values came from the environment.
    """
    fields = kind.model_fields
    faults = [
        _fault(fault, settings, fields) for fault in error.errors(include_url=False)
    ]
    return f"invalid {kind.__name__}: {'; '.join(faults)}"


def _fault(
    fault: ErrorDetails, settings: Mapping[str, Any], fields: Collection[str]
) -> str:
    place, kind, value = fault["loc"], fault["type"], fault["input"]
    advice = fault["msg"].removeprefix("Value error, ")
    if not place:  # what is wrong with several names them
        return advice
    name = ".".join(map(str, place))
    # its value is not shown: a misspelt name may well stand before a secret
    if kind == "extra_forbidden":
        close = get_close_matches(name, fields)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return f"unknown setting {name}{meant}: remove it or correct its name"
    origin = "" if place[0] in settings else " (from the environment)"
    # A list or table may hold a secret, and so may a text in the place of one.
    may_be_secret = kind == "model_type" or SECRET_NAMES.intersection(map(str, place))
    is_plain = isinstance(value, str | int | float | None) and not may_be_secret
    value_text = f"={brief(value)}" if is_plain else f" ({type(value).__name__})"
    return f"{name}{value_text}{origin}: {advice}"
