"""How does one entry of somebody's table become a statement that never contradicts itself?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import date
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo

MAX_NAME_CHARS = 300
"""Longest name believed; a server that names a model after its file may need a whole path."""

TEXT = "text"
"""The capability of every model whose capabilities are known, so that "none of the others" is not "unknown"."""

_FACTS = tuple(field.name for field in fields(ModelInfo) if field.name not in {"name", "provenance", "conflicts"})


def stated(
    source: str,
    name: Any,
    *,
    provider: str | None = None,
    context_window: int | None = None,
    max_input_tokens: int | None = None,
    max_output_tokens: int | None = None,
    input_price: Decimal | None = None,
    output_price: Decimal | None = None,
    cache_read_price: Decimal | None = None,
    capabilities: frozenset[str] = frozenset(),
    deprecated: bool = False,
    retires_on: date | None = None,
    aliases: Iterable[Any] = (),
) -> ModelInfo | None:
    """Return the statement of `source`, or None when `name` is no name; values are as `models.values` reads them.

    Of two limits that contradict each other the one that allows the smaller request stays.
    """
    if not is_name(name):
        return None
    if context_window is not None and max_input_tokens is not None and max_input_tokens > context_window:
        max_input_tokens = None
    if context_window is not None and max_output_tokens is not None and max_output_tokens > context_window:
        max_output_tokens = None
    known: dict[str, Any] = {
        "provider": provider or None,
        "context_window": context_window,
        "max_input_tokens": max_input_tokens,
        "max_output_tokens": max_output_tokens,
        "input_price": input_price,
        "output_price": output_price,
        "cache_read_price": cache_read_price,
        "capabilities": capabilities,
        "deprecated": deprecated,
        "retires_on": retires_on,
        "aliases": tuple(dict.fromkeys(alias for alias in aliases if is_name(alias) and alias != name)),
    }
    return ModelInfo(name=name, **known, provenance=dict.fromkeys(facts_of(known), source))


def facts_of(known: Mapping[str, Any]) -> list[str]:
    """Return the fields that say something: a price of 0 does, an empty set or a flag that is down does not."""
    return [name for name in _FACTS if (value := known.get(name)) or isinstance(value, Decimal)]


def is_name(name: Any) -> bool:
    """Say whether this may be a model's name: printable, so that it can be shown, and not blank."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable() and bool(name.strip())


def capabilities_of(*, tools: Any, **others: Any) -> frozenset[str]:
    """Return the capabilities that are true, or nothing (unknown) where the table does not say if tools are taken.

    A set that lacks something says that the model cannot do it, so an entry that mentions only a part states none.
    """
    if not isinstance(tools, bool):
        return frozenset()
    named = {"tools": tools, **others}
    return frozenset({TEXT, *(name for name, can in named.items() if can is True)})


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return the value if it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []
