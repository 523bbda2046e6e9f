"""How does a text become a table? Strictly; what is wrong is told without repeating it, for it may be secret."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import yaml


class RefusedError(Exception):
    """The text keeps the rules of its format, but not ours."""


def reason_of(error: Exception) -> str:
    """Return in fixed words what a parser found, and where; of what is not known to be free of values, the type."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, RefusedError | tomllib.TOMLDecodeError | json.JSONDecodeError | UnicodeDecodeError):
        return str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        return _yaml_reason(error)
    return f"a value in it cannot be read ({type(error).__name__})"


class _StrictLoader(yaml.SafeLoader):
    """YAML without aliases, with which a few lines grow without end, and without keys that stand twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it out
            raise RefusedError(f"aliases and merge keys are not read: write the values out{_place(mark)}")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            spelled = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if spelled in seen:
                raise RefusedError(f"a key stands twice in one table{_place(key.start_mark)}")
            if spelled is not None:
                seen.add(spelled)
        return super().construct_mapping(node, deep)


def _of_yaml(text: str) -> Any:
    return yaml.load(text, _StrictLoader)  # noqa: S506  # a safe loader, made stricter


def _of_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_table)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise RefusedError("a key stands twice in one table")
    return table


def _yaml_reason(error: yaml.MarkedYAMLError) -> str:
    # What a YAML error says of itself quotes the text, in ways that differ from one error to the next.
    mark = error.problem_mark or error.context_mark
    is_value = isinstance(error, yaml.constructor.ConstructorError)
    return ("a value in it cannot be read" if is_value else "it is not valid YAML") + _place(mark)


def _place(mark: yaml.Mark | None) -> str:
    return f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""


PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".json": _of_json,
    ".yaml": _of_yaml,
    ".yml": _of_yaml,
}
