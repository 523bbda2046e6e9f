"""Model router: of the candidates that can take a request and are strong enough for it, the cheapest."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, convert_to_messages

from langchain_ctxwin.config import FileConfig, LiveConfig, RoutingConfig, group_of
from langchain_ctxwin.core.limits import (
    ModelLimits,
    for_everybody,
    is_possible,
    least,
    lowered,
    only_model,
    stated_limit,
)
from langchain_ctxwin.core.model_info import ModelInfo, Usage
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.tool_schemas import listed
from langchain_ctxwin.errors import (
    ConfigError,
    NoModelFitsError,
    UnknownModelError,
    expect,
)
from langchain_ctxwin.models.registry import ModelRegistry
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.routing.candidates import (
    ENOUGH,
    NEEDED,
    Candidate,
    CandidateModel,
    Classify,
    Complexity,
    Instance,
    RouteRequest,
    bucket_of,
    candidate_of,
    candidates_of,
    chance_of,
    counted,
    is_named,
    judged,
    last_question,
    made_model,
    needed_capabilities,
    smallest_limits,
    strengths,
)
from langchain_ctxwin.util.memo import Lru

# of a usual answer, a few paragraphs or two tool calls, for the estimated cost
EXPECTED_OUTPUT_TOKENS = 400
MAX_CONVERSATIONS = 10_000  # whose model is remembered, about 2 MB; one that is forgotten is routed anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The choice of a model for one request."""

    model: Any
    """The candidate as it was given: a chat model, a `ModelInfo` or a name."""

    name: str
    info: ModelInfo
    reason: str
    rejected: Mapping[str, str]
    """Every other candidate -> why it was not chosen."""

    estimated_tokens: int
    """Input tokens under the tokenizer of the chosen model."""

    estimated_cost: Decimal | None
    """USD with a usual answer, when nothing is in a cache; None when a price is unknown."""

    bucket: str
    """Kind and complexity of the task: where the outcome is counted."""

    chance: float
    """Chance of a good answer, by the strength of the model and the outcomes in this bucket."""

    def metadata(self, fallbacks: Sequence[str] = ()) -> dict[str, Any]:
        """Return the route, and what was tried before, as JSON values: `response_metadata["route"]` of an answer."""
        cost = self.estimated_cost
        return {
            "model": self.name,
            "reason": self.reason,
            "rejected": dict(self.rejected),
            "fallbacks": list(fallbacks),
            "estimated_tokens": self.estimated_tokens,
            "estimated_cost": None if cost is None else str(cost),
            "bucket": self.bucket,
        }


class ModelRouter:
    """Chooses one of several models for each request; thread-safe.

    First come the hard constraints: the request fits beside its answer, and the model can do what it asks for. Then its
    complexity, which the caller states or the router judges, says how strong a model it needs: recorded outcomes of
    this kind of task may say otherwise. Of those that are strong enough the cheapest is taken. A conversation stays
    with its model while that can take its requests, so that the provider's prompt cache is read; it moves up to a
    stronger one for a request of high complexity.

    Args:
        candidates: chat models (also bound ones), `ModelInfo`s or names like `provider:name`; a mapping gives them
            names of your own.
        registry: states limits, prices and capabilities beside a model's profile; by default a `ModelRegistry()`.
        config: weights and habits; a `ConfigFile` is followed while the program runs.
        counter: counts requests for every candidate; by default the estimator of each one's tokenizer family does.
        classify: judges the complexity of a request, a function `(messages, tools) -> "low"`, `"medium"` or `"high"`.
        strengths: of candidates by name, from 0 to 1; by default the rank of their prices.

    Raises:
        ConfigError: there are no candidates, two have one name, one is no model, or the registry is none.
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
        registry: ModelRegistry | None = None,
        config: RoutingConfig | FileConfig | LiveConfig | None = None,
        *,
        counter: TokenCounter | None = None,
        classify: Classify = judged,
        strengths: Mapping[str, float] | None = None,
    ) -> None:
        self._settings = RoutingConfig() if config is None else config
        group_of(self._settings, "routing")  # refuses what holds no weights
        if registry is None:
            registry = ModelRegistry()
        wanted = "a ModelRegistry, or None for what comes with the package"
        self._registry = expect(registry, ModelRegistry, "registry", wanted)
        self._classify = classify
        self._strengths = strengths or {}
        self._counter = counter
        self._read = candidates_of(candidates, self._registry)
        # What happened so far; losing it costs a few refused requests.
        # limits by candidate and conversation
        self._learned: Lru[int] = Lru(MAX_CONVERSATIONS)
        self._last_candidates: Lru[str] = Lru(MAX_CONVERSATIONS)
        # good answers and all of them, by kind of task and candidate
        self._outcomes: dict[tuple[str, str], tuple[int, int]] = {}
        self._made: dict[str, BaseChatModel] = {}
        self._lock = threading.Lock()

    @property
    def config(self) -> RoutingConfig:
        """The settings that hold now; those of a `ConfigFile` follow the file."""
        settings: RoutingConfig = group_of(self._settings, "routing")
        return settings

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates with their facts, as they were at the latest choice."""
        return self.candidates_of("")

    def candidates_of(self, conversation: str) -> tuple[Candidate, ...]:
        """Return the candidates with the limits that hold for a conversation: some were stated to it alone."""
        return tuple(self.candidate(one.name, conversation) for one in self._read)

    @property
    def limits(self) -> ModelLimits:
        """Limits under which a request fits every candidate."""
        return smallest_limits(self.candidates)

    def candidate(self, name: str, conversation: str = "") -> Candidate:
        """Return one candidate, with the limits that its provider stated to a conversation.

        Raises:
            ConfigError: no candidate has this name.
        """
        for one in self._read:
            if one.name == name:
                learned = self._learned.get((conversation, name))
                return replace(one, limits=lowered(one.limits, learned))
        names = ", ".join(one.name for one in self._read)
        raise ConfigError(f"route={name!r} is no candidate: use one of {names}")

    def kept(self, conversation: str) -> str:
        """Return the name of the candidate that a conversation stays with; empty before its first request."""
        return (conversation and self._last_candidates.get(conversation)) or ""

    def instance(self, name: str) -> Instance:
        """Return the chat model of a candidate and what is bound around it; `ConfigError` when it cannot be made.

        One that is a mere name is made now, which imports its integration.
        """
        candidate = self.candidate(name)
        if not is_named(candidate.model):
            return only_model(candidate.model) or (candidate.model, {})
        if name not in self._made:
            self._made[name] = made_model(candidate)
        return self._made[name], {}

    def route(
        self,
        messages: Any,
        tools: Sequence[Any] = (),
        *,
        complexity: Complexity | None = None,
        conversation: str = "",
        prefer: str = "",
    ) -> Route:
        """Choose a model for a request.

        Args:
            messages: the request, in any form that a chat model takes.
            tools: the tools it offers.
            complexity: how much it asks of a model: `low`, `medium` or `high`; None lets the router judge.
            conversation: key of the conversation that stays with its model; empty routes the request by itself.
            prefer: candidate to take if it can do what the request needs, whatever its size.

        Raises:
            NoModelFitsError: no candidate can take the request; the message lists each of them and why.
            ConfigError: there is no candidate as preferred, or the complexity is no word.
        """
        converted = convert_to_messages(
            [messages] if isinstance(messages, str) else messages
        )
        return self.decide(
            RouteRequest(
                messages=cast("list[AnyMessage]", converted),
                tools=listed(tools),
                conversation=conversation,
                prefer=prefer,
                complexity=complexity,
            )
        )

    def decide(self, request: RouteRequest) -> Route:
        """Choose a model for a request; see `route`.

        Where no candidate is sure to take it, the largest window may still do so, or be refused.
        """
        candidates, request = self._measured(request)
        rejected = self._unfit(candidates, request)
        able = [one for one in candidates if one.name not in rejected]
        wanted = self._wanted(able, request)
        if not able:
            chosen, reason = _largest(candidates, request, rejected)
            del rejected[chosen.name]
        else:
            chosen, reason = wanted or self._best(able, request)
        for one in able:
            why = "costs no less"
            if one.chance < ENOUGH:
                why = f"is not strong enough for {request.judged} complexity"
            if wanted:
                why = f"{chosen.name} is taken ({reason})"
            if one is not chosen:
                rejected[one.name] = f"fits, but {why}"
        self._last_candidates.put(request.conversation, chosen.name)
        return Route(
            model=chosen.model,
            name=chosen.name,
            info=chosen.info,
            reason=reason,
            rejected=rejected,
            estimated_tokens=request.sizes[chosen.family].tokens,
            estimated_cost=_cost(chosen, request),
            bucket=_bucket(request),
            chance=chosen.chance,
        )

    def record(self, route: Route | Mapping[str, Any], success: bool) -> None:
        """Count an outcome, so that later chances follow it.

        Args:
            route: a route, or what `response_metadata["route"]` of an answer holds.
            success: whether the answer was good.
        """
        expect(success, bool, "success", "True or False")
        about = route.metadata() if isinstance(route, Route) else route
        key = about["bucket"], about["model"]
        with self._lock:
            good, every = self._outcomes.get(key, (0, 0))
            self._outcomes[key] = good + success, every + 1

    def answered(self, route: Route, conversation: str, *, tokens: int = 0) -> None:
        """Note that a candidate answered: its conversation stays with it, and it takes this input."""
        own = conversation, route.name
        learned = self._learned.get(own)
        if learned and not is_possible(learned, tokens):
            self._learned.pop(own, None)
        self._last_candidates.put(conversation, route.name)

    def refused(
        self, route: Route, overflow: ContextOverflow, conversation: str = ""
    ) -> None:
        """Note that a request was too large for a candidate: the stated limit holds for its conversation.

        A registry with a `LearnedSource` learns it, too. Nothing follows where no limit was stated.
        """
        refusing = self.candidate(route.name)
        limit = stated_limit(overflow)
        by_field = for_everybody(limit, refusing.limits)
        if limit is None or not by_field:
            return
        own = conversation, route.name
        self._learned.put(own, least(self._learned.get(own), limit) or limit)
        if self._registry.is_shared_memory:
            self._registry.learn(refusing.info, by_field)

    def _read_again(self, one: Candidate) -> Candidate:
        """A candidate with its facts as they are now; a model that the registry no longer knows keeps its facts."""
        try:
            return candidate_of(one.name, one.model, self._registry)
        except UnknownModelError:
            return one

    def _measured(self, request: RouteRequest) -> tuple[list[Candidate], RouteRequest]:
        """The candidates as they are now with their chances, and the request with all that it needs of them."""
        self._read = tuple(map(self._read_again, self._read))
        candidates = self.candidates_of(request.conversation)
        sizes = dict(request.sizes)
        for family in {one.family for one in candidates} - {*sizes}:
            sizes[family] = counted(request, self._counter, family)
        request = replace(
            request,
            sizes=sizes,
            requires=needed_capabilities(request),
            judged=self._judged(request),
        )
        ranks = strengths([one.info for one in candidates])
        liked = []
        for one, rank in zip(candidates, ranks, strict=True):
            strength = self._strengths.get(one.name, rank)
            outcomes = self._outcomes.get((_bucket(request), one.name), (0, 0))
            chance = chance_of(strength, NEEDED[request.judged], *outcomes)
            liked.append(replace(one, chance=chance))
        return liked, request

    def _unfit(
        self, candidates: Sequence[Candidate], request: RouteRequest
    ) -> dict[str, str]:
        """The candidates that cannot take the request, and why; the size is not held against a preferred one."""
        reasons = {}
        for one in candidates:
            why = one.unable(request)
            if not why and one.name != request.prefer:
                why = one.too_small(request)
            if why:
                reasons[one.name] = why
        return reasons

    def _judged(self, request: RouteRequest) -> Complexity:
        """The complexity that counts: as stated for the request, else for all of them, else as judged."""
        complexity = request.complexity or self.config.complexity
        complexity = complexity or self._classify(request.messages, request.tools)
        if complexity not in NEEDED:
            raise ConfigError(
                f"complexity={complexity!r}: give one of {', '.join(NEEDED)}, or None to have it judged"
            )
        return complexity

    def _wanted(
        self, able: Sequence[Candidate], request: RouteRequest
    ) -> tuple[Candidate, str] | None:
        """The candidate that the caller prefers, else that of the conversation, if it can take the request."""
        by_name = {one.name: one for one in able}
        if request.prefer and self.candidate(request.prefer).name in by_name:
            reason = request.prefer_reason or "asked for by name"
            return by_name[request.prefer], reason
        current = by_name.get(request.kept or self.kept(request.conversation))
        if current is None:
            return None
        complexity = request.complexity or self.config.complexity
        may_leave = complexity is not None or request.judged == "high"
        has_stronger = any(one.chance >= ENOUGH for one in able)
        if may_leave and has_stronger and current.chance < ENOUGH:
            return None
        return current, "kept: the conversation's prompt cache"

    def _best(
        self, able: Sequence[Candidate], request: RouteRequest
    ) -> tuple[Candidate, str]:
        """The best balance of chance and cost; an unknown cost counts as the largest."""
        costs = {one.name: _cost(one, request) for one in able}
        dearest = max(filter(None, costs.values()), default=Decimal(1))
        config, asks = self.config, f"{request.judged} complexity"

        def rank(one: Candidate) -> float:
            cost = costs[one.name]
            share = 1.0 if cost is None else float(cost / dearest)
            return config.cost * share - config.quality * min(one.chance, ENOUGH)

        chosen = min(able, key=rank)
        if len(able) == 1:
            return chosen, f"the only one that fits ({asks})"
        if chosen.chance >= ENOUGH:
            return chosen, f"cheapest that is strong enough for {asks}"
        return chosen, f"best balance of chance and cost for {asks}"


def _bucket(request: RouteRequest) -> str:
    return bucket_of(
        last_question(request.messages),
        request.judged,
        needs_tools=bool(request.tools),
    )


def _cost(candidate: Candidate, request: RouteRequest) -> Decimal | None:
    """USD of one request that is in no cache, with a usual answer."""
    tokens = request.sizes[candidate.family].tokens
    usage = Usage(input_tokens=tokens, output_tokens=EXPECTED_OUTPUT_TOKENS)
    return usage.cost(candidate.info)


def _largest(
    candidates: Sequence[Candidate], request: RouteRequest, rejected: Mapping[str, str]
) -> tuple[Candidate, str]:
    """The largest window, for a request that it may take, or that is made smaller for it."""
    able = [one for one in candidates if not one.unable(request)]
    for one in sorted(able, key=lambda one: -one.input_limit(request))[:1]:
        size, limit = request.sizes[one.family], one.input_limit(request)
        if limit and (request.shrinks or size.lower <= limit):
            return one, f"largest window: nothing else fits {size.tokens:,} tokens"
    lines = "".join(f"\n  {name}: {why}" for name, why in rejected.items())
    raise NoModelFitsError(
        f"none of {len(rejected)} candidates can take the request: shorten it, bind fewer tools or add one:{lines}"
    )
