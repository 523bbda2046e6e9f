"""Paths of fields in JSON values, such as `items[].price.base`: read, written, and followed.

A path is keys joined by dots: `price.base`. `*` stands for any one key, `[]` says that a list is meant; it may be left
out, because a key is looked up in every item of a list. A key with a dot, bracket, quote or star in it is written as a
JSON string: `"a.b".c`. What the last key holds is taken whole, so `*` alone takes everything; `**` says the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from langchain_ctxwin.errors import ConfigError

# the key to go on with; None for every key
Step = str | None
# what is still to be walked of each path; an empty one asks for the whole value
Wanted = tuple[tuple[Step, ...], ...]
WHOLE: tuple[Step, ...] = ()

_SEGMENT = r'(?:"(?:[^"\\]|\\.)*"|\*|[^".\[\]*]+)(?:\[\])*'
_PATH = re.compile(rf"(?:(?:\[\])+|{_SEGMENT})(?:\.{_SEGMENT})*(?:\.\*\*)?|\*\*")
_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|[^".\[\]]+')
_BARE_KEY = re.compile(r'[^\s".\[\]*](?:[^".\[\]*\x00-\x1f]*[^\s".\[\]*])?')


def compile_fields(fields: Sequence[str]) -> Wanted:
    """Return the steps of each path.

    Raises:
        ConfigError: There is no path, or one cannot be read; the message names it and what is wrong.
    """
    if isinstance(fields, str) or not fields:
        raise ConfigError(
            f'fields={fields!r:.100}: pass a list of paths, such as ["items[].id"], or ["*"] for everything'
        )
    for path in fields:
        if not isinstance(path, str) or not _PATH.fullmatch(path.strip()):
            raise _unreadable(path)
    return tuple(tuple(_steps(path)) for path in fields)


def after(wanted: Wanted, key: str) -> Wanted:
    """Return the paths that go on in the value under `key`; empty without any."""
    return tuple(steps[1:] for steps in wanted if steps and steps[0] in {None, key})


def joined(path: str, key: str) -> str:
    """Return the path of `key` in the object at `path`, spelled so that it can be asked for."""
    spelled = key if _BARE_KEY.fullmatch(key) else json.dumps(key)
    return f"{path}.{spelled}" if path else spelled


def _steps(path: str) -> Iterator[Step]:
    for key in _KEY.findall(path):
        if key == "**":  # the value as a whole
            return
        if key == "*":
            yield None
        elif not key.startswith('"'):
            yield key.strip()
        else:
            try:
                yield str(json.loads(key))
            except ValueError as error:
                raise _unreadable(path) from error


def _unreadable(path: object) -> ConfigError:
    # What is quoted is cut: a model reads it, and may have made the path of anything.
    return ConfigError(
        f"field path {path!r:.100} cannot be read: join keys by dots, mark lists by [], as in items[].price.base; "
        'write * for any one key, and a key with one of these signs as a JSON string: "a.b"'
    )
