"""What is the answer about one model: what sources list, its own profile, and what was learned, merged once?"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.asking import Asked
from langchain_ctxwin.models.listing import Listing, Resolved
from langchain_ctxwin.models.memories import Memory, heard
from langchain_ctxwin.models.merging import Claim, guessed, merged
from langchain_ctxwin.models.names import key_of
from langchain_ctxwin.models.notices import Notices
from langchain_ctxwin.util.memo import Lru

MAX_ANSWERS = 4096
"""Merged facts kept, about 2 kB each."""


class Answers:
    """Merges what is known about a model; remembers it until a source states something else."""

    def __init__(self, memories: Sequence[Memory], notices: Notices, *, allow_guess: bool) -> None:
        self._memories = memories
        self._notices = notices
        self._allow_guess = allow_guess
        self._known: tuple[Listing, Lru[ModelInfo]] = Listing(), Lru(MAX_ANSWERS)

    def facts(self, asked: Asked, listing: Listing) -> ModelInfo | None:
        """Return what is known, or None when nobody knows the model."""
        known = self._memo(listing)
        info = None if asked.own else known.get((asked.name, asked.provider))
        if info is not None and not self._heard(asked, info.provider, info.name, ()):
            return info
        resolved = listing.resolve(asked.name, asked.provider)
        if resolved and resolved.is_ambiguous:
            self._notices.choice(asked.name, resolved)
        claims = self.claims(asked, resolved)
        if not claims:
            return None
        name, provider = (resolved.name, resolved.provider) if resolved else (asked.name, asked.provider or None)
        info = self._merged(name, provider, claims)
        is_listed_only = resolved is not None and len(claims) == len(resolved.claims)
        return known.put((asked.name, asked.provider), info) if is_listed_only else info

    def claims(self, asked: Asked, resolved: Resolved | None) -> list[Claim]:
        """Return all that is said about a model: in lists, by its own profile, and in errors."""
        if resolved is None:
            return [*asked.own, *self._heard(asked, asked.provider, asked.name, ())]
        learned = self._heard(asked, resolved.provider, resolved.name, resolved.claims)
        return [*resolved.claims, *asked.own, *learned]

    def all(self, listing: Listing) -> list[ModelInfo]:
        """Return every listed model."""
        return [self._merged(one.name, one.provider, self.claims(Asked(name=one.name), one)) for one in listing.all()]

    def _merged(self, name: str, provider: str | None, claims: Sequence[Claim]) -> ModelInfo:
        info = merged(name, provider, claims)
        return guessed(info) if self._allow_guess else info

    def _heard(self, asked: Asked, provider: str | None, name: str, listed: Sequence[Claim]) -> list[Claim]:
        own = listed if provider else ()
        served_by = [one for one in (asked.provider, provider) if one]
        exact = [f"{one}/{spelling}" for one in served_by for spelling in (asked.name, name)]
        bare = [name, f"models/{name}"]
        (exact if key_of(asked.name) != key_of(name) and "/" in asked.name else bare).insert(0, asked.name)
        return heard(self._memories, exact, bare, own)

    def _memo(self, listing: Listing) -> Lru[ModelInfo]:
        known_listing, known = self._known
        if known_listing is not listing:
            known = Lru(MAX_ANSWERS)
            self._known = listing, known
        return known
