"""Names of models: which listed model a name means, and one `ModelInfo` from all that is said about it."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from langchain_ctxwin.core.limits import GUESS_FACTOR, ModelLimits
from langchain_ctxwin.core.model_info import (
    LIMIT_FIELDS,
    PRICE_FIELDS,
    ModelInfo,
)
from langchain_ctxwin.models.reading import provider_id

TIERS = ("explicit", "learned", "provider", "profile", "catalog", "snapshot")
"""Kinds of sources in order of trust."""

LEARNED, CATALOG, GUESS = "learned", "catalog", "guess"
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

NEAREST = 3  # listed names shown beside an unknown one

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
# A platform that catalogs list apart by the maker of the model.
PARTS = {"google-vertex": ("google-vertex", "google-vertex-anthropic")}

_LATEST = "latest"
_DATED = re.compile(r"(.+?)[-@:](20\d{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])")
_NEWEST = re.compile(rf"(.+)[-@:]{_LATEST}")
# A price variant (`:free`) or a version (`@default`) of the same model; tags with digits (`:8b`) are sizes.
_VARIANT = re.compile(r"(.+?)(?::[a-z]+|@[a-z0-9]+)")
# What OpenAI calls a tuned model, `ft:<base>:<organisation>:<name>:<id>`: catalogs list `ft:<base>`, or the base alone.
_TUNED = re.compile(r"((?:[^/:]+[/:])?)ft:([^:]+):.+")
# LangChain writes `provider:model`
_PROVIDER = re.compile(r"([^/:]*)[/:](.+)", re.DOTALL)
_PREFIX = re.compile(r"\A(?:.+/)?models/")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one source says about one model."""

    source: str
    tier: str
    info: ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The model that a name means, and all that lists say about it."""

    name: str  # as its most trusted source spells it
    provider: str | None = None
    claims: tuple[Claim, ...] = ()
    how: str = ""  # it was found: by `name` or as a `variant` (another date or suffix); empty when it is not listed
    others: tuple[str, ...] = ()  # the same name elsewhere, as `provider/name`
    is_ambiguous: bool = (
        False  # several providers serve it, and nothing but the smallest limits decided
    )


class Listing:
    """All that sources list at one time."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._claims = sorted(claims, key=lambda one: TIERS.index(one.tier))
        self._by_key: defaultdict[str, list[Claim]] = defaultdict(list)
        self._by_stem: defaultdict[str, list[tuple[str, Claim]]] = defaultdict(list)
        for claim in self._claims:
            for key in {
                key_of(name) for name in (claim.info.name, *claim.info.aliases)
            }:
                self._by_key[key].append(claim)
            stem, date = split_date(key_of(claim.info.name))
            self._by_stem[stem].append((date, claim))
        self.providers = {claim.info.provider for claim in self._claims} - {None}
        # what lists and a model's profile say, by who was asked about
        self.merged: dict[Any, ModelInfo] = {}
        self._known: dict[tuple[str, str], Resolved] = {}

    def resolve(self, name: str, provider: str = "") -> Resolved:
        """Return the model that a name means, to a chat model of this provider if one is given.

        The provider's own list comes first; then `provider/name`, split at the first slash or colon: what that
        provider does not list is not listed. Else the name as a whole at any provider: its maker's, else the one with
        the smallest limits.
        """
        key = (name, provider)
        return self._known.get(key) or self._known.setdefault(
            key, self._resolved(name, provider)
        )

    def _resolved(self, name: str, provider: str) -> Resolved:
        for spelling in (name, *_bases(name)):
            for scope, wanted in self._readings(spelling, provider):
                how, found = self._search(wanted, scope)
                if found:
                    return self._decided(wanted, how, found)
        return Resolved(name=name, provider=provider or None)

    def all(self) -> Iterator[Resolved]:
        """Yield every listed model; what is stated for any provider stands alone only where no provider serves it."""
        entries = {
            (one.info.provider or "", key_of(one.info.name)): one.info.name
            for one in self._claims
        }
        served = {key for provider, key in entries if provider}
        for (provider, key), name in sorted(entries.items()):
            if provider or key not in served:
                said = [
                    one
                    for one in self._by_key[key]
                    if (one.info.provider or "") == provider
                ]
                yield self._decided(name, "name", said)

    def like(self, name: str) -> list[str]:
        """Return the listed names that look most like one that is not."""
        wanted = key_of(self._readings(name, "")[0][1])
        # comparing all takes too long
        listed = [key for key in self._by_key if key[:1] == wanted[:1]]
        return difflib.get_close_matches(wanted, listed, n=NEAREST)

    def _readings(self, name: str, provider: str) -> list[tuple[str | None, str]]:
        """The (provider, name) pairs that the text may mean; None is any provider."""
        found = _PROVIDER.fullmatch(name.strip())
        readings: list[tuple[str | None, str]] = [(provider, name)] if provider else []
        if found:
            served_by = provider_id(found[1])
            scopes = [
                one
                for one in PARTS.get(served_by, (served_by,))
                if one in self.providers
            ]
            if scopes and served_by != provider:
                return [*readings, *((scope, found[2]) for scope in scopes)]
            if served_by == provider:
                readings.append((provider, found[2]))
        return [*readings, (None, name)]

    def _search(self, name: str, scope: str | None) -> tuple[str, list[Claim]]:
        """What is said at a provider, or at any, about the models that a name may mean."""
        key = key_of(name)
        keys = (key,) if scope is None else (key, f"{scope}/{key}")
        claims = [
            claim
            for one in keys
            for claim in self._by_key.get(one, ())
            if _is_at(claim, scope)
        ]
        if claims:
            return "name", claims
        plain = _VARIANT.fullmatch(key)
        similar = (key, plain[1]) if plain and not _DATED.fullmatch(key) else (key,)
        for stem, date in map(split_date, similar):
            listed = [
                one for one in self._by_stem.get(stem, ()) if _is_at(one[1], scope)
            ]
            if claims := _by_date(listed, date):
                return "variant", claims
        return "", []

    def _decided(self, name: str, how: str, found: Sequence[Claim]) -> Resolved:
        """Prefer the maker to other providers, else the smallest limits."""
        served: defaultdict[str | None, list[Claim]] = defaultdict(list)
        for claim in found:
            served[claim.info.provider].append(claim)
        providers: list[str | None] = [one for one in served if one is not None]
        makers = [one for one in providers if one in MAKERS] or providers or [None]
        provider = (
            min(makers, key=lambda one: _size(served[one]))
            if len(makers) > 1
            else makers[0]
        )
        own = _spelled_so(served[provider], name)
        if provider is not None:
            own += self._for_any(provider, own[0].info, name)
        elsewhere = [
            claim.info for claim in found if claim.info.provider not in (provider, None)
        ]
        return Resolved(
            name=own[0].info.name,
            provider=provider,
            claims=tuple(own),
            how=how,
            others=tuple(
                sorted({f"{info.provider}/{info.name}" for info in elsewhere})
            ),
            is_ambiguous=len(makers) > 1,
        )

    def _for_any(self, provider: str, info: ModelInfo, name: str) -> list[Claim]:
        """What is stated about a model without saying who serves it."""
        keys = map(key_of, (name, info.name, f"{provider}/{info.name}", *info.aliases))
        claims = [
            claim
            for key in keys
            for claim in self._by_key.get(key, ())
            if claim.info.provider is None
        ]
        return list(dict.fromkeys(claims))


def _is_at(claim: Claim, scope: str | None) -> bool:
    return scope is None or claim.info.provider in (scope, None)


def _spelled_so(said: Sequence[Claim], name: str) -> list[Claim]:
    """The claims without those of a source about another spelling, where it lists this very one too."""
    exact = {claim.source for claim in said if claim.info.name == name}
    return [
        claim for claim in said if claim.source not in exact or claim.info.name == name
    ]


def _size(claims: Sequence[Claim]) -> tuple[float, str]:
    """Sort key: the smallest limits first, unknown ones last."""
    windows = [
        claim.info.context_window or claim.info.max_input_tokens or inf
        for claim in claims
    ]
    return min(windows), claims[0].info.provider or ""


def key_of(name: str) -> str:
    """Return the form by which spellings of a name are compared: without case and without a `models/` path."""
    return _PREFIX.sub("", name.strip(), count=1).casefold()


def _bases(name: str) -> tuple[str, ...]:
    """The names under which the base of a tuned model may be listed."""
    tuned = _TUNED.fullmatch(name.strip())
    return (f"{tuned[1]}ft:{tuned[2]}", f"{tuned[1]}{tuned[2]}") if tuned else ()


def split_date(key: str) -> tuple[str, str]:
    """The name without its date, and the date as digits, `latest` or empty."""
    if dated := _DATED.fullmatch(key):
        return dated[1], "".join(dated.groups()[1:])
    newest = _NEWEST.fullmatch(key)
    return (newest[1], _LATEST) if newest else (key, "")


def _by_date(listed: Sequence[tuple[str, Claim]], date: str) -> list[Claim]:
    """Claims of the same date; else of the undated name; for a name without a date else of the newest per provider."""
    for accepted in (date, "") if date.isdigit() else (date, "", _LATEST):
        if same := [claim for found, claim in listed if found == accepted]:
            return same
    if date.isdigit():
        return []
    newest: dict[str | None, str] = {}
    for found, claim in listed:
        newest[claim.info.provider] = max(found, newest.get(claim.info.provider, ""))
    return [claim for found, claim in listed if found == newest[claim.info.provider]]


def merged(name: str, provider: str | None, claims: Iterable[Claim]) -> ModelInfo:
    """Return one `ModelInfo` from all claims about a model.

    Per field the first tier that states it counts, and in it the first source; of catalogs the smallest limit.
    `conflicts` keeps every other value. Limits of different sources that contradict each other:

    - A window that another source states as the limit of the input, beside a larger window, is that input limit.
    - An input limit above the window leaves, unless a more trusted source states it: then it is the window.
    - An output limit above the window leaves.
    """
    ordered = sorted(claims, key=lambda one: TIERS.index(one.tier))
    said = {field: _values(_inputs_apart(ordered), field) for field in FIELDS}
    taken = {field: _taken(field, values) for field, values in said.items() if values}
    _reconcile(taken)
    values: dict[str, Any] = {field: value for field, (_, value) in taken.items()}
    names = [
        other for claim in ordered for other in (claim.info.name, *claim.info.aliases)
    ]
    others = {field: _others(said[field], values.get(field)) for field in FIELDS}
    provenance = {field: claim.source for field, (claim, _) in taken.items()}
    deprecated = next((claim.source for claim in ordered if claim.info.deprecated), "")
    return ModelInfo(
        name=name,
        provider=provider,
        **values,
        deprecated=bool(deprecated),
        aliases=tuple(dict.fromkeys(other for other in names if other != name)),
        provenance={**provenance, "deprecated": deprecated}
        if deprecated
        else provenance,
        conflicts={field: found for field, found in others.items() if found},
    )


def _inputs_apart(claims: Sequence[Claim]) -> list[Claim]:
    """The claims, where a window that is an input limit beside a larger window is read as that."""
    apart = {
        claim.info.max_input_tokens
        for claim in claims
        if (claim.info.max_input_tokens or inf) < (claim.info.context_window or 0)
    }
    return [
        _input_apart(claim) if claim.info.context_window in apart else claim
        for claim in claims
    ]


def _input_apart(claim: Claim) -> Claim:
    if claim.tier in OWN_WORD or claim.info.max_input_tokens is not None:
        return claim
    window = claim.info.context_window
    return replace(
        claim, info=replace(claim.info, context_window=None, max_input_tokens=window)
    )


Value = tuple[Claim, Any]  # a value of a field and who states it


def _values(claims: Sequence[Claim], field: str) -> list[Value]:
    return [
        (claim, value)
        for claim in claims
        if (value := stated_value(claim.info, field)) is not None
    ]


def _taken(field: str, values: Sequence[Value]) -> Value:
    if values[0][0].tier != CATALOG or field not in CAUTIOUS_FIELDS:
        return values[0]
    return min(
        (one for one in values if one[0].tier == CATALOG),
        key=lambda one: one[1],
    )


def _reconcile(taken: dict[str, Value]) -> None:
    """Drop what contradicts better statements, so that the limits can stand together."""
    window, largest_input = (
        taken.get("context_window"),
        taken.get("max_input_tokens"),
    )
    if window and largest_input and largest_input[1] > window[1]:
        if TIERS.index(largest_input[0].tier) < TIERS.index(window[0].tier):
            window = taken["context_window"] = largest_input
        else:
            del taken["max_input_tokens"]
    if (
        window
        and "max_output_tokens" in taken
        and taken["max_output_tokens"][1] > window[1]
    ):
        del taken["max_output_tokens"]


def _others(said: Sequence[Value], taken: object) -> Mapping[str, object]:
    return {claim.source: value for claim, value in said if value != taken}


def stated_value(info: ModelInfo, field: str) -> Any:
    """Return what a source states about a field, or None when it states nothing."""
    value = getattr(info, field)
    return None if value is False or value in ((), frozenset()) else value


def guessed(info: ModelInfo) -> ModelInfo:
    """Return the facts with a window guessed from the output limit, where no input limit is known; else unchanged."""
    if info.limits.known or info.max_output_tokens is None:
        return info
    window = GUESS_FACTOR * info.max_output_tokens
    return replace(
        info,
        context_window=window,
        provenance={**info.provenance, "context_window": GUESS},
    )


def declared_limits(info: ModelInfo) -> ModelLimits:
    """Return the largest limit that a model is declared to have, by others than its refusals."""
    for field in ("context_window", "max_input_tokens"):
        said = {
            info.provenance.get(field, ""): getattr(info, field),
            **info.conflicts.get(field, {}),
        }
        values = [
            tokens
            for source, tokens in said.items()
            if isinstance(tokens, int) and source != LEARNED
        ]
        if values:
            return ModelLimits(max(values))
    return ModelLimits()
