"""Names of models: what all sources list at one time, and which listed model a name means, however it is spelled."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from langchain_ctxwin.core.model_info import LIMIT_FIELDS, ModelInfo
from langchain_ctxwin.models.merging import Claim, in_order, merged
from langchain_ctxwin.models.sources.reading import provider_id
from langchain_ctxwin.util.memo import Lru

GENERIC = ""  # provider of what was stated about a name without saying who serves it
Entry = tuple[str, str]  # provider id and key of one listed model
NEAREST = 3  # listed names shown beside an unknown one
MAX_MERGED = 4096  # merged facts that are kept, about 2 kB each

# Tiers whose statements hold at every provider when they name none. A server or a table that does not say whom it
# speaks for speaks for itself: it counts where a model is asked for without a provider.
UNIVERSAL_TIERS = frozenset({"explicit", "learned"})

_LATEST = "latest"
_DATED = re.compile(r"(.+?)[-@:](20\d{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])")
_NEWEST = re.compile(rf"(.+)[-@:]{_LATEST}")
# A price variant (`:free`) or a version (`@default`) of the same model; tags with digits (`:8b`) are sizes.
_VARIANT = re.compile(r"(.+?)(?::[a-z]+|@[a-z0-9]+)")
# What OpenAI calls a tuned model, `ft:<base>:<organisation>:<name>:<id>`: catalogs list `ft:<base>`, or the base alone.
_TUNED = re.compile(r"((?:[^/:]+[/:])?)ft:([^:]+):.+")
_PROVIDER = re.compile(r"([^/:]*)([/:]?)(.*)", re.DOTALL)  # LangChain writes `provider:model`
_PREFIX = re.compile(r"\A(?:.+/)?models/")

# Platforms that some catalogs list apart by the maker of the model, where others have one name for all of it.
_PLATFORMS = {"google-vertex": ("google-vertex-anthropic",)}

# Provider id -> brands of its models, where they are not named after it. A brand is no model: it says nothing but who
# makes it, which stays so when models come and go.
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
_MAKERS = {brand: maker for maker, brands in _BRANDS.items() for brand in brands}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The model that a name means, and all that lists say about it."""

    name: str  # as its most trusted source spells it
    provider: str | None
    claims: tuple[Claim, ...] = ()
    how: str = ""  # it was found: by `name`, `alias` or `variant`; empty when it is not listed
    others: tuple[str, ...] = ()  # the same name elsewhere, as `provider/name`
    is_ambiguous: bool = False  # several providers serve it, and nothing but the smallest limits decided


class Listing:
    """All claims at one time, never changed; the next one remembers which names are gone.

    A name that left the lists means no other model, however similar. One that came back in another case is gone in the
    old one: providers that care about case refuse it.
    """

    def __init__(self, claims: Iterable[Claim] = (), previous: Listing | None = None) -> None:
        said: dict[Entry, list[Claim]] = defaultdict(list)
        for claim in in_order(claims):
            said[claim.info.provider or GENERIC, key_of(claim.info.name)].append(claim)
        self._claims = {entry: _smallest_first(found) for entry, found in said.items()}
        self.merged: Lru[ModelInfo] = Lru(MAX_MERGED)  # by name and provider, what nobody but the lists speaks about
        self.providers = {provider for provider, _ in said}
        self.spellings = {(entry[0], spelled(claim.info.name)) for entry, found in said.items() for claim in found}
        self.gone: set[Entry] = (previous.gone | previous.spellings if previous else set()) - self.spellings
        self._gone_by_key: dict[str, list[Entry]] = defaultdict(list)
        for provider, spelling in self.gone:
            self._gone_by_key[spelling.casefold()].append((provider, spelling))
        self._by_key: dict[str, list[Entry]] = defaultdict(list)
        self._by_alias: dict[str, list[Entry]] = defaultdict(list)
        self._by_stem: dict[str, list[tuple[str, Entry]]] = defaultdict(list)
        for entry, found in self._claims.items():
            self._by_key[entry[1]].append(entry)
            stem, date = _split(entry[1])
            self._by_stem[stem].append((date, entry))
            for alias in _alias_keys(found) - {entry[1]}:
                self._by_alias[alias].append(entry)

    def resolve(self, name: str, provider: str = "") -> Resolved:
        """Return the model that a name means, to a chat model of this provider if one is given.

        The provider's own list comes first; then `provider/name`, split at the first slash; then the name as a whole at
        any provider: its maker's, if listed, else the one with the smallest limits.
        """
        for spelling in (name, *_bases(name)):
            for scope, wanted in self._readings(spelling, provider):
                how, entries = self._search(wanted, scope)
                if entries:
                    return self._decided(entries, how, wanted, is_bare=scope is None)
                if scope is not None and self._is_gone(wanted, scope):
                    break
        return Resolved(name=name, provider=provider or None)

    def all(self) -> Iterator[Resolved]:
        """Yield every listed model; what is stated for any provider has no entry of its own where one serves it."""
        served = {key for provider, key in self._claims if provider != GENERIC}
        for entry, said in sorted(self._claims.items(), key=lambda item: item[0]):
            is_own = entry[0] != GENERIC or any(claim.tier not in UNIVERSAL_TIERS for claim in said)
            if is_own or entry[1] not in served:
                yield self._decided([entry], "name", entry[1], is_bare=False)

    def like(self, name: str) -> list[str]:
        """Return the listed names that look most like one that is not: of its provider, else of any."""
        for scope, wanted in self._readings(name, ""):
            key = key_of(wanted)
            listed = (other for other in sorted(self._by_key) if other[:1] == key[:1])  # comparing all takes too long
            keys = [other for other in listed if scope is None or (scope, other) in self._claims]
            if scope != GENERIC and (close := difflib.get_close_matches(key, keys, n=NEAREST)):
                return [f"{scope}/{other}" for other in close] if scope else close
        return []

    def _readings(self, name: str, provider: str) -> Iterator[tuple[str | None, str]]:
        """Yield the (provider, name) pairs that the text may mean; None is any provider."""
        head, separator, tail = _PROVIDER.match(name.strip()).groups()  # type: ignore[union-attr]  # matches anything
        found = provider_id(head) if separator else ""
        stated = [one for one in (head.casefold(), found, *_PLATFORMS.get(found, ())) if one in self.providers]
        if provider:
            yield provider, name
        if separator and tail:
            yield from ((one, tail) for one in dict.fromkeys(stated))
        yield None, name
        if separator and tail and (stated or found == provider):
            yield GENERIC, tail

    def _search(self, name: str, scope: str | None) -> tuple[str, list[Entry]]:
        """The models that a name may mean, all by the same kind of likeness; somebody's before nobody's."""
        key, is_gone = key_of(name), self._is_gone(name, scope)
        same = [entry for entry in self._by_key.get(key, ()) if (entry[0], spelled(name)) not in self.gone]
        aliased = [] if is_gone else self._by_alias.get(key, [])
        in_scope = self.providers if scope is None else self.providers & {scope}
        for providers in (in_scope - {GENERIC}, in_scope):
            for how, entries in (("name", same), ("alias", aliased)):
                if found := [entry for entry in entries if entry[0] in providers]:
                    return how, found
        plain = _VARIANT.fullmatch(key)
        similar = (key, plain[1]) if plain and not _DATED.fullmatch(key) else (key,)
        for providers in () if is_gone else (in_scope - {GENERIC}, in_scope):
            for stem, date in map(_split, similar):
                listed = [one for one in self._by_stem.get(stem, ()) if one[1][0] in providers]
                if found := _by_date(listed, date):
                    return "variant", found
        return "", []

    def _is_gone(self, name: str, scope: str | None) -> bool:
        """True when a provider in the scope listed the name before, and not in this spelling any more."""
        key = key_of(name)
        return any(
            scope in (None, provider) and (spelling == spelled(name) or (provider, key) not in self._claims)
            for provider, spelling in self._gone_by_key.get(key, ())
        )

    def _decided(self, entries: list[Entry], how: str, name: str, *, is_bare: bool) -> Resolved:
        """Prefer the maker to others, else the smallest limits."""
        maker = maker_of(name)
        chosen = [entry for entry in entries if entry[0] == maker][:1] or entries
        about = {entry: self._about(entry, name, is_bare=is_bare) for entry in chosen}
        entry = min(chosen, key=lambda one: _size(one, about[one])) if len(chosen) > 1 else chosen[0]
        return Resolved(
            name=_spelled_so(self._claims[entry], name)[0].info.name,
            provider=entry[0] or None,
            claims=tuple(about[entry]),
            how=how,
            others=tuple("/".join(other) for other in entries if other != entry),
            is_ambiguous=len(chosen) > 1,
        )

    def _about(self, entry: Entry, name: str, *, is_bare: bool) -> list[Claim]:
        """All that is said about a listed model, also without naming its provider."""
        provider, key = entry
        said = _spelled_so(self._claims[entry], name)
        if provider == GENERIC:
            return in_order(said)
        keys = dict.fromkeys((key, f"{provider}/{key}", key_of(name), *sorted(_alias_keys(self._claims[entry]))))
        generic = (claim for key in keys for claim in self._claims.get((GENERIC, key), ()))
        return in_order((*said, *(claim for claim in generic if is_bare or claim.tier in UNIVERSAL_TIERS)))


def key_of(name: str) -> str:
    """Return the form by which spellings of a name are compared: without case and without a `models/` path."""
    return spelled(name).casefold()


def spelled(name: str) -> str:
    """Return a name without a `models/` path, which clients add on their own."""
    return _PREFIX.sub("", name.strip(), count=1)


def _bases(name: str) -> tuple[str, ...]:
    """The names under which the base of a tuned model may be listed."""
    tuned = _TUNED.fullmatch(name.strip())
    return (f"{tuned[1]}ft:{tuned[2]}", f"{tuned[1]}{tuned[2]}") if tuned else ()


def maker_of(name: str) -> str:
    """Return the id of the provider that makes a model, as its brand says; empty when it says nothing.

    Examples:
        >>> maker_of("deepseek-something"), maker_of("house-blend")
        ('deepseek', 'house')
    """
    brand = re.match(r"[a-z]+", key_of(name).rpartition("/")[2])
    return _MAKERS.get(brand[0], brand[0]) if brand else ""


def _smallest_first(said: Sequence[Claim]) -> list[Claim]:
    """The claims in the order of their sources, those of one source by the size of their limits."""
    rank = {source: number for number, source in enumerate(dict.fromkeys(claim.source for claim in said))}
    return sorted(
        said, key=lambda one: (rank[one.source], *(getattr(one.info, field) or inf for field in LIMIT_FIELDS))
    )


def _spelled_so(said: Sequence[Claim], name: str) -> Sequence[Claim]:
    """The claims without those of a source about another spelling, where it lists this very one too."""
    exact = {claim.source for claim in said if spelled(claim.info.name) == spelled(name)}
    return [claim for claim in said if claim.source not in exact or spelled(claim.info.name) == spelled(name)]


def _alias_keys(claims: Sequence[Claim]) -> set[str]:
    return {key_of(alias) for claim in claims for alias in claim.info.aliases}


def _size(entry: Entry, claims: Sequence[Claim]) -> tuple[float, float, str]:
    """Sort key: the smallest limits first, unknown ones last."""
    info = merged(entry[1], entry[0], claims)
    return min(info.context_window or inf, info.max_input_tokens or inf), info.max_output_tokens or inf, entry[0]


def _split(key: str) -> tuple[str, str]:
    """The name without its date, and the date as digits, `latest` or empty."""
    if dated := _DATED.fullmatch(key):
        return dated[1], "".join(dated.groups()[1:])
    newest = _NEWEST.fullmatch(key)
    return (newest[1], _LATEST) if newest else (key, "")


def _by_date(listed: list[tuple[str, Entry]], date: str) -> list[Entry]:
    """Entries of the same date; else of the undated name; for a name without a date else the newest per provider."""
    for accepted in (date, "", *(() if date.isdigit() else (_LATEST,))):
        if chosen := [entry for found, entry in listed if found == accepted]:
            return chosen
    if date.isdigit():
        return []
    newest = dict(sorted((entry[0], (found, entry)) for found, entry in listed))
    return [entry for _, entry in newest.values()]
