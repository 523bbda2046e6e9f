"""What the caller knows about models: stated outright, in LangChain profiles, or whether a window may be guessed."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from langchain_ctxwin.core.limits import ModelLimits, models_behind
from langchain_ctxwin.core.model_info import LIMIT_FIELDS, PRICE_FIELDS, ModelInfo, model_name
from langchain_ctxwin.errors import ConfigError, expect_each
from langchain_ctxwin.models.sources.reading import (
    MAX_PRICE,
    MAX_TOKENS,
    capabilities_of,
    day,
    facts_of,
    is_name,
    mapping,
    price,
    provider_id,
    stated,
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


INTEGRATION = "langchain_"
COLLECTIONS = frozenset({"langchain_core", "langchain_community"})  # of many providers, named after none

CAPABILITIES = {  # capability -> field of a profile
    "tools": "tool_calling",
    "images": "image_inputs",
    "audio": "audio_inputs",
    "video": "video_inputs",
    "pdf": "pdf_inputs",
    "structured_output": "structured_output",
    "reasoning": "reasoning_output",
}


class ProfileSource:
    """Reads the profiles of the given chat models, then the tables of the integrations that are installed.

    The tables are private modules of the integrations, read as text and never imported; one that is missing or has
    moved is passed over. A profile's `max_input_tokens` is the window that the output shares, more often than not.

    Args:
        models: Chat models, or runnables around them; their own profiles come before the tables.
        installed: Whether to read the tables too.
    """

    name = "profile"
    tier = "profile"
    cache_key = "profile"

    def __init__(self, models: Sequence[Any] = (), *, installed: bool = True) -> None:
        self._models = tuple(expect_each(models, object, "models", "a list of chat models"))
        self._installed = installed

    def __repr__(self) -> str:
        return f"ProfileSource({len(self._models)} models, installed={self._installed})"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return the profiles of one model or all of them."""
        parts = (part for model in self._models for part, _ in models_behind(model))
        profiles = [(model_name(part), getattr(part, "profile", None), provider_of(part)) for part in parts]
        profiles += _installed_profiles() if self._installed else ()
        found: dict[tuple[str | None, str], ModelInfo] = {}
        for info in (self._info(*profile) for profile in profiles):
            if info is not None:
                found.setdefault((info.provider, info.name), info)
        return [info for info in found.values() if name is None or info.name == name]

    def _info(self, name: Any, profile: Any, provider: str | None) -> ModelInfo | None:
        if not isinstance(profile, Mapping) or not profile or not is_name(name):
            return None
        return stated(
            self.name,
            name.removeprefix("models/"),
            provider=provider,
            context_window=tokens(profile.get("max_input_tokens")),
            max_output_tokens=tokens(profile.get("max_output_tokens")),
            capabilities=capabilities_of(
                temperature=profile.get("temperature"),
                **{capability: profile.get(field) for capability, field in CAPABILITIES.items()},
            ),
            deprecated=profile.get("status") == "deprecated",
        )


def provider_of(model: Any) -> str | None:
    """Return the provider that a chat model names for tracing, else the one its integration is named after."""
    try:
        named = model._get_ls_params().get("ls_provider")  # noqa: SLF001  # LangChain's own way to ask
    except Exception:  # noqa: BLE001  # other people's code; who serves a model then stays unknown
        named = None
    package = type(model).__module__.partition(".")[0]
    if not named and package.startswith(INTEGRATION) and package not in COLLECTIONS:
        named = package.removeprefix(INTEGRATION)
    return provider_id(named) if isinstance(named, str) and named else None


def _installed_profiles() -> Iterator[tuple[Any, Any, str]]:
    """Names, profiles and providers in the tables of the integrations; nothing is imported to find them."""
    names = {module.name for module in pkgutil.iter_modules() if module.ispkg and module.name.startswith(INTEGRATION)}
    for package in sorted(names):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            provider = provider_id(package.removeprefix(INTEGRATION))
            table = _read_table(Path(folder, "data", "_profiles.py"))
            yield from ((name, profile, provider) for name, profile in table.items())


def _read_table(path: Path) -> Mapping[str, Any]:
    """The dictionary that the module assigns, when it is one of plain values."""
    try:
        module = ast.parse(path.read_bytes())
        for node in module.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if [getattr(target, "id", "") for target in targets] == ["_PROFILES"]:
                    return mapping(ast.literal_eval(node.value or "{}"))
    except (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    return {}
