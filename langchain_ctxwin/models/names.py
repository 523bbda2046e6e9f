"""Names of models: which listed model a name means, and one `ModelInfo` from all that sources state about it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from langchain_ctxwin.core.limits import LIMIT_FIELDS
from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo
from langchain_ctxwin.models.apis import provider_id

TIERS = ("explicit", "learned", "provider", "profile", "catalog", "snapshot")
"""Kinds of sources in order of trust."""

LEARNED, CATALOG = "learned", "catalog"
# tiers whose window is meant as one, whatever tables say
OWN_WORD = ("explicit", LEARNED)

# Of these the smallest value counts among catalogs: no table is better than another, a limit that is too large fails
# requests, and a retirement that is noticed too late does too.
CAUTIOUS_FIELDS = frozenset({*LIMIT_FIELDS, "retires_on"})

# These have one value; `deprecated` and `aliases` are collected from all sources instead.
FIELDS = (
    *LIMIT_FIELDS,
    *PRICE_FIELDS,
    "capabilities",
    "tokenizer_family",
    "retires_on",
)

# Who serves models of their own making: a name without a provider means theirs.
MAKERS = frozenset(
    {
        "alibaba",
        "anthropic",
        "cohere",
        "deepseek",
        "google",
        "meta",
        "mistral",
        "moonshotai",
        "openai",
        "perplexity",
        "xai",
        "zai",
    }
)

# LangChain writes `provider:model`
_PROVIDER = re.compile(r"([^/:]*)[/:](.+)", re.DOTALL)
_PREFIX = re.compile(r"\A(?:.+/)?models/")
_DATE = re.compile(r"[-@:](20\d{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])\Z")
_LATEST = re.compile(r"[-@:]latest\Z")
_DATED = re.compile(r"-20\d{6}\Z")
# What OpenAI calls a tuned model, `ft:<base>:<organisation>:<name>:<id>`: catalogs list `ft:<base>`, or the base alone.
_TUNED = re.compile(r"ft:([^:]+):.+")


@dataclass(frozen=True, slots=True)
class Statement:
    """The facts that one source states about one model."""

    source: str
    tier: str
    info: ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The model that a name means, and all that lists say about it."""

    name: str  # as its most trusted source spells it
    provider: str = ""
    claims: tuple[Statement, ...] = ()  # none when it is not listed
    # several providers serve it, and nothing but the smallest limits decided
    is_ambiguous: bool = False

    @property
    def full_name(self) -> str:
        """The name with its provider, where one is known."""
        return f"{self.provider}/{self.name}" if self.provider else self.name


class Listing:
    """All that sources list at one time; a claim without a provider holds wherever the model is served."""

    def __init__(self, claims: Iterable[Statement] = ()) -> None:
        self._at = defaultdict[str, dict[str, list[Statement]]](dict)
        """Key of a name or alias -> provider -> claims, the most trusted first."""
        for claim in sorted(claims, key=_trust):
            names = (claim.info.name, *claim.info.aliases)
            for key in dict.fromkeys(map(key_of, names)):
                provider = claim.info.provider or ""
                self._at[key].setdefault(provider, []).append(claim)
        self.providers = {one for places in self._at.values() for one in places} - {""}
        # what was said about those who were asked for
        self.facts: dict[Any, ModelInfo | None] = {}

    def resolve(self, name: str, provider: str = "") -> Resolved:
        """Return the model that a name means, to a chat model of this provider if one is given.

        The provider's own list comes first; then `provider/name`, split at the first slash or colon: what that
        provider does not list is not listed. Else the name as a whole at any provider: its maker's, else the one with
        the smallest limits.
        """
        for scope, wanted in self._readings(name, provider):
            for key in spellings(key_of(wanted)):
                places = self._at.get(key, {})
                if scope is not None:
                    found = self._served(wanted, key, scope)
                    if found.claims:
                        return found
                elif places:
                    makers = [one for one in places if one in MAKERS]
                    served = makers or [one for one in places if one] or [*places]
                    where = min(served, key=lambda one: (_window(places[one]), one))
                    found = self._served(wanted, key, where)
                    return replace(found, is_ambiguous=len(served) > 1)
        return Resolved(name=name, provider=provider)

    def all(self) -> Iterator[Resolved]:
        """Yield every listed model; what is stated for any provider stands alone only where no provider serves it."""
        listed = {
            (provider, key_of(claims[0].info.name)): claims[0].info.name
            for places in self._at.values()
            for provider, claims in places.items()
            if provider or len(places) == 1
        }
        for (provider, key), name in sorted(listed.items()):
            yield self._served(name, key, provider)

    def _readings(self, name: str, provider: str) -> list[tuple[str | None, str]]:
        """The (provider, name) pairs that the text may mean; None is any provider."""
        readings: list[tuple[str | None, str]] = [(provider, name)] if provider else []
        if match := _PROVIDER.fullmatch(name.strip()):
            said = provider_id(match[1])
            if said in self.providers:
                readings.append((said, match[2]))
                if said != provider:
                    return readings
        return [*readings, (None, name)]

    def _served(self, name: str, key: str, provider: str) -> Resolved:
        """The model at a provider, with what is stated for any provider under one of its names."""
        names = [key, f"{provider}/{key}"]
        own = [claim for one in names for claim in self._said(one, provider)]
        # of two names that differ in case alone, the one that is spelled so
        exact = {claim.source for claim in own if claim.info.name == name}
        own = [one for one in own if one.source not in exact or one.info.name == name]
        if own:
            name = own[0].info.name
            names += map(key_of, (name, f"{provider}/{name}", *own[0].info.aliases))
        everywhere = [claim for one in names for claim in self._said(one, "")]
        claims = tuple(dict.fromkeys([*own, *everywhere]))
        return Resolved(name=name, provider=provider, claims=claims)

    def _said(self, key: str, provider: str) -> list[Statement]:
        return self._at.get(key, {}).get(provider, [])


def _trust(claim: Statement) -> int:
    return TIERS.index(claim.tier)


def _window(claims: Iterable[Statement]) -> float:
    infos = [claim.info for claim in claims]
    return min(one.context_window or one.max_input_tokens or inf for one in infos)


def key_of(name: str) -> str:
    """Return the form by which spellings of a name are compared: in lower case, dates alike, without a `models/` path.

    Examples:
        >>> key_of("models/Nova@2025-03-01"), key_of("nova-latest")
        ('nova-20250301', 'nova')
    """
    key = _PREFIX.sub("", name.strip(), count=1).casefold()
    return _LATEST.sub("", _DATE.sub(r"-\1\2\3", key))


def spellings(key: str) -> Iterator[str]:
    """Yield a key, and what may be listed instead: the base of a tuned model, the name without its date."""
    yield key
    if tuned := _TUNED.fullmatch(key):
        yield from (key_of(f"ft:{tuned[1]}"), key_of(tuned[1]))
    yield _DATED.sub("", key)


def merged(model: Resolved, more: Iterable[Statement] = ()) -> ModelInfo:
    """Return one `ModelInfo` from all claims about a model.

    Per field the first tier that states it counts, and in it the first source; of catalogs the smallest limit.
    `conflicts` keeps every other value. Limits of different sources that contradict each other:

    - A window that another source states as the limit of the input, beside a larger window, is that input limit.
    - An input limit above the window leaves, unless a more trusted source states it: then it is the window.
    - An output limit above the window leaves.
    """
    claims = sorted(_inputs_apart([*model.claims, *more]), key=_trust)
    said = {field: _stated_values(claims, field) for field in FIELDS}
    taken = {field: stated[0] for field, stated in said.items() if stated}
    _reconcile(taken)
    conflicts: dict[str, Mapping[str, object]] = {}
    for field, stated in said.items():
        _, value = taken.get(field, (None, None))
        others = {claim.source: other for claim, other in stated if other != value}
        if others:
            conflicts[field] = others
    names = [one for claim in claims for one in (claim.info.name, *claim.info.aliases)]
    values: dict[str, Any] = {field: value for field, (_, value) in taken.items()}
    return ModelInfo(
        name=model.name,
        provider=model.provider or None,
        **values,
        deprecated=any(claim.info.deprecated for claim in claims),
        aliases=tuple(one for one in dict.fromkeys(names) if one != model.name),
        provenance={field: claim.source for field, (claim, _) in taken.items()},
        conflicts=conflicts,
    )


def _inputs_apart(claims: Sequence[Statement]) -> Iterator[Statement]:
    """The claims, where a window that is an input limit beside a larger window is read as that."""
    infos = [claim.info for claim in claims]
    apart = {
        info.max_input_tokens
        for info in infos
        if (info.max_input_tokens or inf) < (info.context_window or 0)
    }
    for claim in claims:
        info = claim.info
        is_own = claim.tier in OWN_WORD or info.max_input_tokens is not None
        if info.context_window in apart and not is_own:
            window = info.context_window
            info = replace(info, context_window=None, max_input_tokens=window)
        yield replace(claim, info=info)


Value = tuple[Statement, Any]  # a value of a field and who states it


def _stated_values(claims: Iterable[Statement], field: str) -> list[Value]:
    """What is said of a field, the value that counts first."""
    values = [(claim, getattr(claim.info, field)) for claim in claims]
    stated = [one for one in values if one[1] not in (None, frozenset())]
    if stated and stated[0][0].tier == CATALOG and field in CAUTIOUS_FIELDS:
        stated.sort(key=lambda one: (one[0].tier != CATALOG, one[1]))
    return stated


def _reconcile(taken: dict[str, Value]) -> None:
    """Drop what contradicts better statements, so that the limits can stand together."""
    window, largest = taken.get("context_window"), taken.get("max_input_tokens")
    if window and largest and largest[1] > window[1]:
        if _trust(largest[0]) < _trust(window[0]):
            taken["context_window"] = largest
        else:
            del taken["max_input_tokens"]
    output = taken.get("max_output_tokens")
    if window and output and output[1] > taken["context_window"][1]:
        del taken["max_output_tokens"]
