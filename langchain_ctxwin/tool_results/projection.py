"""Which fields of a JSON value are shown when paths say which?

Values that stand at the same path (the `owner` of each of 5,000 rows) are looked at together: each path is judged once,
and what is left out is reported once. What is kept of a row depends on that row alone, so pages agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from langchain_ctxwin.tool_results.paths import WHOLE, Wanted, after, compile_fields, exists, joined

_GONE: Final = object()  # nothing is kept of this value; None is a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """What is shown of a value, and what is not."""

    value: Any
    missing: tuple[str, ...] = ()
    """Configured paths that lead to nothing."""

    left_out: tuple[str, ...] = ()
    """Paths that are in the value and not shown, each once, as a path of `fields` would name them; of something that
    is left out as a whole only its own path. Nulls and empty values that rules left out are not named."""

    shortened: tuple[str, ...] = ()
    """Paths of texts that were cut."""


def project(value: Any, fields: Sequence[str]) -> Projected:
    """Keep only what `fields` name (see `paths` for how), in the order of the value.

    Lists keep their length: an item that has none of the fields is shown as {}. A list or object of which nothing is
    named is left out; a scalar at the top is kept, as there is nothing to choose from.

    Raises:
        ConfigError: A path cannot be read.
    """
    compiled = compile_fields(fields)
    missing = (path for path, steps in zip(compiled.paths, compiled.wanted, strict=True) if not exists(value, steps))
    left_out: list[str] = []
    (kept,) = _selected([value], compiled.wanted, "", left_out)
    if kept is _GONE:
        kept = [{} for _ in value] if type(value) is list else {} if type(value) is dict else value
    return Projected(value=kept, missing=tuple(missing), left_out=tuple(dict.fromkeys(left_out)))


def _selected(values: Sequence[Any], wanted: Wanted, path: str, left_out: list[str]) -> list[Any]:
    """Return what is wanted of each of the values at `path`, `_GONE` where that is nothing."""
    if WHOLE in wanted:
        return list(values)
    kept = [_GONE] * len(values)
    objects = [at for at, value in enumerate(values) if type(value) is dict]
    lists = [at for at, value in enumerate(values) if type(value) is list]
    if path and len(objects) + len(lists) < len(values):  # a scalar has no fields
        left_out.append(path)
    if objects:
        _put(kept, objects, _selected_objects([values[at] for at in objects], wanted, path, left_out))
    if lists:
        _put(kept, lists, _selected_lists([values[at] for at in lists], wanted, f"{path}[]", left_out))
    return kept


def _selected_lists(lists: list[list[Any]], wanted: Wanted, path: str, left_out: list[str]) -> list[Any]:
    items = iter(_selected(list(chain.from_iterable(lists)), wanted, path, left_out))
    regrouped = [[next(items) for _ in values] for values in lists]
    return [
        _GONE if items and all(item is _GONE for item in items) else [{} if item is _GONE else item for item in items]
        for items in regrouped
    ]


def _selected_objects(objects: list[dict[str, Any]], wanted: Wanted, path: str, left_out: list[str]) -> list[Any]:
    kept: list[Any] = [{} for _ in objects]
    keys = dict.fromkeys(chain.from_iterable(objects))
    asked = {key: rest for key in keys if (rest := after(wanted, key))}
    holders = _holders(objects, asked)
    for key in keys:
        if key not in asked:
            left_out.append(joined(path, key))
            continue
        if WHOLE in asked[key]:
            for at in holders[key]:
                kept[at][key] = objects[at][key]
            continue
        below: list[str] = []
        parts = _selected([objects[at][key] for at in holders[key]], asked[key], joined(path, key), below)
        is_shown = False
        for at, part in zip(holders[key], parts, strict=True):
            if part is not _GONE:
                kept[at][key] = part
                is_shown = True
        left_out.extend(below if is_shown else [joined(path, key)])
    return [each or _GONE for each in kept]


def _holders(objects: list[dict[str, Any]], asked: Mapping[str, Wanted]) -> dict[str, list[int]]:
    """Return which objects have each key; in time of the objects' size, even when no two of them share a key."""
    if len(asked) * len(objects) <= sum(map(len, objects)):
        return {key: [at for at, each in enumerate(objects) if key in each] for key in asked}
    holders: dict[str, list[int]] = {key: [] for key in asked}
    for at, each in enumerate(objects):
        for key in each.keys() & asked.keys():
            holders[key].append(at)
    return holders


def _put(target: list[Any], positions: Iterable[int], values: Iterable[Any]) -> None:
    for at, value in zip(positions, values, strict=True):
        target[at] = value
