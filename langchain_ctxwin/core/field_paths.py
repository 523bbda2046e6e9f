"""Paths of fields in JSON values, such as `items[].price.base`: read, written, and followed.

A path is keys joined by dots: `price.base`. `*` stands for any one key, `[]` says that a list is meant; it may be left
out, because a key is looked up in every item of a list. A key with a dot, bracket, quote or star in it is written as a
JSON string: `"a.b".c`. What the last key holds is taken whole, so `*` alone takes everything; `**` says the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from langchain_ctxwin.errors import ConfigError


class _AnyKey:
    """The step that every key matches."""


ANY_KEY: Final = _AnyKey()
Step = str | _AnyKey
Wanted = tuple[tuple[Step, ...], ...]
"""What is still to be walked of each path; an empty one asks for the whole value."""

WHOLE: Final[tuple[Step, ...]] = ()

_SEGMENT = re.compile(r'(?P<key>"(?:[^"\\]|\\.)*"|[^".\[\]]*)(?P<lists>(?:\[\])*)')
_BARE_KEY = re.compile(r'[^\s".\[\]*](?:[^".\[\]*\x00-\x1f]*[^\s".\[\]*])?')
_COMPILED_MAX = 256  # sets of fields kept compiled: the tools of a process and what its models ask for


def compile_fields(fields: Sequence[str]) -> Wanted:
    """Return the steps of each path; the same paths are parsed once.

    Raises:
        ConfigError: There is no path, or one cannot be read; the message names it and what is wrong.
    """
    if isinstance(fields, str):
        raise ConfigError(f"fields={fields!r} is one text: pass a list of paths, such as [{fields!r}]")
    if not fields:
        raise ConfigError('fields is empty: name at least one path, or "*" for everything')
    for path in fields:
        if not isinstance(path, str):
            raise ConfigError(f"field path {path!r} is a {type(path).__name__}: write it as text, such as 'price.base'")
    return _compiled(tuple(fields))


def after(wanted: Wanted, key: str) -> Wanted:
    """Return what is wanted of the value that stands under `key`; empty when nothing."""
    return tuple(steps[1:] for steps in wanted if steps and (steps[0] is ANY_KEY or steps[0] == key))


def joined(path: str, key: str) -> str:
    """Return the path of `key` in the object at `path`, spelled so that it can be asked for."""
    spelled = key if _BARE_KEY.fullmatch(key) else json.dumps(key)
    return f"{path}.{spelled}" if path else spelled


def exists(value: Any, steps: tuple[Step, ...]) -> bool:
    """Say whether a path leads to anything in `value`."""
    if type(value) is list:
        return any(exists(item, steps) for item in value) if steps else True
    if not steps:
        return True
    if type(value) is not dict:
        return False
    if isinstance(steps[0], str):
        return steps[0] in value and exists(value[steps[0]], steps[1:])
    return any(exists(child, steps[1:]) for child in value.values())


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(paths: tuple[str, ...]) -> Wanted:
    return tuple(map(_steps, paths))


def _steps(path: str) -> tuple[Step, ...]:
    text, steps, position = path.strip(), list[Step](), 0
    while True:
        found = _SEGMENT.match(text, position)
        if found is None:  # the pattern matches the empty text everywhere
            raise ConfigError(f"field path {path!r:.200} cannot be read")
        position = found.end()
        if position < len(text) and text[position] != ".":
            raise _unreadable(path, text[position:])
        steps.extend(_step(path, found, is_last=position == len(text)))
        if position == len(text):
            return tuple(steps)
        position += 1


def _step(path: str, found: re.Match[str], *, is_last: bool) -> tuple[Step, ...]:
    key = found["key"].strip()
    if key == "**":
        if not is_last:
            raise ConfigError(f"field path {path!r:.200}: ** takes everything, so it can only stand last")
        return ()
    if key == "*":
        return (ANY_KEY,)
    if key.startswith('"'):
        return (_unquoted(path, key),)
    if "*" in key:
        raise ConfigError(
            f"field path {path!r:.200}: * stands for a whole key; write a key that has one as {json.dumps(key):.200}"
        )
    if key:
        return (key,)
    if found["lists"] and found.start() == 0:  # `[].id`: the items of a list at the top
        return ()
    raise ConfigError(f'field path {path!r:.200} has an empty key: put one name between two dots, an empty one as ""')


def _unquoted(path: str, key: str) -> str:
    try:
        return str(json.loads(key))
    except ValueError as error:
        raise ConfigError(f"field path {path!r:.200}: {key:.200} is not a JSON string ({error})") from error


def _unreadable(path: str, rest: str) -> ConfigError:
    # Quoted as far as a page has room for it: a model reads this, and may have made the path of anything.
    if rest.startswith('"'):
        return ConfigError(
            f"field path {path!r:.200} has a quote that is not closed, or not at the start of a key, at {rest!r:.200}"
        )
    return ConfigError(
        f"field path {path!r:.200} cannot be read at {rest!r:.200}: lists are written as [], keys with brackets in "
        "quotes"
    )
