"""Names of models: which listed model a name means, and one `ModelInfo` from all that sources state about it."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from langchain_ctxwin.core.limits import GUESS_FACTOR
from langchain_ctxwin.core.model_info import LIMIT_FIELDS, PRICE_FIELDS, ModelInfo
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

# LangChain writes `provider:model`
_PROVIDER = re.compile(r"([^/:]*)[/:](.+)", re.DOTALL)
_PREFIX = re.compile(r"\A(?:.+/)?models/")
_DATE = re.compile(r"[-@:](20\d{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])\Z")
_LATEST = re.compile(r"[-@:]latest\Z")
_DATED = re.compile(r"-20\d{6}\Z")
# A price variant (`:free`) or a version (`@default`) of the same model; tags with digits (`:8b`) are sizes.
_VARIANT = re.compile(r"(?::[a-z]+|@[a-z0-9]+)\Z")
# What OpenAI calls a tuned model, `ft:<base>:<organisation>:<name>:<id>`: catalogs list `ft:<base>`, or the base alone.
_TUNED = re.compile(r"ft:([^:]+):.+")


@dataclass(frozen=True, slots=True)
class Claim:
    """The facts that one source states about one model."""

    source: str
    tier: str
    info: ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The model that a name means, and all that lists say about it."""

    name: str  # as its most trusted source spells it
    provider: str | None = None
    claims: tuple[Claim, ...] = ()  # none when it is not listed
    # several providers serve it, and nothing but the smallest limits decided
    is_ambiguous: bool = False

    @property
    def full_name(self) -> str:
        """The name with its provider, where one is known."""
        return f"{self.provider}/{self.name}" if self.provider else self.name


class Listing:
    """All that sources list at one time."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._claims = sorted(claims, key=_trust)
        self._by_key = defaultdict[str, list[Claim]](list)
        for claim in self._claims:
            names = (claim.info.name, *claim.info.aliases)
            for key in dict.fromkeys(map(key_of, names)):
                self._by_key[key].append(claim)
        self.providers = {claim.info.provider for claim in self._claims} - {None}
        # what lists and a model's profile say, by who was asked about
        self.merged: dict[Any, ModelInfo] = {}
        self._resolved: dict[tuple[str, str], Resolved] = {}

    def resolve(self, name: str, provider: str = "") -> Resolved:
        """Return the model that a name means, to a chat model of this provider if one is given.

        The provider's own list comes first; then `provider/name`, split at the first slash or colon: what that
        provider does not list is not listed. Else the name as a whole at any provider: its maker's, else the one with
        the smallest limits.
        """
        key = (name, provider)
        if key not in self._resolved:
            meanings = self._meanings(name, provider)
            unlisted = Resolved(name=name, provider=provider or None)
            self._resolved[key] = next(meanings, unlisted)
        return self._resolved[key]

    def all(self) -> Iterator[Resolved]:
        """Yield every listed model; what is stated for any provider stands alone only where no provider serves it."""
        listed = {
            (claim.info.provider or "", key_of(claim.info.name)): claim.info.name
            for claim in self._claims
        }
        served = {key for provider, key in listed if provider}
        for (provider, key), name in sorted(listed.items()):
            if provider or key not in served:
                yield self._decided(name, self._at(key, provider or None))

    def like(self, name: str) -> list[str]:
        """Return the listed names that look most like one that is not."""
        wanted = key_of(name.rpartition("/")[2])
        return difflib.get_close_matches(wanted, self._by_key, n=NEAREST)

    def _meanings(self, name: str, provider: str) -> Iterator[Resolved]:
        for scope, wanted in self._readings(name, provider):
            for key in spellings(key_of(wanted)):
                if claims := self._claims_at(key, scope):
                    yield self._decided(wanted, claims)

    def _readings(self, name: str, provider: str) -> list[tuple[str | None, str]]:
        """The (provider, name) pairs that the text may mean; None is any provider."""
        readings: list[tuple[str | None, str]] = [(provider, name)] if provider else []
        if match := _PROVIDER.fullmatch(name.strip()):
            said = provider_id(match[1])
            scopes = [one for one in PARTS.get(said, (said,)) if one in self.providers]
            readings += [(scope, match[2]) for scope in scopes]
            if scopes and said != provider:
                return readings
        return [*readings, (None, name)]

    def _claims_at(self, key: str, scope: str | None) -> list[Claim]:
        """The claims under a key at a provider, or at any (None)."""
        keys = (key,) if scope is None else (key, f"{scope}/{key}")
        return [
            claim
            for one in keys
            for claim in self._by_key.get(one, ())
            if scope is None or claim.info.provider in (scope, None)
        ]

    def _at(self, key: str, provider: str | None) -> list[Claim]:
        claims = self._by_key.get(key, ())
        return [claim for claim in claims if claim.info.provider == provider]

    def _decided(self, name: str, claims: Sequence[Claim]) -> Resolved:
        """Prefer the maker to other providers, else the smallest limits; with what is stated for any provider."""
        served = {one.info.provider: None for one in claims if one.info.provider}
        providers: list[str | None] = [*served]
        makers = [one for one in providers if one in MAKERS] or providers or [None]
        smallest = min(
            (claim for claim in claims if claim.info.provider in makers),
            key=lambda one: (_window(one.info), one.info.provider or ""),
        )
        provider = smallest.info.provider
        at = [claim for claim in claims if claim.info.provider == provider]
        # of two names that differ in case alone, the one that is spelled so
        exact = {claim.source for claim in at if claim.info.name == name}
        at = [one for one in at if one.source not in exact or one.info.name == name]
        info = at[0].info
        if provider is not None:
            names = (name, info.name, f"{provider}/{info.name}", *info.aliases)
            at += [claim for one in names for claim in self._at(key_of(one), None)]
        return Resolved(
            name=info.name,
            provider=provider,
            claims=tuple(dict.fromkeys(at)),
            is_ambiguous=len(makers) > 1,
        )


def _trust(claim: Claim) -> int:
    return TIERS.index(claim.tier)


def _window(info: ModelInfo) -> float:
    return info.context_window or info.max_input_tokens or inf


def key_of(name: str) -> str:
    """Return the form by which spellings of a name are compared: in lower case, dates alike, without a `models/` path.

    Examples:
        >>> key_of("models/Nova@2025-03-01"), key_of("nova-latest")
        ('nova-20250301', 'nova')
    """
    key = _PREFIX.sub("", name.strip(), count=1).casefold()
    return _LATEST.sub("", _DATE.sub(r"-\1\2\3", key))


def undated(key: str) -> str:
    """Return a key without the date at its end."""
    return _DATED.sub("", key)


def spellings(key: str) -> Iterator[str]:
    """Yield a key, and what may be listed instead: the base of a tuned model, the name without variant or date."""
    yield key
    if tuned := _TUNED.fullmatch(key):
        yield from (key_of(f"ft:{tuned[1]}"), key_of(tuned[1]))
    plain = _VARIANT.sub("", key)
    yield from (plain, undated(plain))


def merged(name: str, provider: str | None, claims: Iterable[Claim]) -> ModelInfo:
    """Return one `ModelInfo` from all claims about a model.

    Per field the first tier that states it counts, and in it the first source; of catalogs the smallest limit.
    `conflicts` keeps every other value. Limits of different sources that contradict each other:

    - A window that another source states as the limit of the input, beside a larger window, is that input limit.
    - An input limit above the window leaves, unless a more trusted source states it: then it is the window.
    - An output limit above the window leaves.
    """
    ordered = sorted(_inputs_apart([*claims]), key=_trust)
    said = {field: _stated_values(ordered, field) for field in FIELDS}
    taken = {field: stated[0] for field, stated in said.items() if stated}
    _reconcile(taken)
    values: dict[str, Any] = {field: value for field, (_, value) in taken.items()}
    conflicts: dict[str, Mapping[str, object]] = {}
    for field, stated in said.items():
        others = {one.source: v for one, v in stated if v != values.get(field)}
        if others:
            conflicts[field] = others
    names = [one for claim in ordered for one in (claim.info.name, *claim.info.aliases)]
    return ModelInfo(
        name=name,
        provider=provider,
        **values,
        deprecated=any(claim.info.deprecated for claim in ordered),
        aliases=tuple(dict.fromkeys(one for one in names if one != name)),
        provenance={field: claim.source for field, (claim, _) in taken.items()},
        conflicts=conflicts,
    )


def _inputs_apart(claims: Sequence[Claim]) -> Iterator[Claim]:
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


Value = tuple[Claim, Any]  # a value of a field and who states it


def _stated_values(claims: Iterable[Claim], field: str) -> list[Value]:
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


def guessed(info: ModelInfo) -> ModelInfo:
    """Return the facts with a window guessed from the output limit, where no input limit is known; else unchanged."""
    if info.limits.known or info.max_output_tokens is None:
        return info
    window = GUESS_FACTOR * info.max_output_tokens
    provenance = {**info.provenance, "context_window": GUESS}
    return replace(info, context_window=window, provenance=provenance)
