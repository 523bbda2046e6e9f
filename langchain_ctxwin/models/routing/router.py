"""Which model takes this request? What fits first, then the best relation of quality, cost and time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, convert_to_messages
from langchain_core.runnables import run_in_executor

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.core.limits import ModelLimits, require_tokens
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.errors import NoModelFitsError
from langchain_ctxwin.models.routing import fitting
from langchain_ctxwin.models.routing.candidates import Candidate, Given, Registry
from langchain_ctxwin.models.routing.expecting import Expectations
from langchain_ctxwin.models.routing.experience import Experience
from langchain_ctxwin.models.routing.fitting import Needs
from langchain_ctxwin.models.routing.instances import Instance, Instances
from langchain_ctxwin.models.routing.objective import choose
from langchain_ctxwin.models.routing.quality import Quality
from langchain_ctxwin.models.routing.request import Request
from langchain_ctxwin.models.routing.roster import Roster, smallest_limits
from langchain_ctxwin.models.routing.route import Route
from langchain_ctxwin.models.routing.sizing import Sizes
from langchain_ctxwin.protocols import Clock, RequestCounter, TokenCounter


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
        candidates: Sequence[Given] | Mapping[str, Given],
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
        self.experience = Experience(clock)
        self._roster = Roster(candidates, registry, self.experience, clock=clock)
        sizes = Sizes(counter, headroom=self.config.headroom)
        self._expect = Expectations(self.config, sizes, self.quality, self.experience, clock=clock)
        self._instances = Instances()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates with their facts as they are now."""
        return self._roster.current()

    @property
    def limits(self) -> ModelLimits:
        """Limits under which a request fits every candidate."""
        return smallest_limits(self.candidates)

    def limits_of(self, name: str) -> ModelLimits:
        """Return the limits of one candidate, with what its provider was heard to say.

        Raises:
            ConfigError: there is no candidate of this name.
        """
        return self._roster.named(name).limits

    def kept(self, conversation: str) -> str:
        """Return the name of the candidate that a conversation stays with; empty before its first request."""
        return self._expect.kept(conversation)

    def instance(self, name: str) -> Instance:
        """Return the chat model of a candidate and what is bound around it; one that is a mere name is made now.

        Raises:
            ConfigError: there is no candidate of this name, or no model can be made of it.
        """
        return self._instances.of(self._roster.named(name))

    async def ainstance(self, name: str) -> Instance:
        """Like `instance`, without importing an integration on the event loop."""
        candidate = self._roster.named(name)
        if self._instances.is_made(candidate):
            return self._instances.of(candidate)
        return await run_in_executor(None, self._instances.of, candidate)

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
        needs = self._expect.needs(candidates, request)
        left = _unfit(candidates, needs, request)
        can = [one for one in candidates if one.name not in left]
        if not can:
            raise _no_model_fits(left)
        resting = {one.name: why for one in can if (why := self.experience.resting(one.name))}
        if len(resting) < len(can):  # when all rest, the best of them is better than none
            left |= resting
            can = [one for one in can if one.name not in resting]
        for name, reason in self._wanted(request):
            found = next((one for one in can if one.name == name), None)
            if found is not None:
                others = {one.name: f"fits, but {name} is taken ({reason})" for one in can if one is not found}
                return self._expect.route(found, needs, request, reason=reason, rejected={**left, **others})
        others_fit = any(not fitting.unfit(one, needs) for one in candidates if one not in can)
        choice = choose(self._expect.options(can, candidates, needs, request), self.config, others_fit=others_fit)
        return self._expect.route(
            choice.best.candidate, needs, request, reason=choice.reason, rejected={**left, **choice.left}
        )

    def largest(self, request: Request, *, is_to_shrink: bool = False) -> Route:
        """Choose the largest window, for a request of which no candidate is sure that it fits: it may, or be refused.

        Args:
            request: the request.
            is_to_shrink: it will be made to fit, so that its size now says nothing.

        Raises:
            NoModelFitsError: it surely does not fit, or no candidate can do what it asks for.
        """
        candidates = self.candidates
        needs = self._expect.needs(candidates, request)
        left = _unfit(candidates, needs, request)
        able = [one for one in candidates if one.name not in request.exclude and not fitting.unable(one, needs)]
        largest = max(able, key=lambda one: fitting.input_limit(one, needs), default=None)
        if largest is None or (not is_to_shrink and fitting.surely_too_small(largest, needs)):
            raise _no_model_fits(left)
        left.pop(largest.name, None)
        tokens = needs.sizes[largest.family].tokens
        others = {one.name: "fits, but its window is smaller" for one in candidates if one is not largest}
        reason = f"largest window: nothing else fits {tokens:,} tokens"
        return self._expect.route(largest, needs, request, reason=reason, rejected={**others, **left})

    def room(self, request: Request) -> tuple[str, int]:
        """Return who takes the largest input for such a request, and its tokens; "" and 0 when none can answer it."""
        candidates = self.candidates
        needs = self._expect.needs(candidates, request)
        able = [one for one in candidates if one.name not in request.exclude and not fitting.unable(one, needs)]
        awake = [one for one in able if not self.experience.resting(one.name)]
        rooms = {one.name: fitting.input_limit(one, needs) for one in awake or able}
        return max(rooms.items(), key=lambda room: room[1], default=("", 0))

    def believed_limit(self, name: str, request: Request) -> int:
        """Return the input in tokens that a candidate is taken to have for a request, at least one."""
        limits = self.limits_of(name)
        reserve = limits.output_reserve(self._expect.reserve(request))
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
        self.experience.answered(route.name, seconds, tokens=tokens)
        self._roster.accepted(route.name, tokens)
        self._expect.keep(conversation, route)

    def failed(self, name: str, what: str) -> None:
        """Take up that a candidate is in trouble: it is passed over for a while."""
        self.experience.failed(name, what, rest_seconds=self.config.rest_seconds)

    def refused(self, route: Route, overflow: ContextOverflow) -> None:
        """Take up that a request was too large for a candidate: what was said about its limit counts from now on."""
        self._roster.refused(route.name, overflow, tokens=route.estimated_tokens)

    def _wanted(self, request: Request) -> Iterable[tuple[str, str]]:
        """Names that are taken if they can be, with the reason."""
        if request.prefer:
            yield self._roster.named(request.prefer).name, request.prefer_reason or "asked for by name"
        if self.config.sticky and not request.renew:
            yield request.kept or self.kept(request.conversation), "kept: the conversation's prompt cache"


def _messages(given: Any) -> list[AnyMessage]:
    if isinstance(given, Sequence) and all(isinstance(message, BaseMessage) for message in given):
        return list(given)
    return cast("list[AnyMessage]", convert_to_messages([given] if isinstance(given, str) else given))


def _unfit(candidates: Sequence[Candidate], needs: Needs, request: Request) -> dict[str, str]:
    """Return the candidates that cannot take the request, and why; the size is not held against a preferred one."""
    checks = {one.name: fitting.unable if one.name == request.prefer else fitting.unfit for one in candidates}
    reasons = {one.name: request.exclude.get(one.name) or checks[one.name](one, needs) for one in candidates}
    return {name: reason for name, reason in reasons.items() if reason}


def _no_model_fits(rejected: Mapping[str, str]) -> NoModelFitsError:
    lines = "".join(f"\n  {name}: {reason}" for name, reason in rejected.items())
    return NoModelFitsError(
        f"none of {len(rejected)} candidates can take the request: shorten it, bind fewer tools or add one:{lines}",
        rejected=rejected,
    )
