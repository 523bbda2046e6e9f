"""What the user states about models, which counts before everything else, and whether a window may be guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo
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

LIMIT_FIELDS = ("context_window", "max_input_tokens", "max_output_tokens")
NOT_GIVEN = ("provenance", "conflicts")
"""Fields that say where facts come from: the registry writes them."""

FIELDS = tuple(field.name for field in fields(ModelInfo) if field.name not in NOT_GIVEN)

MAX_SHOWN_CHARS = 80
"""How much of a wrong value an error quotes."""

Facts = ModelInfo | ModelLimits | Mapping[str, Any] | int | str
"""What may be said about a model: all of it, its limits, some fields by name, or its context window alone."""


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
    if isinstance(said, ModelInfo):
        return _with_provenance(_named(name, said))
    if isinstance(said, ModelLimits):
        given: dict[str, Any] = {field: getattr(said, field) for field in LIMIT_FIELDS}
    elif isinstance(said, Mapping):
        given = dict(said)
    else:
        given = {"context_window": said}
    if unknown := [str(field) for field in given if field not in FIELDS]:
        raise ConfigError(f"{name}: unknown field {', '.join(unknown)}: give some of {', '.join(FIELDS)}")
    read = {field: _read(name, field, value) for field, value in given.items() if value is not None}
    return _with_provenance(_named(name, ModelInfo(**{"name": name, **read})))


def _named(name: str, info: ModelInfo) -> ModelInfo:
    """The facts under the name that they were given for; a name that they have of their own becomes an alias."""
    if info.name == name or name.casefold() == f"{info.provider}/{info.name}".casefold():
        return info
    others = tuple(dict.fromkeys((info.name, *info.aliases)))
    return replace(info, name=name, aliases=tuple(other for other in others if other != name))


def _with_provenance(info: ModelInfo) -> ModelInfo:
    said = facts_of({field: getattr(info, field) for field in FIELDS})
    return replace(info, provenance=dict.fromkeys(said, ExplicitSource.name), conflicts={})


def _read(model: str, field: str, value: Any) -> Any:
    read, wanted = READERS[field]
    found = read(value)
    if found is None:
        raise ConfigError(
            f"{model}: {field}={repr(value)[:MAX_SHOWN_CHARS]}: give {wanted}, or None when it is unknown"
        )
    return found


def _text(value: Any) -> str | None:
    return value if is_name(value) else None


def _provider(value: Any) -> str | None:
    return provider_id(value) if is_name(value) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return None
    found = tuple(value)
    return found if all(map(is_name, found)) else None


def _set_of_texts(value: Any) -> frozenset[str] | None:
    found = _texts(value)
    return None if found is None else frozenset(found)


Reader = tuple[Callable[[Any], str | int | Decimal | date | bool | tuple[str, ...] | frozenset[str] | None], str]

READERS: Mapping[str, Reader] = {
    **dict.fromkeys(LIMIT_FIELDS, (tokens, f"a whole number of tokens from 1 to {MAX_TOKENS:,}")),
    **dict.fromkeys(PRICE_FIELDS, (price, f"USD per million tokens, from 0 to {MAX_PRICE:,}")),
    "name": (_text, "the model's name"),
    "provider": (_provider, "the id of the provider"),
    "tokenizer_family": (_text, "the name of a family of the token estimator"),
    "capabilities": (_set_of_texts, "a list of words such as 'tools' or 'images'"),
    "aliases": (_texts, "a list of names"),
    "deprecated": (_flag, "True or False"),
    "retires_on": (day, "a date, or its text as year-month-day"),
}
"""Field -> how a value is read, and what to give."""
