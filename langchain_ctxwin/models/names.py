"""Names of models: what all sources list at one time, and which listed model a name means, however it is spelled.

A `Listing` holds all statements by provider and name; `Names` finds in it what a name may mean.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import inf

from langchain_ctxwin.models.merging import LIMIT_FIELDS, Claim, in_order, merged
from langchain_ctxwin.models.sources.reading import provider_id

GENERIC = ""
"""Provider of what was stated about a name without saying who serves it."""

Entry = tuple[str, str]
"""Provider id and key of one listed model."""

NEAREST = 3
"""Listed names shown beside an unknown one."""

MAX_COMPARED = 200
"""Names compared letter by letter, of those that begin most like the unknown one; 20 microseconds each."""

UNIVERSAL_TIERS = frozenset({"explicit", "learned"})
"""Tiers whose statements hold at every provider when they name none. A server or a table that does not say whom it
speaks for speaks for itself: it counts where a model is asked for without a provider."""

MAX_CLAIMS = 16
"""Statements kept of one source about one model; the smallest limits stay. A list that repeats a name thousands of
times is a mistake, which must not cost seconds."""

_Wanted = Callable[[Entry], bool]

_LATEST = "latest"
_DATED = re.compile(r"(.+?)[-@:](20\d{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])")
_NEWEST = re.compile(rf"(.+)[-@:]{_LATEST}")
_VARIANT = re.compile(r"(.+?)(?::[a-z]+|@[a-z0-9]+)")
"""A price variant (`:free`) or a version (`@default`) of the same model; tags with digits (`:8b`) are sizes."""

_PREFIX = re.compile(r"\A(?:.+/)?models/")
_BRAND = re.compile(r"[a-z]+")

_BRANDS = {
    "anthropic": ("claude",),
    "cohere": ("command",),
    "google": ("gemini", "gemma"),
    "llama": ("meta",),
    "mistral": ("codestral", "devstral", "magistral", "ministral", "pixtral"),
    "moonshotai": ("kimi",),
    "openai": ("gpt", "chatgpt", "codex", "o"),
    "perplexity": ("sonar",),
    "xai": ("grok",),
    "alibaba": ("qwen", "qwq"),
    "zai": ("glm",),
}
"""Provider id -> brands of its models, where they are not named after it. A brand is no model: it says nothing but who
makes it, which stays so when models come and go."""

_MAKERS = {brand: maker for maker, brands in _BRANDS.items() for brand in brands}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A listed model and all that is said about it."""

    name: str
    """As its most trusted source spells it."""

    provider: str | None
    claims: tuple[Claim, ...]
    how: str
    """How the name was found: by `name`, `alias` or `variant`."""

    others: tuple[str, ...] = ()
    """The same name elsewhere, as `provider/name`."""

    is_ambiguous: bool = False
    """True when several providers serve it and nothing but the smallest limits decided."""


class Listing:
    """All claims at one time, never changed; the next one remembers which names are gone."""

    def __init__(self, claims: Iterable[Claim] = (), previous: Listing | None = None) -> None:
        self._claims: dict[Entry, list[Claim]] = {}
        for claim in in_order(claims):
            entry = claim.info.provider or GENERIC, key_of(claim.info.name)
            self._claims.setdefault(entry, []).append(claim)
        self._claims = {entry: _kept(said) for entry, said in self._claims.items()}
        self.spellings = {entry: {spelled(one.info.name) for one in said} for entry, said in self._claims.items()}
        before: Mapping[Entry, set[str]] = previous.so_far if previous else {}
        self.recased = set(self._recased(previous)) if previous else set()
        self.so_far: Mapping[Entry, set[str]] = {**before, **self.spellings}
        listed = ((entry, _aliases(said)) for entry, said in self._claims.items())
        self.names = Names(listed, before.keys() - self._claims.keys(), self.recased)

    def resolve(self, name: str, provider: str = "") -> Resolved | None:
        """Return the model that a name means, or None when no source lists it."""
        found = self.names.find(name, provider)
        if found is None:
            return None
        entry = min(found.entries, key=lambda one: _size(one, self._about(one, found)))
        return self._resolved(entry, found)

    def all(self) -> Iterator[Resolved]:
        """Yield every listed model; what is stated for any provider has no entry of its own where one serves it."""
        served = {key for provider, key in self._claims if provider != GENERIC}
        for entry, said in sorted(self._claims.items(), key=lambda item: item[0]):
            if (
                entry[0] != GENERIC
                or entry[1] not in served
                or any(claim.tier not in UNIVERSAL_TIERS for claim in said)
            ):
                yield self._resolved(entry, Found(entries=(entry,), how="name", name=entry[1]))

    def _recased(self, previous: Listing) -> Iterator[tuple[Entry, str]]:
        """Yield spellings of which none is left although the model is, and those of before that did not come back."""
        yield from ((entry, old) for entry, old in previous.recased if old not in self.spellings.get(entry, ()))
        for entry, now in self.spellings.items():
            before = previous.spellings.get(entry, now)
            yield from ((entry, old) for old in before if not before & now)

    def _resolved(self, entry: Entry, found: Found) -> Resolved:
        others = (*(other for other in found.entries if other != entry), *found.others)
        return Resolved(
            name=_spelled_so(self._claims[entry], found.name)[0].info.name,
            provider=entry[0] or None,
            claims=tuple(self._about(entry, found)),
            how=found.how,
            others=tuple("/".join(other) for other in others),
            is_ambiguous=len(found.entries) > 1,
        )

    def _about(self, entry: Entry, found: Found) -> list[Claim]:
        """All that is said about a listed model, also without naming its provider."""
        provider, key = entry
        aliases = sorted(map(key_of, _aliases(self._claims[entry])))
        keys = dict.fromkeys((key, f"{provider}/{key}", key_of(found.name), *aliases))
        unnamed = (claim for k in keys for claim in self._claims.get((GENERIC, k), []) if provider != GENERIC)
        generic = (claim for claim in unnamed if found.is_bare or claim.tier in UNIVERSAL_TIERS)
        return in_order((*_spelled_so(self._claims[entry], found.name), *generic))


def _kept(said: Sequence[Claim]) -> list[Claim]:
    """The claims, those of one source by the size of their limits, and not too many of them."""
    by_source: dict[str, list[Claim]] = {}
    for claim in said:
        by_source.setdefault(claim.source, []).append(claim)
    return [claim for claims in by_source.values() for claim in sorted(claims, key=_limits)[:MAX_CLAIMS]]


def _limits(claim: Claim) -> tuple[float, ...]:
    return tuple(getattr(claim.info, field) or inf for field in LIMIT_FIELDS)


def _spelled_so(said: Sequence[Claim], name: str) -> Sequence[Claim]:
    """The claims without those of a source about another spelling, where it lists this very one too."""
    exact = {claim.source for claim in said if spelled(claim.info.name) == spelled(name)}
    return [c for c in said if c.source not in exact or spelled(c.info.name) == spelled(name)]


def _aliases(claims: Sequence[Claim]) -> set[str]:
    return {alias for claim in claims for alias in claim.info.aliases}


def _size(entry: Entry, claims: Sequence[Claim]) -> tuple[float, float, str]:
    """Sort key: the smallest limits first, unknown ones last."""
    info = merged(entry[1], entry[0], claims)
    window = min((t for t in (info.context_window, info.max_input_tokens) if t is not None), default=inf)
    return window, info.max_output_tokens or inf, entry[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The listed models that a name may mean, all of them by the same kind of likeness."""

    entries: tuple[Entry, ...]
    """The one that is meant, or several providers among which nothing decides."""

    how: str
    """`name`, `alias` or `variant` (another date, suffix or spelling of a date)."""

    name: str
    """The name as it was looked for: without the provider, where that was read from it."""

    others: tuple[Entry, ...] = ()
    """The same name at other providers."""

    is_bare: bool = False
    """True when the name was looked for at any provider."""


def key_of(name: str) -> str:
    """Return the form by which spellings of a name are compared: without case and without a `models/` path."""
    return spelled(name).casefold()


def spelled(name: str) -> str:
    """Return a name without a `models/` path, which clients add on their own."""
    return _PREFIX.sub("", name.strip(), count=1)


def maker_of(name: str) -> str:
    """Return the id of the provider that makes a model, as its brand says; empty when it says nothing.

    Example:
        >>> maker_of("deepseek-something"), maker_of("house-blend")
        ('deepseek', 'house')
    """
    brand = _BRAND.match(key_of(name).rpartition("/")[2])
    return _MAKERS.get(brand[0], brand[0]) if brand else ""


class Names:
    """All listed names, ready to be searched.

    A name that left the lists is `gone`: it means no other model, however similar. One that came back in another case
    is `recased`: providers that care about case refuse the old spelling.
    """

    def __init__(
        self,
        listed: Iterable[tuple[Entry, Collection[str]]],
        gone: Collection[Entry] = (),
        recased: Collection[tuple[Entry, str]] = (),
    ) -> None:
        self._gone = gone
        self._gone_keys = {key for _, key in gone}
        self._recased = recased
        self._by_key: dict[str, list[Entry]] = {}
        self._by_alias: dict[str, list[Entry]] = {}
        self._by_stem: dict[str, list[tuple[str, Entry]]] = {}
        for entry, aliases in listed:
            self._add(entry, aliases)
        self.providers = {provider for entries in self._by_key.values() for provider, _ in entries}
        self._searches: tuple[tuple[str, Callable[[str, _Wanted], list[Entry]], bool], ...] = (
            ("name", self._same, True),
            ("alias", self._aliased, True),
            ("name", self._same, False),
            ("alias", self._aliased, False),
            ("variant", self._variants, True),
            ("variant", self._variants, False),
        )  # the last says whether somebody has to serve the model

    def find(self, name: str, provider: str = "") -> Found | None:
        """Return what a name means, to a chat model of this provider if one is given.

        The provider's own list comes first; then `provider/name`, split at the first slash; then the name as a whole at
        any provider: its maker's, if listed, else all of them.
        """
        for scope, wanted in self._readings(name, provider):
            found = self._search(wanted, scope)
            if found:
                return found
            if scope is not None and self._is_gone(wanted, scope):
                return None
        return None

    def like(self, name: str) -> list[str]:
        """Return the listed names that look most like one that is not: of its provider, else of any."""
        readings = [(scope, wanted) for scope, wanted in self._readings(name, "") if scope != GENERIC]
        found = (self._close(wanted, scope) for scope, wanted in readings)
        return next(filter(None, found), [])

    def _add(self, entry: Entry, aliases: Collection[str]) -> None:
        _, key = entry
        self._by_key.setdefault(key, []).append(entry)
        stem, date = _split(key)
        self._by_stem.setdefault(stem, []).append((date, entry))
        for alias in {key_of(alias) for alias in aliases} - {key}:
            self._by_alias.setdefault(alias, []).append(entry)

    def _readings(self, name: str, provider: str) -> Iterator[tuple[str | None, str]]:
        """Yield the (provider, name) pairs that the text may mean; None is any provider."""
        head, slash, tail = name.strip().partition("/")
        stated = next((one for one in (head.casefold(), provider_id(head)) if one in self.providers), "")
        if provider:
            yield provider, name
        if slash and tail and stated:
            yield stated, tail
        yield None, name
        if slash and tail and (stated or provider_id(head) == provider):
            yield GENERIC, tail

    def _close(self, name: str, scope: str | None) -> list[str]:
        key = key_of(name)
        listed = (other for other in sorted(self._by_key) if other[:1] == key[:1])  # comparing all takes too long
        keys = [other for other in listed if scope is None or (scope, other) in self._by_key[other]]
        keys = sorted(keys, key=lambda other: -_shared_start(key, other))[:MAX_COMPARED]
        close = difflib.get_close_matches(key, keys, n=NEAREST)
        return [f"{scope}/{other}" for other in close] if scope else close

    def _search(self, name: str, scope: str | None) -> Found | None:
        is_gone = self._is_gone(name, scope)
        for how, search, is_served in self._searches:
            entries = search(name, partial(_is_wanted, scope, is_served))
            if entries and (how == "name" or not is_gone):
                return _decided(entries, how, name, is_bare=scope is None)
        return None

    def _is_gone(self, name: str, scope: str | None) -> bool:
        key = key_of(name)
        if scope is None:
            return key in self._gone_keys or any(self._is_recased(entry, name) for entry in self._by_key.get(key, ()))
        return (scope, key) in self._gone or self._is_recased((scope, key), name)

    def _is_recased(self, entry: Entry, name: str) -> bool:
        return (entry, spelled(name)) in self._recased

    def _same(self, name: str, wanted: _Wanted) -> list[Entry]:
        entries = filter(wanted, self._by_key.get(key_of(name), ()))
        return [entry for entry in entries if not self._is_recased(entry, name)]

    def _aliased(self, name: str, wanted: _Wanted) -> list[Entry]:
        return list(filter(wanted, self._by_alias.get(key_of(name), ())))

    def _variants(self, name: str, wanted: _Wanted) -> list[Entry]:
        """Entries that differ from the name by a date, a suffix, or how a date is written; never by two dates."""
        key = key_of(name)
        plain = _VARIANT.fullmatch(key)
        for like in (key, plain[1] if plain and not _DATED.fullmatch(key) else ""):
            stem, date = _split(like)
            listed = [(found, entry) for found, entry in self._by_stem.get(stem, ()) if wanted(entry)] if like else []
            if chosen := _by_date(listed, date):
                return chosen
        return []


def _shared_start(one: str, other: str) -> int:
    """How many letters two names have in common before they part."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _split(key: str) -> tuple[str, str]:
    """The name without its date, and the date as digits, `latest` or empty."""
    if dated := _DATED.fullmatch(key):
        return dated[1], "".join(dated.groups()[1:])
    newest = _NEWEST.fullmatch(key)
    return (newest[1], _LATEST) if newest else (key, "")


def _by_date(listed: list[tuple[str, Entry]], date: str) -> list[Entry]:
    """Entries of the same date; else of the undated name; for a name without a date else the newest per provider."""
    for accepted in dict.fromkeys((date, "", *(() if date.isdigit() else (_LATEST,)))):
        if chosen := [entry for found, entry in listed if found == accepted]:
            return chosen
    if date.isdigit():
        return []
    newest = dict(sorted((entry[0], (found, entry)) for found, entry in listed))
    return [entry for _, entry in newest.values()]


def _is_wanted(scope: str | None, is_served: bool, entry: Entry) -> bool:
    provider = entry[0]
    return (scope is None or provider == scope) and not (is_served and provider == GENERIC)


def _decided(entries: list[Entry], how: str, name: str, *, is_bare: bool) -> Found:
    """Prefer the maker to others."""
    maker = maker_of(name)
    chosen = [entry for entry in entries if entry[0] == maker][:1] or entries
    others = tuple(entry for entry in entries if entry not in chosen)
    return Found(entries=tuple(chosen), how=how, name=name, others=others, is_bare=is_bare)
