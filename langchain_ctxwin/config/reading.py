"""How does a file become a table of settings?"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from langchain_ctxwin.errors import ConfigError

PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": json.loads,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
}

MAX_BYTES = 1_000_000
"""Largest file that is read: a hundred times what all settings with their tools take."""

QUOTED_WORD = re.compile(r"'[^'\s,]{2,}'")
"""A word of the file in what the YAML parser says of it, single characters excepted."""


def read_table(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML, YAML or JSON file.

    Raises:
        ConfigError: the file is missing or unreadable, see also `table_of`.
    """
    return table_of(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ConfigError: the file is missing, unreadable or too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read settings from {path}: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"cannot read settings from {path}: it has more than {MAX_BYTES:,} bytes")
    return content


def table_of(content: bytes, path: Path) -> dict[str, Any]:
    """Return the settings that a file holds.

    Raises:
        ConfigError: the content is empty, breaks the rules of its format, or is no table. Texts of the file are not
            repeated: they may be secrets.
    """
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigError(f"cannot read settings from {path}: use one of {', '.join(sorted(PARSERS))}")
    if not content.strip():
        raise ConfigError(f"cannot read settings from {path}: it is empty: give at least one setting, or a comment")
    try:
        values = parse(content.decode("utf-8"))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        # Not chained: the error of a YAML parser quotes the line, and a traceback would show it.
        raise ConfigError(f"cannot read settings from {path}: {_reason(error)}") from None
    if values is None:  # YAML that holds comments only
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"cannot read settings from {path}: expected a table of settings, got {type(values).__name__}"
        )
    return values


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, tomllib.TOMLDecodeError | json.JSONDecodeError | UnicodeDecodeError):
        return str(error)
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).partition(": ")[0]  # what follows is a value of the file, or a second line
    mark = error.problem_mark or error.context_mark
    place = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    text = ", ".join(filter(None, (error.context, error.problem)))
    return QUOTED_WORD.sub("'...'", text) + place
