"""What settings are made of: a TOML, YAML or JSON file that is read strictly, and their faults in words.

No error repeats a text of the file that may be a secret.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from langchain_ctxwin.errors import SHOWN_CHARS, ConfigError, brief, escaped
from langchain_ctxwin.util.files import read_regular

if TYPE_CHECKING:
    import yaml

MAX_AMOUNT = 10**15
"""Largest number of tokens, rows or messages: floats hold every whole number up to it, no window comes near it."""

MAX_FILE_BYTES = 100_000
"""Largest file that is read: ten times what all settings with their tools take, and about a second of YAML."""

MAX_LINE_DOTS = 1_000
"""Most dots in one line of TOML: a key of so many parts is read in 30 ms, and time grows with their square."""

SHOWN_FAULTS = 10  # in one error: enough to begin with

SECRET_NAMES = frozenset({"cursor_keys"})
"""Settings whose values are never shown."""


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file."""
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
    """Return the settings that a file holds; a byte order mark at its beginning is passed over."""
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
    """What a parser found, and where, in fixed words; of what is not known to be free of values, the type."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, _RefusedError | tomllib.TOMLDecodeError | json.JSONDecodeError | UnicodeDecodeError):
        return str(error)
    return f"a value in it cannot be read ({type(error).__name__})"


class _RefusedError(Exception):
    """The text keeps the rules of its format, but not ours."""


def _place(mark: yaml.Mark | None) -> str:
    return f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""


def _json_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise _RefusedError("a key stands twice in one table")
    return table


def _toml(text: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MAX_LINE_DOTS:
            raise _RefusedError(f"line {number} has more than {MAX_LINE_DOTS:,} dots: break long texts into lines")
    return tomllib.loads(text)


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415  # few programs read YAML

    class StrictLoader(yaml.SafeLoader):
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

    try:
        return yaml.load(text, StrictLoader)  # noqa: S506  # a safe loader, made stricter
    except yaml.MarkedYAMLError as error:  # what it says of itself quotes the text
        raise _RefusedError(f"it is not valid YAML{_place(error.problem_mark or error.context_mark)}") from None


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": _toml,
    ".json": lambda text: json.loads(text, object_pairs_hook=_json_table),
    ".yaml": _yaml,
    ".yml": _yaml,
}


def explained(error: ValidationError, given: Mapping[str, Any], known: Collection[str]) -> str:
    """Return in words what is wrong with settings: each name, its value unless that may be a secret, and what to do.

    What is not among `given` came from the environment; one of the `known` names may be meant.
    """
    faults = error.errors(include_url=False)
    texts = [_fault(fault, given, known) for fault in faults[:SHOWN_FAULTS]]
    more = [f"and {len(faults) - SHOWN_FAULTS:,} more"] if len(faults) > SHOWN_FAULTS else []
    return f"invalid {error.title}: {'; '.join([*texts, *more])}"


def _fault(fault: ErrorDetails, given: Mapping[str, Any], known: Collection[str]) -> str:
    place, kind, value = fault["loc"], fault["type"], fault["input"]
    name = ".".join(printable(str(part)) for part in place) or "settings"
    if kind == "extra_forbidden":  # its value is not shown: a misspelt name may well stand before a secret
        last = name.rpartition(".")[2]
        close = [other for other in known if other.rpartition(".")[2] == last] or get_close_matches(name, known)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return f"unknown setting {name}{meant}: remove it or correct its name"
    origin = "" if not place or place[0] in given else " (from the environment)"
    if kind in {"model_type", "dict_type"}:  # the whole of it may hold a secret
        return f"{name}{origin}: give a table of settings, not {type(value).__name__}"
    told = "" if SECRET_NAMES.intersection(map(str, place)) else _told(value)
    least = fault.get("ctx", {}).get("ge")
    advice = fault["msg"].removeprefix("Value error, ") if least is None else f"give at least {least}"
    return f"{name}{told}{origin}: {advice}" if place else advice  # what is wrong with several names them


def _told(value: Any) -> str:
    if not isinstance(value, str | int | float | bool | None):  # a list or table may hold a secret
        return f" ({type(value).__name__})"
    if isinstance(value, int) and abs(value) > MAX_AMOUNT:  # Python refuses to print very long ones
        return f"=(a number of {value.bit_length():,} bits)"
    return f"={brief(value)}"


def printable(text: str) -> str:
    """Return a text of a file so that it can stand in a line: cut, and what is no character to see is escaped."""
    return escaped(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")
