"""Model router: of the candidates that can take a request, the best relation of quality, cost and time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, convert_to_messages
from langchain_core.runnables import run_in_executor

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.core.limits import ModelLimits, require_tokens
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.errors import NoModelFitsError
from langchain_ctxwin.protocols import Clock, RequestCounter, TokenCounter
from langchain_ctxwin.routing.candidates import (
    Candidate,
    CandidateModel,
    Candidates,
    Instance,
    Registry,
    smallest_limits,
)
from langchain_ctxwin.routing.choice import Option, choose, estimated_cost, strengths
from langchain_ctxwin.routing.quality import Quality
from langchain_ctxwin.routing.request import Request, RequestSizes, needed_capabilities
from langchain_ctxwin.util.memo import Lru

MAX_CONVERSATIONS = 10_000
"""Conversations whose model is remembered, about 2 MB; one that is forgotten is routed anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The choice of a model for one request."""

    model: Any
    """The candidate as it was given: a chat model, a `ModelInfo` or a name."""

    name: str
    info: ModelInfo
    reason: str
    """One sentence."""

    rejected: Mapping[str, str]
    """Every other candidate -> why it was not chosen."""

    estimated_tokens: int
    """Input tokens under the tokenizer of the chosen model."""

    estimated_cost: Decimal | None
    """USD, cached input and the usual answer included; None when a price is unknown."""

    bucket: str
    """Kind and difficulty of the task: where the outcome is counted."""

    def metadata(self, fallbacks: Sequence[str] = ()) -> dict[str, Any]:
        """Return the route as JSON values, for `response_metadata["route"]`.

        Args:
            fallbacks: what was tried before, in order.
        """
        return {
            "model": self.name,
            "reason": self.reason,
            "rejected": dict(self.rejected),
            "fallbacks": list(fallbacks),
            "estimated_tokens": self.estimated_tokens,
            "estimated_cost": None if self.estimated_cost is None else str(self.estimated_cost),
            "bucket": self.bucket,
        }


class ModelRouter:
    """Chooses one of several models for each request; thread-safe.

    First come the hard constraints: the request fits beside its answer, and the model can do what it asks for. Among
    the candidates that remain, the weights of the config decide between the chance of a good answer, the estimated
    cost and the usual time. A conversation stays with its model while that can take its requests, so that the
    provider's prompt cache is read.

    Args:
        candidates: chat models (also bound ones), `ModelInfo`s or names like `provider:name`; a mapping gives them
            names of your own.
        registry: states limits, prices and capabilities; without one, a model's profile does.
        config: weights and margins.
        counter: counts requests for every candidate; by default the estimator of each one's tokenizer family does.
        quality: estimates chances and counts outcomes; by default one that starts without outcomes.
        clock: seconds since the epoch.

    Raises:
        ConfigError: there are no candidates, two have one name, or one is no model.
        UnknownModelError: the limits of a candidate are not known.

    Example:
        >>> from langchain_ctxwin.core.model_info import ModelInfo
        >>> small = ModelInfo(name="small", context_window=8_192)
        >>> large = ModelInfo(name="large", context_window=128_000)
        >>> ModelRouter([small, large]).route("word " * 20_000).name
        'large'
    """

    def __init__(
        self,
        candidates: Sequence[CandidateModel] | Mapping[str, CandidateModel],
        registry: Registry | None = None,
        config: RoutingConfig | None = None,
        *,
        counter: TokenCounter | RequestCounter | None = None,
        quality: Quality | None = None,
        clock: Clock = time.time,
    ) -> None:
        self.config = config or RoutingConfig()
        self.quality = quality or Quality()
        self.clock = clock
        self._candidates = Candidates(candidates, registry, clock=clock)
        self._sizes = RequestSizes(counter, headroom=self.config.headroom)
        self._kept: Lru[tuple[str, int]] = Lru(MAX_CONVERSATIONS)  # candidate, and tokens in its prompt cache

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates with their facts as they are now."""
        return self._candidates.current()

    @property
    def limits(self) -> ModelLimits:
        """Limits under which a request fits every candidate."""
        return smallest_limits(self.candidates)

    def limits_of(self, name: str) -> ModelLimits:
        """Return the limits of one candidate, with what its provider was heard to say.

        Raises:
            ConfigError: there is no candidate of this name.
        """
        return self._candidates.named(name).limits

    def kept(self, conversation: str) -> str:
        """Return the name of the candidate that a conversation stays with; empty before its first request."""
        return (self._kept.get(conversation) or ("", 0))[0]

    def instance(self, name: str) -> Instance:
        """Return the chat model of a candidate and what is bound around it; one that is a mere name is made now.

        Raises:
            ConfigError: there is no candidate of this name, or no model can be made of it.
        """
        return self._candidates.instance(name)

    async def ainstance(self, name: str) -> Instance:
        """Like `instance`, without importing an integration on the event loop."""
        if self._candidates.is_made(name):
            return self._candidates.instance(name)
        return await run_in_executor(None, self._candidates.instance, name)

    def route(
        self,
        messages: Any,
        tools: Sequence[Any] = (),
        *,
        conversation: str = "",
        estimated_tokens: int | None = None,
        output_tokens: int | None = None,
        requires: Iterable[str] = (),
        exclude: Collection[str] | Mapping[str, str] = (),
        prefer: str = "",
        renew: bool = False,
    ) -> Route:
        """Choose a model for a request.

        Args:
            messages: the request, in any form that a chat model takes.
            tools: the tools it offers.
            conversation: key of the conversation that stays with its model; empty routes the request by itself.
            estimated_tokens: the size of the request when it was measured elsewhere, as an upper bound.
            output_tokens: what the call asks for, when it says so.
            requires: capabilities that the model must have, e.g. `structured_output`.
            exclude: candidates that may not be chosen; as a mapping with the reasons.
            prefer: candidate to take if it can do what the request needs, whatever its size.
            renew: choose anew, because the conversation's prefix changed anyway.

        Raises:
            NoModelFitsError: no candidate can take the request; the message lists each of them and why.
            ConfigError: there is no candidate as preferred, or a number of tokens is none.
        """
        require_tokens("estimated_tokens", estimated_tokens, optional=True)
        require_tokens("output_tokens", output_tokens, minimum=1, optional=True)
        return self.decide(
            Request(
                messages=_messages(messages),
                tools=tools,
                conversation=conversation,
                requires=tuple(requires),
                exclude=exclude if isinstance(exclude, Mapping) else dict.fromkeys(exclude, "excluded by the caller"),
                estimated_tokens=estimated_tokens,
                output_tokens=output_tokens,
                prefer=prefer,
                renew=renew,
            )
        )

    def decide(self, request: Request) -> Route:
        """Choose a model for a request; see `route`."""
        candidates = self.candidates
        request = self._measured(request, candidates)
        rejected = self._unfit(candidates, request)
        can = [one for one in candidates if one.name not in rejected]
        if not can:
            raise _no_model_fits(rejected)
        resting = {one.name: why for one in can if (why := self._candidates.resting(one.name))}
        if len(resting) < len(can):  # when all rest, the best of them is better than none
            rejected |= resting
            can = [one for one in can if one.name not in resting]
        for name, reason in self._wanted(request):
            wanted = next((one for one in can if one.name == name), None)
            if wanted is not None:
                others = {one.name: f"fits, but {name} is taken ({reason})" for one in can if one is not wanted}
                return self._route(wanted, request, reason=reason, rejected={**rejected, **others})
        others_fit = any(not self._why_not(one, request) for one in candidates if one not in can)
        best, reason, left = choose(self._options(can, candidates, request), self.config, others_fit=others_fit)
        return self._route(best, request, reason=reason, rejected={**rejected, **left})

    def largest(self, request: Request, *, is_to_shrink: bool = False) -> Route:
        """Choose the largest window, for a request of which no candidate is sure that it fits: it may, or be refused.

        Args:
            request: the request.
            is_to_shrink: it will be made to fit, so that its size now says nothing.

        Raises:
            NoModelFitsError: it surely does not fit, or no candidate can do what it asks for.
        """
        candidates = self.candidates
        request = self._measured(request, candidates)
        rejected = self._unfit(candidates, request)
        largest = max(self._able(candidates, request), key=lambda one: one.input_limit(request), default=None)
        if largest is None or (not is_to_shrink and largest.is_surely_too_small(request)):
            raise _no_model_fits(rejected)
        rejected.pop(largest.name, None)
        others = {one.name: "fits, but its window is smaller" for one in candidates if one is not largest}
        reason = f"largest window: nothing else fits {largest.size(request).tokens:,} tokens"
        return self._route(largest, request, reason=reason, rejected={**others, **rejected})

    def room(self, request: Request) -> tuple[str, int]:
        """Return who takes the largest input for such a request, and its tokens; "" and 0 when none can answer it."""
        candidates = self.candidates
        request = self._measured(request, candidates)
        able = self._able(candidates, request)
        awake = [one for one in able if not self._candidates.resting(one.name)]
        rooms = {one.name: one.input_limit(request) for one in awake or able}
        return max(rooms.items(), key=lambda room: room[1], default=("", 0))

    def believed_limit(self, name: str, request: Request) -> int:
        """Return the input in tokens that a candidate is taken to have for a request, at least one."""
        limits = self.limits_of(name)
        reserve = limits.output_reserve(self._reserve(request))
        return limits.input_limit(min(reserve, (limits.context_window or reserve + 1) - 1))

    def record(self, route: Route | Mapping[str, Any], success: bool) -> None:
        """Count an outcome, so that later chances follow it.

        Args:
            route: a route, or what `response_metadata["route"]` of an answer holds.
            success: whether the answer was good.
        """
        bucket, name = (route.bucket, route.name) if isinstance(route, Route) else (route["bucket"], route["model"])
        self.quality.record(bucket, name, success=success)

    def answered(self, route: Route, conversation: str, seconds: float, *, tokens: int = 0) -> None:
        """Take up that a candidate answered: it is well, the conversation stays with it, and it takes such an input."""
        self._candidates.answered(route.name, seconds, tokens=tokens)
        self._keep(conversation, route)

    def failed(self, name: str, what: str) -> None:
        """Take up that a candidate is in trouble: it is passed over for a while."""
        self._candidates.failed(name, what, rest_seconds=self.config.rest_seconds)

    def refused(self, route: Route, overflow: ContextOverflow) -> None:
        """Take up that a request was too large for a candidate: what was said about its limit counts from now on."""
        reserve = self.config.output_reserve
        self._candidates.refused(route.name, overflow, tokens=route.estimated_tokens, output_reserve=reserve)

    def _measured(self, request: Request, candidates: Sequence[Candidate]) -> Request:
        """The request with its size for every candidate, all capabilities that it needs, and what to reserve."""
        return replace(
            request,
            sizes=self._sizes.of(request, {one.family for one in candidates}),
            requires=needed_capabilities(request, self.config.required),
            reserve=self._reserve(request),
        )

    def _reserve(self, request: Request) -> int | None:
        """The tokens to keep for the answer; None leaves it to each candidate's own setting."""
        stated = (request.reserve, request.output_tokens, self.config.output_reserve)
        return next((tokens for tokens in stated if tokens is not None), None)

    def _today(self) -> date:
        return datetime.fromtimestamp(self.clock(), tz=UTC).date()

    def _why_not(self, candidate: Candidate, request: Request) -> str:
        return candidate.unable(request, self._today()) or candidate.too_small(request)

    def _unfit(self, candidates: Sequence[Candidate], request: Request) -> dict[str, str]:
        """The candidates that cannot take the request, and why; the size is not held against a preferred one."""
        reasons = {}
        for one in candidates:
            is_preferred = one.name == request.prefer
            why = one.unable(request, self._today()) if is_preferred else self._why_not(one, request)
            reasons[one.name] = request.exclude.get(one.name) or why
        return {name: reason for name, reason in reasons.items() if reason}

    def _able(self, candidates: Sequence[Candidate], request: Request) -> list[Candidate]:
        """The candidates that can do what the request asks for, whatever its size."""
        today = self._today()
        return [one for one in candidates if one.name not in request.exclude and not one.unable(request, today)]

    def _wanted(self, request: Request) -> Iterable[tuple[str, str]]:
        """Names that are taken if they can be, with the reason."""
        if request.prefer:
            yield self._candidates.named(request.prefer).name, request.prefer_reason or "asked for by name"
        if self.config.sticky and not request.renew:
            yield request.kept or self.kept(request.conversation), "kept: the conversation's prompt cache"

    def _options(self, can: Sequence[Candidate], candidates: Sequence[Candidate], request: Request) -> list[Option]:
        """What to expect of each candidate that can take the request; its strength is a rank among all of them."""
        names = [one.name for one in candidates]
        ranks = strengths([one.info for one in candidates])
        chances = self.quality.chances(request.text, names, strengths=ranks, needs_tools=bool(request.tools))
        by_name = dict(zip(names, chances, strict=True))
        return [
            Option(
                candidate=one,
                chance=by_name[one.name],
                cost=self._cost(one, request),
                seconds=self._candidates.seconds(one.name),
            )
            for one in can
        ]

    def _route(self, candidate: Candidate, request: Request, *, reason: str, rejected: Mapping[str, str]) -> Route:
        """Write down a decision; the conversation stays with the candidate from now on."""
        route = Route(
            model=candidate.given,
            name=candidate.name,
            info=candidate.info,
            reason=reason,
            rejected=rejected,
            estimated_tokens=candidate.size(request).tokens,
            estimated_cost=self._cost(candidate, request),
            bucket=self.quality.bucket(request.text, needs_tools=bool(request.tools)),
        )
        self._keep(request.conversation, route)
        return route

    def _keep(self, conversation: str, route: Route) -> None:
        if conversation:
            self._kept.put(conversation, (route.name, route.estimated_tokens))

    def _cost(self, candidate: Candidate, request: Request) -> Decimal | None:
        expected = self.config.expected_output_tokens
        asked = request.output_tokens or candidate.limits.output_reserve(request.reserve)
        return estimated_cost(
            candidate.info,
            input_tokens=candidate.size(request).tokens,
            cached_tokens=self._cached_tokens(candidate, request),
            output_tokens=min(expected, asked) if asked else expected,
        )

    def _cached_tokens(self, candidate: Candidate, request: Request) -> int:
        """What of the request stands in the prompt cache of a candidate."""
        name, seen_tokens = self._kept.get(request.conversation) or ("", 0)
        if request.renew or candidate.name != (request.kept or name):
            return 0
        if request.cached_tokens is not None:
            return request.cached_tokens
        return seen_tokens if candidate.name == name else 0


def _messages(given: Any) -> list[AnyMessage]:
    if isinstance(given, Sequence) and all(isinstance(message, BaseMessage) for message in given):
        return list(given)
    return cast("list[AnyMessage]", convert_to_messages([given] if isinstance(given, str) else given))


def _no_model_fits(rejected: Mapping[str, str]) -> NoModelFitsError:
    lines = "".join(f"\n  {name}: {reason}" for name, reason in rejected.items())
    return NoModelFitsError(
        f"none of {len(rejected)} candidates can take the request: shorten it, bind fewer tools or add one:{lines}",
        rejected=rejected,
    )
