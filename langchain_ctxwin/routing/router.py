"""Model router: of the candidates that can take a request, the best relation of quality, cost and time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, convert_to_messages
from langchain_core.runnables import run_in_executor

from langchain_ctxwin.config import FileConfig, LiveConfig, RoutingConfig, group_of
from langchain_ctxwin.core.events import RouteEvent
from langchain_ctxwin.core.limits import ModelLimits, require_tokens
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.spending import CostComparison, Usage
from langchain_ctxwin.errors import ConfigError, NoModelFitsError, brief
from langchain_ctxwin.protocols import Clock, RequestCounter, TokenCounter
from langchain_ctxwin.routing.candidates import (
    Candidate,
    CandidateModel,
    Candidates,
    Instance,
    Registry,
    smallest_limits,
)
from langchain_ctxwin.routing.quality import Quality
from langchain_ctxwin.routing.request import THREAD, Request, RequestSizes, needed_capabilities
from langchain_ctxwin.util.memo import Lru

MIDDLE = 0.5
"""Presumed strength where prices say nothing."""

CENT = Decimal("0.01")

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

    cheapest_cost: Decimal | None = None
    """USD of the same request at the cheapest candidate that can take it; None when no price is known."""

    def event(self, *, before: str = "", comparison: CostComparison | None = None) -> RouteEvent:
        """Return the event of a change to this candidate from the one `before`, and the costs that decided it."""
        return RouteEvent(
            model=self.name,
            before=before,
            reason=self.reason,
            rejected=self.rejected,
            estimated_tokens=self.estimated_tokens,
            estimated_cost=self.estimated_cost,
            cheapest_cost=self.cheapest_cost,
            **({} if comparison is None else comparison.facts()),
        )

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
            "cheapest_cost": None if self.cheapest_cost is None else str(self.cheapest_cost),
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
        config: weights and margins; a `ConfigFile` is followed while the program runs.
        counter: counts requests for every candidate; by default the estimator of each one's tokenizer family does.
        quality: estimates chances and counts outcomes; by default one that starts without outcomes.
        clock: seconds since the epoch.

    Raises:
        ConfigError: there are no candidates, two have one name, or one is no model.
        UnknownModelError: the limits of a candidate are not known.

    Examples:
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
        config: RoutingConfig | FileConfig | LiveConfig | None = None,
        *,
        counter: TokenCounter | RequestCounter | None = None,
        quality: Quality | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._settings = RoutingConfig() if config is None else config
        if not isinstance(self.config, RoutingConfig):
            raise ConfigError(f"config={brief(config)}: pass a RoutingConfig, a FileConfig or a ConfigFile, or None")
        self.quality = quality or Quality()
        self.clock = clock
        self._candidates = Candidates(candidates, registry, clock=clock)
        self._sizes = RequestSizes(counter, headroom=lambda: self.config.headroom)
        self._kept: Lru[tuple[str, int]] = Lru(MAX_CONVERSATIONS)  # candidate, and tokens in its prompt cache
        self._asked: Lru[tuple[tuple[int, bytes], Route]] = Lru(
            MAX_CONVERSATIONS
        )  # the latest request, and who answered

    @property
    def config(self) -> RoutingConfig:
        """The settings that hold now; those of a `ConfigFile` follow the file."""
        settings: RoutingConfig = group_of(self._settings, "routing")
        return settings

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

    def info(self, name: str) -> ModelInfo | None:
        """Return what is known of one candidate; None when there is no candidate of this name."""
        return next((one.info for one in self.candidates if one.name == name), None)

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
        config: RoutingConfig | Mapping[str, Any] | None = None,
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
            config: weights for this request alone; a mapping changes some of the router's.

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
                config=settings_for(self.config, config),
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
        costs = [cost for one in can if (cost := self._cost(one, request)) is not None]
        route = self._chosen(can, candidates, request, rejected)
        return replace(route, cheapest_cost=min(costs, default=None))

    def _chosen(
        self, can: Sequence[Candidate], candidates: Sequence[Candidate], request: Request, rejected: Mapping[str, str]
    ) -> Route:
        """The candidate that is asked for or kept, else the best of those that can take the request."""
        for name, reason in self._wanted(request):
            wanted = next((one for one in can if one.name == name), None)
            if wanted is not None:
                others = {one.name: f"fits, but {name} is taken ({reason})" for one in can if one is not wanted}
                return self._route(wanted, request, reason=reason, rejected={**rejected, **others})
        return self._best(can, candidates, request, rejected)

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
        if largest is None:
            raise _no_model_fits(rejected)
        limit, size = largest.input_limit(request), largest.size(request)
        if not is_to_shrink and (size.lower > limit or limit <= request.above_tokens):
            raise _no_model_fits(rejected)
        rejected.pop(largest.name, None)
        others = {one.name: "fits, but its window is smaller" for one in candidates if one is not largest}
        reason = f"largest window: nothing else fits {size.tokens:,} tokens"
        return self._route(largest, request, reason=reason, rejected={**others, **rejected})

    def room(self, request: Request) -> tuple[str, int]:
        """Return who takes the largest input for such a request, and its tokens; "" and 0 when none can answer it."""
        candidates = self.candidates
        request = self._measured(request, candidates)
        able = self._able(candidates, request)
        awake = [one for one in able if not self._candidates.resting(one.name)]
        rooms = {one.name: one.input_limit(request) for one in awake or able}
        return max(rooms.items(), key=lambda room: room[1], default=("", 0))

    def input_limit(self, name: str, request: Request) -> int:
        """Return the input in tokens that a candidate is taken to have for a request."""
        return self._candidates.named(name).input_limit(replace(request, reserve=self._reserve(request)))

    def record(self, route: Route | Mapping[str, Any], success: bool) -> None:
        """Count an outcome, so that later chances follow it.

        Args:
            route: a route, or what `response_metadata["route"]` of an answer holds.
            success: whether the answer was good.
        """
        bucket, name = (route.bucket, route.name) if isinstance(route, Route) else (route["bucket"], route["model"])
        self.quality.record(bucket, name, success=success)

    def observed(self, route: Route, request: Request, *, failed: bool) -> None:
        """Count an answer that nobody judged; see `RoutingConfig.learn_outcomes`.

        A request of a thread that is sent once more as it was says that its answer before was no good.

        Args:
            route: who answered.
            request: what was asked.
            failed: whether the answer was refused, cut off or empty.
        """
        observe = getattr(self.quality, "observe", None)  # a quality of one's own may take judgements alone
        if not self.config.learn_outcomes or observe is None:
            return
        infos = [one.info for one in self.candidates]
        ranks = dict(zip((one.name for one in self.candidates), strengths(infos), strict=True))
        asked = (len(request.messages), hashlib.blake2b(request.text.encode("utf-8", "surrogatepass")).digest())
        before = self._asked.get(request.conversation)
        if before is not None and before[0] == asked and before[1].name in ranks:
            again = before[1]
            observe(again.bucket, again.name, strength=ranks[again.name], failed=True)
        if request.conversation.startswith(THREAD):
            self._asked.put(request.conversation, (asked, route))
        if route.name in ranks:
            observe(route.bucket, route.name, strength=ranks[route.name], failed=failed)

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

    def _config(self, request: Request) -> RoutingConfig:
        return request.config or self.config

    def _measured(self, request: Request, candidates: Sequence[Candidate]) -> Request:
        """The request with its size for every candidate, all capabilities that it needs, and what to reserve."""
        return replace(
            request,
            sizes=self._sizes.of(request, {one.family for one in candidates}),
            requires=needed_capabilities(request, self._config(request).required),
            reserve=self._reserve(request),
        )

    def _reserve(self, request: Request) -> int | None:
        """The tokens to keep for the answer; None leaves it to each candidate's own setting."""
        stated = (request.reserve, request.output_tokens, self._config(request).output_reserve)
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
        if self._config(request).sticky and not request.renew:
            yield request.kept or self.kept(request.conversation), "kept: the conversation's prompt cache"

    def _best(
        self, can: Sequence[Candidate], candidates: Sequence[Candidate], request: Request, rejected: Mapping[str, str]
    ) -> Route:
        """The candidate with the highest score; of equal ones the cheapest, then the one that was given first."""
        names = [one.name for one in candidates]
        ranks = strengths([one.info for one in candidates])
        chances = self.quality.chances(request.text, names, strengths=ranks, needs_tools=bool(request.tools))
        options = self._options(can, dict(zip(names, chances, strict=True)), request)
        enough = [option for option in options if option.chance >= (self._config(request).least_chance or 0.0)]
        ranked = sorted(enough, key=lambda option: (-option.score, _by_cost(option)))
        best = ranked[0] if ranked else max(options, key=lambda option: option.chance)
        left = {
            option.candidate.name: _why_left(option, best, is_enough=option in enough)
            for option in options
            if option is not best
        }
        others_fit = any(not self._why_not(one, request) for one in candidates if one not in can)
        reason = _reason(best, enough or [best], options, others_fit=others_fit)
        return self._route(best.candidate, request, reason=reason, rejected={**rejected, **left})

    def _options(self, can: Sequence[Candidate], chances: Mapping[str, float], request: Request) -> list[Option]:
        """Weigh the chance, cost and usual time of each candidate; costs and times count as shares of the largest.

        An unknown cost counts as the largest, because it may be anything; an unmeasured time as none, so that a model
        that was not yet asked gets its first measurement.
        """
        costs = {one.name: self._cost(one, request) for one in can}
        seconds = {one.name: self._candidates.seconds(one.name) or 0.0 for one in can}
        dearest = max((cost for cost in costs.values() if cost is not None), default=Decimal(0)) or Decimal(1)
        slowest = max(seconds.values()) or 1.0
        config, options = self._config(request), []
        for one in can:
            cost, chance = costs[one.name], chances[one.name]
            cost_share = 1.0 if cost is None else float(cost / dearest)
            score = config.quality * chance - config.cost * cost_share - config.latency * seconds[one.name] / slowest
            options.append(Option(candidate=one, chance=chance, cost=cost, score=score))
        return options

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
        """USD of one request; without a price for cached input, that costs what other input costs."""
        expected, tokens = self._config(request).expected_output_tokens, candidate.size(request).tokens
        asked = request.output_tokens or candidate.limits.output_reserve(request.reserve)
        output = min(expected, asked) if asked else expected
        cached = min(self._cached_tokens(candidate, request), tokens)
        return Usage(input_tokens=tokens, cached_tokens=cached, output_tokens=output).cost(candidate.info)

    def _cached_tokens(self, candidate: Candidate, request: Request) -> int:
        """What of the request stands in the prompt cache of a candidate."""
        name, seen_tokens = self._kept.get(request.conversation) or ("", 0)
        if request.renew or candidate.name != (request.kept or name):
            return 0
        if request.cached_tokens is not None:
            return request.cached_tokens
        return seen_tokens if candidate.name == name else 0


def settings_for(known: RoutingConfig, given: Any) -> RoutingConfig | None:
    """Return the settings that a call gives for itself; a mapping changes some of the known ones.

    Raises:
        ConfigError: it is no settings, or names none of them.
    """
    if given is None or isinstance(given, RoutingConfig):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"routing={brief(given)}: pass a RoutingConfig, or a mapping such as {{'cost': 0}}")
    return RoutingConfig(**{**known.model_dump(), **given})


def _messages(given: Any) -> list[AnyMessage]:
    if isinstance(given, Sequence) and all(isinstance(message, BaseMessage) for message in given):
        return list(given)
    return cast("list[AnyMessage]", convert_to_messages([given] if isinstance(given, str) else given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A candidate that can take the request, and what to expect of it."""

    candidate: Candidate
    chance: float
    """Probability of a good answer."""

    cost: Decimal | None
    """USD; None when a price is unknown."""

    score: float


def strengths(infos: Sequence[ModelInfo]) -> list[float]:
    """Return how strong each model presumably is, 0 to 1, by the rank of its price; in the middle when it is unknown.

    Models of one price share a rank. A price says little of one task, but is all that is known before any outcome.
    """
    prices = [info.input_price if info.output_price is None else info.output_price for info in infos]
    ranks = {price: rank for rank, price in enumerate(sorted({price for price in prices if price is not None}))}
    highest = max(1, len(ranks) - 1)
    return [MIDDLE if price is None or len(ranks) == 1 else ranks[price] / highest for price in prices]


def _by_cost(option: Option) -> tuple[bool, Decimal]:
    return option.cost is None, option.cost or Decimal(0)


def _reason(best: Option, enough: Sequence[Option], options: Sequence[Option], *, others_fit: bool) -> str:
    """Why the best option is taken; `others_fit` tells of candidates that failed, rest or are excluded."""
    chance, cheapest = f"{best.chance:.2f}", min(enough, key=_by_cost)
    if len(options) == 1:
        return f"the only one {'left' if others_fit else 'that fits'} (chance {chance})"
    if best.cost is not None and best.cost == cheapest.cost and len(enough) > 1:
        return f"cheapest that fits and is likely enough (chance {chance}, {_money(best.cost)})"
    if best.chance >= max(option.chance for option in options):
        return f"most likely to answer well (chance {chance}, {_money(best.cost)})"
    return f"best balance of chance ({chance}), cost ({_money(best.cost)}) and time"


def _why_left(option: Option, best: Option, *, is_enough: bool) -> str:
    expected = f"chance {option.chance:.2f}, {_money(option.cost)}"
    if not is_enough:
        return f"fits, but is not likely enough to answer well ({expected})"
    return f"fits, but scored {option.score:.3f} against {best.score:.3f} ({expected})"


def _money(cost: Decimal | None) -> str:
    """An amount in cents, or with two significant digits below one."""
    if cost is None:
        return "price unknown"
    return f"${cost:.2f}" if not cost or cost >= CENT else f"${cost:.2g}"


def _no_model_fits(rejected: Mapping[str, str]) -> NoModelFitsError:
    lines = "".join(f"\n  {name}: {reason}" for name, reason in rejected.items())
    return NoModelFitsError(
        f"none of {len(rejected)} candidates can take the request: shorten it, bind fewer tools or add one:{lines}",
        rejected=rejected,
    )
