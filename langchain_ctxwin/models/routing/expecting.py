"""What does a request need, and what is to be expected of each candidate: chance, cost and time?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.memo import Lru
from langchain_ctxwin.models.routing import fitting
from langchain_ctxwin.models.routing.candidates import Candidate
from langchain_ctxwin.models.routing.conversations import MAX_CONVERSATIONS, Kept
from langchain_ctxwin.models.routing.experience import Experience
from langchain_ctxwin.models.routing.fitting import Needs
from langchain_ctxwin.models.routing.objective import Option
from langchain_ctxwin.models.routing.pricing import estimated_cost, strengths
from langchain_ctxwin.models.routing.quality import Quality
from langchain_ctxwin.models.routing.request import Request
from langchain_ctxwin.models.routing.route import Route
from langchain_ctxwin.models.routing.sizing import Size, Sizes
from langchain_ctxwin.protocols import Clock


class Expectations:
    """What a router knows when it has to choose."""

    def __init__(
        self, config: RoutingConfig, sizes: Sizes, quality: Quality, experience: Experience, *, clock: Clock
    ) -> None:
        self._config = config
        self._sizes = sizes
        self._quality = quality
        self._experience = experience
        self._clock = clock
        self._kept: Lru[Kept] = Lru(MAX_CONVERSATIONS)

    def needs(self, candidates: Sequence[Candidate], request: Request) -> Needs:
        """Measure a request for the tokenizers of all candidates, and find out what it takes to answer it."""
        requires = (*self._config.required, *request.requires)
        return Needs(
            sizes=self._sizes_of(request, {one.family for one in candidates}),
            capabilities=fitting.capabilities_for(request.messages, request.tools, requires),
            today=datetime.fromtimestamp(self._clock(), tz=UTC).date(),
            output_tokens=request.output_tokens,
            reserve=self.reserve(request),
            above_tokens=request.above_tokens,
        )

    def reserve(self, request: Request) -> int | None:
        """Return the tokens to keep for the answer; None leaves it to each candidate's own setting."""
        stated = (request.reserve, request.output_tokens, self._config.output_reserve)
        return next((tokens for tokens in stated if tokens is not None), None)

    def options(
        self, can: Sequence[Candidate], candidates: Sequence[Candidate], needs: Needs, request: Request
    ) -> list[Option]:
        """Return what to expect of each candidate that can take the request.

        Args:
            can: those candidates.
            candidates: all of them; how strong each is presumed to be is a rank among them.
            needs: what the request needs.
            request: the request.
        """
        names = [one.name for one in candidates]
        chances = self._quality.chances(
            request.text, names, strengths=strengths([one.info for one in candidates]), needs_tools=bool(request.tools)
        )
        by_name: Mapping[str, float] = dict(zip(names, chances, strict=True))
        return [
            Option(
                candidate=one,
                chance=by_name[one.name],
                cost=self._cost(one, needs, request),
                seconds=self._experience.seconds(one.name),
            )
            for one in can
        ]

    def route(
        self, candidate: Candidate, needs: Needs, request: Request, *, reason: str, rejected: Mapping[str, str]
    ) -> Route:
        """Write down a decision; the conversation stays with the candidate from now on."""
        route = Route(
            model=candidate.given,
            name=candidate.name,
            info=candidate.info,
            reason=reason,
            rejected=rejected,
            estimated_tokens=needs.sizes[candidate.family].tokens,
            estimated_cost=self._cost(candidate, needs, request),
            bucket=self._quality.bucket(request.text, needs_tools=bool(request.tools)),
        )
        self.keep(request.conversation, route)
        return route

    def keep(self, conversation: str, route: Route) -> None:
        """Remember which candidate a conversation has, and how much of it that one has seen."""
        if conversation:
            self._kept.put(conversation, Kept(name=route.name, seen_tokens=route.estimated_tokens))

    def kept(self, conversation: str) -> str:
        """Return the name of the candidate that a conversation has; empty before its first request."""
        known = self._kept.get(conversation)
        return known.name if known else ""

    def _sizes_of(self, request: Request, families: set[str]) -> Mapping[str, Size]:
        known = request.sizes or {}
        missing = families - known.keys()
        if not missing:
            return known
        measured = request.estimated_tokens
        if measured is None:
            return {**self._sizes.of(request.messages, request.tools, missing), **known}
        return {**dict.fromkeys(missing, Size(tokens=measured, upper=measured, lower=measured)), **known}

    def _cost(self, candidate: Candidate, needs: Needs, request: Request) -> Decimal | None:
        expected = self._config.expected_output_tokens
        asked = request.output_tokens or candidate.limits.output_reserve(needs.reserve)
        return estimated_cost(
            candidate.info,
            input_tokens=needs.sizes[candidate.family].tokens,
            cached_tokens=self._cached_tokens(candidate, request),
            output_tokens=min(expected, asked) if asked else expected,
        )

    def _cached_tokens(self, candidate: Candidate, request: Request) -> int:
        """What of the request stands in the prompt cache of a candidate."""
        known = self._kept.get(request.conversation)
        kept = request.kept or (known.name if known else "")
        if request.renew or candidate.name != kept:
            return 0
        if request.cached_tokens is not None:
            return request.cached_tokens
        return known.seen_tokens if known and known.name == kept else 0
