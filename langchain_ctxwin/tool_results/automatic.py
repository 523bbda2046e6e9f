"""Which fields of a JSON value are shown when nobody says: those that tell its rows apart?

Values that stand at the same path (the `owner` of each of 5,000 rows) are looked at together: each path is judged once,
and what is left out is reported once. What is kept of a row depends on that row alone, so pages agree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from langchain_ctxwin.tool_results.classes import Kind, classify
from langchain_ctxwin.tool_results.paths import joined
from langchain_ctxwin.tool_results.projection import Projected

_KEPT = {Kind.IDENTIFIER, Kind.NAME, Kind.STATE, Kind.AMOUNT, Kind.DATE, Kind.TEXT}
_TELLING = {Kind.IDENTIFIER, Kind.NAME}  # with one of these, a reader knows what an object is

_KEYS_MAX = 4_096  # keys remembered: those of a few hundred kinds of results
_ITEMS: Final = object()  # the step from a list to its items


def project_automatically(value: Any, *, text_chars: int, shorten: Callable[[str, int], str]) -> Projected:
    """Keep identifiers, names, states, amounts, dates and texts, by the rules of `classes`.

    Left out are nulls and empty values, flags, URLs, and texts of no known kind. A URL stays (one per object) where
    neither the object nor the one it belongs to has an identifier; texts of no known kind stay where an object has no
    identifier and no name. An object at the top or in a list of which nothing would be left is kept whole, and lists
    keep all of their items.

    Args:
        value: Any JSON value.
        text_chars: Longest text that is not cut.
        shorten: Returns at most about so many characters of a text that say most.
    """
    rules, root = _Automatic(text_chars=text_chars, shorten=shorten), _Place()
    root.is_shown = True
    shown = rules.value(value, root, is_identified=False, is_row=True)
    for place in rules.left_out:
        place.is_left_out = True
    left_out: list[str] = []
    root.left_out("", left_out)
    return Projected(value=shown, left_out=tuple(left_out), shortened=tuple(rules.shortened))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Automatic:
    """The automatic projection of one value, row by row."""

    text_chars: int
    shorten: Callable[[str, int], str]
    shortened: dict[str, None] = field(default_factory=dict)
    left_out: list[_Place] = field(default_factory=list)
    """One entry for each value that was left out, so that those of a row that is kept whole can be taken back."""

    def value(self, value: Any, place: _Place, *, is_identified: bool, is_row: bool) -> Any:
        if type(value) is dict:
            return self._row(value, place) if is_row else self._object(value, place, is_identified=is_identified)
        if type(value) is list:
            items = place.items()
            items.is_shown = True
            return [self.value(item, items, is_identified=False, is_row=True) for item in value]
        return self._text(value, place)

    def _row(self, row: dict[str, Any], place: _Place) -> dict[str, Any]:
        before = len(self.left_out)
        shown = self._object(row, place, is_identified=False)
        if shown:
            return shown
        del self.left_out[before:]
        return {key: self._whole(item, place.child(key)) for key, item in row.items()}

    def _object(self, each: dict[str, Any], place: _Place, *, is_identified: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        doubtful: list[tuple[str, _Place, Kind]] = []
        containers: list[tuple[str, _Place]] = []
        is_telling = False
        for key, value in each.items():
            if not value and (value is None or value == ""):
                continue
            child = place.children.get(key) or place.child(key)
            shown[key] = value
            if type(value) is dict or type(value) is list:
                containers.append((key, child))
                continue
            kind = child.kinds_of_texts.get(value) if type(value) is str else child.kind_of_numbers
            if kind is None or type(value) is bool:
                kind = child.kind(value)
            if kind not in _KEPT:
                doubtful.append((key, child, kind))
                continue
            is_telling = is_telling or kind in _TELLING
            is_identified = is_identified or kind is Kind.IDENTIFIER
            if isinstance(value, str) and len(value) > self.text_chars:
                shown[key] = self._text(value, child)
        is_identified = self._decide(shown, doubtful, is_identified=is_identified, is_telling=is_telling)
        for key, child in containers:
            self._descend(shown, key, child, is_identified=is_identified)
        return shown

    def _decide(
        self, shown: dict[str, Any], doubtful: list[tuple[str, _Place, Kind]], *, is_identified: bool, is_telling: bool
    ) -> bool:
        """Take out what the object can do without, and say whether what stays identifies it."""
        for key, child, kind in doubtful:
            if kind is Kind.OTHER and not is_telling:
                shown[key] = self._text(shown[key], child)
            elif kind is Kind.URL and not is_identified:
                is_identified = True
                shown[key] = self._text(shown[key], child)
            else:
                del shown[key]
                self.left_out.append(child)
        return is_identified

    def _descend(self, shown: dict[str, Any], key: str, place: _Place, *, is_identified: bool) -> None:
        inside = self.value(shown[key], place, is_identified=is_identified, is_row=False)
        if inside:
            shown[key] = inside
            place.is_shown = True
        else:
            del shown[key]

    def _text(self, value: Any, place: _Place) -> Any:
        if not isinstance(value, str) or len(value) <= self.text_chars:
            return value
        short = self.shorten(value, self.text_chars)
        if short != value:
            self.shortened[place.path or "*"] = None
        return short

    def _whole(self, value: Any, place: _Place) -> Any:
        """Shorten texts only."""
        if type(value) is dict:
            place.is_shown = True
            return {key: self._whole(item, place.child(key)) for key, item in value.items()}
        if type(value) is list:
            items = place.items()
            place.is_shown = items.is_shown = True
            return [self._whole(item, items) for item in value]
        return self._text(value, place)


@lru_cache(maxsize=_KEYS_MAX)
def _kind_of_numbers(key: str) -> Kind | None:
    """Return the kind of every number under a key; None when a 0 or 1 there may be a flag."""
    number = classify(key, 2)
    return number if classify(key, 1) is number else None


class _Place:
    """One path of the value: what its key tells, and whether any row shows it or leaves it out."""

    __slots__ = ("above", "children", "is_left_out", "is_shown", "key", "kind_of_numbers", "kinds_of_texts", "of_items")

    def __init__(self, above: _Place | None = None, key: str = "", *, of_items: bool = False) -> None:
        self.above, self.key, self.of_items = above, key, of_items
        self.children: dict[Hashable, _Place] = {}
        self.is_shown = self.is_left_out = False
        self.kinds_of_texts: dict[str, Kind] = {}
        self.kind_of_numbers = _kind_of_numbers(key)

    @property
    def path(self) -> str:
        return "" if self.above is None else self._below(self.above.path)

    def child(self, key: str) -> _Place:
        place = self.children.get(key)
        if place is None:
            place = self.children[key] = _Place(self, key)
        return place

    def items(self) -> _Place:
        place = self.children.get(_ITEMS)
        if place is None:
            place = self.children[_ITEMS] = _Place(self, self.key, of_items=True)
        return place

    def kind(self, value: Any) -> Kind:
        kind = classify(self.key, value)
        if type(value) is str:
            self.kinds_of_texts[value] = kind
        return kind

    def left_out(self, path: str, found: list[str]) -> bool:
        """Add the highest paths from here down that no row shows, or of which some rows left something out.

        Returns whether there are any. Paths are handed down: there are thousands, and each is part of many others.
        """
        if self.is_left_out:
            found.append(path)
        above = len(found)
        below = [place.left_out(place._below(path), found) for place in self.children.values()]  # noqa: SLF001  # same class
        if not self.is_shown:
            del found[above:]
            if any(below) and not self.is_left_out:
                found.append(path)
        return self.is_left_out or any(below)

    def _below(self, above: str) -> str:
        return f"{above}[]" if self.of_items else joined(above, self.key)
