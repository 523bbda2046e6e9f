"""What do all sources list at this moment, and which of it is about the model that a name means?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from langchain_ctxwin.models.merging import LIMIT_FIELDS, Claim, in_order, merged
from langchain_ctxwin.models.names import GENERIC, Entry, Found, Names, key_of, spelled

UNIVERSAL_TIERS = frozenset({"explicit", "learned"})
"""Tiers whose statements hold at every provider when they name none. A server or a table that does not say whom it
speaks for speaks for itself: it counts where a model is asked for without a provider."""

MAX_CLAIMS = 16
"""Statements kept of one source about one model; the smallest limits stay. A list that repeats a name thousands of
times is a mistake, which must not cost seconds."""


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
        self.recased = {*self._now_recased(previous), *self._still_recased(previous)} if previous else set()
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
            if entry[0] != GENERIC or entry[1] not in served or not all(map(_is_universal, said)):
                yield self._resolved(entry, Found(entries=(entry,), how="name", name=entry[1]))

    def _now_recased(self, previous: Listing) -> Iterator[tuple[Entry, str]]:
        """Spellings of which none is left, although the model is."""
        for entry, now in self.spellings.items():
            before = previous.spellings.get(entry, now)
            if not before & now:
                yield from ((entry, old) for old in before)

    def _still_recased(self, previous: Listing) -> Iterator[tuple[Entry, str]]:
        return ((entry, old) for entry, old in previous.recased if old not in self.spellings.get(entry, ()))

    def _resolved(self, entry: Entry, found: Found) -> Resolved:
        others = (*(other for other in found.entries if other != entry), *found.others)
        return Resolved(
            name=self._own(entry, found)[0].info.name,
            provider=entry[0] or None,
            claims=tuple(self._about(entry, found)),
            how=found.how,
            others=tuple("/".join(other) for other in others),
            is_ambiguous=len(found.entries) > 1,
        )

    def _own(self, entry: Entry, found: Found) -> Sequence[Claim]:
        return _spelled_so(self._claims[entry], found.name)

    def _about(self, entry: Entry, found: Found) -> list[Claim]:
        """All that is said about a listed model, also without naming its provider."""
        provider, key = entry
        aliases = sorted(map(key_of, _aliases(self._claims[entry])))
        keys = dict.fromkeys((key, f"{provider}/{key}", key_of(found.name), *aliases))
        unnamed = (claim for k in keys for claim in self._claims.get((GENERIC, k), []) if provider != GENERIC)
        generic = (claim for claim in unnamed if found.is_bare or _is_universal(claim))
        return in_order((*self._own(entry, found), *generic))


def _is_universal(claim: Claim) -> bool:
    return claim.tier in UNIVERSAL_TIERS


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
