"""A TOML, YAML or JSON file as a table of settings, read strictly; errors repeat no text of it, which may be secret."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.files import read_regular

MAX_FILE_BYTES = 100_000
"""Largest file that is read: ten times what all settings with their tools take, and about a second of YAML."""

MAX_LINE_DOTS = 1_000
"""Most dots in one line of TOML: a key of so many parts is read in 30 ms, and time grows with their square."""


def read_table(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML, YAML or JSON file.

    Raises:
        ConfigError: see `read_bytes` and `table_of`.
    """
    return table_of(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ConfigError: the file is missing, unreadable, too large, or no regular file.
    """
    try:
        content = read_regular(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:  # ValueError: no path can have a zero character
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read settings from {path}: {reason}") from error
    if content is None:
        raise ConfigError(f"cannot read settings from {path}: it is no regular file")
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"cannot read settings from {path}: it has more than {MAX_FILE_BYTES:,} bytes")
    return content


def table_of(content: bytes, path: Path) -> dict[str, Any]:
    """Return the settings that a file holds; a byte order mark at its beginning is passed over.

    Raises:
        ConfigError: the content is empty, breaks the rules of its format, is no table, or has a key twice or, in YAML,
            an alias. Texts of the file are not repeated: they may be secrets.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigError(f"cannot read settings from {path}: use one of {', '.join(sorted(_PARSERS))}")
    if not content.strip():
        raise ConfigError(f"cannot read settings from {path}: it is empty: give at least one setting, or a comment")
    try:
        values = parse(content.decode("utf-8-sig"))
    except Exception as error:  # noqa: BLE001  # parsers raise whatever a bad value leads to
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
    """Return in fixed words what a parser found, and where; of what is not known to be free of values, the type."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, _RefusedError | tomllib.TOMLDecodeError | json.JSONDecodeError | UnicodeDecodeError):
        return str(error)
    if isinstance(error, yaml.MarkedYAMLError):  # what it says of itself quotes the text
        return f"it is not valid YAML{_place(error.problem_mark or error.context_mark)}"
    return f"a value in it cannot be read ({type(error).__name__})"


class _RefusedError(Exception):
    """The text keeps the rules of its format, but not ours."""


class _StrictLoader(yaml.SafeLoader):
    """YAML without aliases, with which a few lines grow without end, and without keys that stand twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it out
            raise _RefusedError(f"aliases and merge keys are not read: write the values out{_place(mark)}")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _RefusedError(f"a key is no text{_place(key.start_mark)}: write it in quotes")
            if key.value in seen:
                raise _RefusedError(f"a key stands twice in one table{_place(key.start_mark)}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise _RefusedError("a key stands twice in one table")
    return table


def _toml(text: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MAX_LINE_DOTS:
            raise _RefusedError(f"line {number} has more than {MAX_LINE_DOTS:,} dots: break long texts into lines")
    return tomllib.loads(text)


def _place(mark: yaml.Mark | None) -> str:
    return f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": _toml,
    ".json": lambda text: json.loads(text, object_pairs_hook=_table),
    ".yaml": lambda text: yaml.load(text, _StrictLoader),  # noqa: S506  # a safe loader, made stricter
    ".yml": lambda text: yaml.load(text, _StrictLoader),  # noqa: S506
}
