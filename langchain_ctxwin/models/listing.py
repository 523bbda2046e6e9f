"""What do all sources list at this moment, and which of it is about the model that a name means?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.merging import Claim, in_order, merged
from langchain_ctxwin.models.names import GENERIC, Entry, Found, Names, key_of, spelled


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

    @property
    def info(self) -> ModelInfo:
        """The claims merged."""
        return merged(self.name, self.provider, self.claims)


class Listing:
    """All claims at one time, never changed; the next one remembers which names are gone."""

    def __init__(self, claims: Iterable[Claim] = (), previous: Listing | None = None) -> None:
        self._claims: dict[Entry, list[Claim]] = {}
        for claim in in_order(claims):
            entry = claim.info.provider or GENERIC, key_of(claim.info.name)
            self._claims.setdefault(entry, []).append(claim)
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
        candidates = [self._resolved(entry, found) for entry in found.entries]
        return min(candidates, key=_size)

    def all(self) -> Iterator[Resolved]:
        """Yield every listed model; what is stated for any provider has no entry of its own where one serves it."""
        served = {key for provider, key in self._claims if provider != GENERIC}
        for entry in sorted(self._claims):
            if entry[0] != GENERIC or entry[1] not in served:
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
        provider, key = entry
        aliases = sorted(map(key_of, _aliases(self._claims[entry])))
        keys = dict.fromkeys((key, f"{provider}/{key}", key_of(found.name), *aliases))
        generic = (claim for k in keys for claim in self._claims.get((GENERIC, k), []) if provider != GENERIC)
        claims = in_order((*self._claims[entry], *generic))
        others = (*(other for other in found.entries if other != entry), *found.others)
        return Resolved(
            name=self._claims[entry][0].info.name,
            provider=provider or None,
            claims=tuple(claims),
            how=found.how,
            others=tuple("/".join(other) for other in others),
            is_ambiguous=len(found.entries) > 1,
        )


def _aliases(claims: Sequence[Claim]) -> set[str]:
    return {alias for claim in claims for alias in claim.info.aliases}


def _size(resolved: Resolved) -> tuple[float, float, str]:
    """Sort key: the smallest limits first, unknown ones last."""
    info = resolved.info
    window = min((t for t in (info.context_window, info.max_input_tokens) if t is not None), default=inf)
    return window, info.max_output_tokens or inf, info.provider or ""
