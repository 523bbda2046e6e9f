"""What the user states about models, which counts before everything else, and whether a window may be guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import LIMIT_FIELDS, PRICE_FIELDS, ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources.reading import (
    MAX_PRICE,
    MAX_TOKENS,
    day,
    facts_of,
    is_name,
    price,
    provider_id,
    tokens,
)

FIELDS = tuple(field.name for field in fields(ModelInfo) if field.name not in {"provenance", "conflicts"})

Facts = ModelInfo | ModelLimits | Mapping[str, Any] | int | str  # an int or str is the context window alone


class ExplicitSource:
    """States what it was given. Without a `provider` a fact holds wherever the model is served.

    Args:
        facts: Name of a model, as its client spells it -> what is known about it. Of `ModelLimits` the limits of the
            model count, not what a request asks for.

    Raises:
        ConfigError: a fact is no value of its field; the text names the model, the field, the value and what to give.

    Examples:
        >>> source = ExplicitSource({"small": 8192, "house-blend": {"context_window": "128k", "input_price": 0.25}})
        >>> [info.context_window for info in source.fetch(None)]
        [8192, 128000]
    """

    name = "explicit"
    tier = "explicit"
    cache_key = "explicit"

    def __init__(self, facts: Mapping[str, Facts]) -> None:
        if not isinstance(facts, Mapping):
            raise ConfigError(f"facts={facts!r}: give a mapping of model names to what is known about each")
        self._infos = [_info(name, said) for name, said in facts.items()]

    def __repr__(self) -> str:
        return f"ExplicitSource({[info.name for info in self._infos]})"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return what was said about one model, by its name or an alias, or about all of them."""
        return [info for info in self._infos if name is None or name in (info.name, *info.aliases)]


class GuessSource:
    """Allows a registry that has this source to guess a window from the output limit that another source states.

    It knows no model itself: the guess is `ModelLimits.guessed`, made from what the others said once they all have.
    """

    name = "guess"
    tier = "guess"
    cache_key = "guess"

    def fetch(self, name: str | None) -> list[ModelInfo]:  # noqa: ARG002  # the protocol's parameter
        """Return nothing."""
        return []


def _info(name: Any, said: Any) -> ModelInfo:
    if not is_name(name):
        raise ConfigError(f"model {name!r}: give the model's name as its client spells it")
    info = said if isinstance(said, ModelInfo) else _read(name, said)
    if name != info.name and name.casefold() != f"{info.provider}/{info.name}".casefold():
        others = dict.fromkeys((info.name, *info.aliases))  # a name that the facts have of their own is an alias
        info = replace(info, name=name, aliases=tuple(other for other in others if other != name))
    stated = facts_of({field: getattr(info, field) for field in FIELDS})
    return replace(info, provenance=dict.fromkeys(stated, ExplicitSource.name), conflicts={})


def _read(name: str, said: Any) -> ModelInfo:
    if isinstance(said, ModelLimits):
        given: dict[str, Any] = {field: getattr(said, field) for field in LIMIT_FIELDS}
    else:
        given = dict(said) if isinstance(said, Mapping) else {"context_window": said}
    if unknown := [str(field) for field in given if field not in FIELDS]:
        raise ConfigError(f"{name}: unknown field {', '.join(unknown)}: give some of {', '.join(FIELDS)}")
    facts: dict[str, Any] = {"name": name}
    for field, value in given.items():
        if value is not None:
            read, wanted = READERS[field]
            facts[field] = read(value)
            if facts[field] is None:
                shown = repr(value)[:80]
                raise ConfigError(f"{name}: {field}={shown}: give {wanted}, or None when it is unknown")
    if "capabilities" in facts:
        facts["capabilities"] = frozenset(facts["capabilities"])
    return ModelInfo(**facts)


def _text(value: Any) -> str | None:
    return value if is_name(value) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return None
    found = tuple(value)
    return found if all(map(is_name, found)) else None


# How each field is read, and what to give.
READERS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    **dict.fromkeys(LIMIT_FIELDS, (tokens, f"a whole number of tokens from 1 to {MAX_TOKENS:,}")),
    **dict.fromkeys(PRICE_FIELDS, (price, f"USD per million tokens, from 0 to {MAX_PRICE:,}")),
    "name": (_text, "the model's name"),
    "provider": (lambda value: provider_id(value) if is_name(value) else None, "the id of the provider"),
    "tokenizer_family": (_text, "the name of a family of the token estimator"),
    "capabilities": (_texts, "a list of words such as 'tools' or 'images'"),
    "aliases": (_texts, "a list of names"),
    "deprecated": (lambda value: value if isinstance(value, bool) else None, "True or False"),
    "retires_on": (day, "a date, or its text as year-month-day"),
}
