"""Candidates of a router, what a request asks of them, how well each may answer, and how one is made of a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables.config import ensure_config

from langchain_ctxwin.core.limits import (
    LIMIT_FIELDS,
    ModelLimits,
    only_model,
    smallest,
)
from langchain_ctxwin.core.model_info import ModelInfo, family_of, model_name
from langchain_ctxwin.core.provider_blocks import MEDIA_TYPES, compact_json, digest
from langchain_ctxwin.core.tool_schemas import FRAMING, name_of
from langchain_ctxwin.core.turns import as_messages
from langchain_ctxwin.errors import ConfigError, UnknownModelError, expect
from langchain_ctxwin.models.registry import ModelRegistry
from langchain_ctxwin.pricing import Pricing
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.util.chat_models import chat_model_named

CandidateModel = Any  # as the caller passes it: a chat model, a binding around one, a `ModelInfo`, or `provider:name`
# a chat model and the arguments bound around it
Instance = tuple[BaseChatModel, dict[str, Any]]

# What a model has to be able to take for each kind of media; files are sent as text by some integrations.
MEDIA_CAPABILITIES = {"image": "images", "audio": "audio", "video": "video"}

HEADROOM = 1.2  # factor on counts of a plain callable, which says nothing about how far off it may be
THREAD = "thread:"  # begins the key of a conversation that is a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model that may answer."""

    name: str
    model: CandidateModel  # a chat model, its facts, or its name
    info: ModelInfo
    limits: ModelLimits  # with the output that its requests are set to ask for
    family: str  # of its tokenizer
    chance: float = 1.0  # that it answers the request well

    def input_limit(self, request: RouteRequest) -> int:
        """Return the input tokens that it takes beside its answer; 0 when the answer alone fills its window."""
        try:
            return self.limits.room(request.answer_tokens)
        except ConfigError:  # the reserve leaves no input: a fact about this candidate, not a fault of the request
            return 0

    def unable(self, request: RouteRequest) -> str:
        """Return why it cannot take a measured request, whatever its size; empty when it can, or nothing is known."""
        if why := request.exclude.get(self.name):
            return why
        named = self.info.capabilities
        for capability in request.requires:
            if named and capability not in named:
                return f"cannot do {capability!r}, which the request needs"
        largest, wanted = self.limits.max_output_tokens, request.output_tokens
        if largest and wanted and wanted > largest:
            return f"can write {largest:,} tokens, the request asks for {wanted:,}"
        return ""

    def too_small(self, request: RouteRequest) -> str:
        """Return by how much a measured request is too large; empty when it fits."""
        limit, size = self.input_limit(request), request.sizes[self.family]
        if limit and size.upper <= limit:
            return ""
        return f"may need {size.upper:,} input tokens (count {size.tokens:,}), its limit is {limit:,}"


def is_named(candidate: CandidateModel) -> bool:
    """True for a candidate of which only the name or the facts are known; its model is made when it is called."""
    return isinstance(candidate, str | ModelInfo)


def smallest_limits(candidates: Sequence[Candidate]) -> ModelLimits:
    """Return limits under which a request fits each candidate, beside the answer that each is set to give.

    The largest requested output is left out: it belongs to one candidate's window, and may fill another one's.
    """
    every = [one.limits for one in candidates]
    joint = replace(
        smallest(every), requested_output_tokens=None, max_input_tokens=None
    )
    safe_input = min(one.room() for one in every)
    if joint.context_window is not None and joint.room() <= safe_input:
        return joint
    return replace(joint, max_input_tokens=safe_input)


def candidates_of(
    candidates: Sequence[CandidateModel] | Mapping[str, CandidateModel],
    registry: ModelRegistry,
) -> tuple[Candidate, ...]:
    """Read the facts of every candidate, and refuse what is none; a mapping gives them names."""
    own_names = list[str]()
    if isinstance(candidates, Mapping):
        own_names, candidates = [*candidates], [*candidates.values()]
    wanted = "a list of chat models, ModelInfos or names"
    expect(candidates, list | tuple, "candidates", wanted)
    usual_names = [_name_of(one) for one in candidates]
    named = list(zip(own_names or usual_names, candidates, strict=True))
    if not named:
        raise ConfigError(
            "candidates is empty: pass at least one chat model, ModelInfo or name"
        )
    names = [name for name, _ in named]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"candidates {doubled} are given more than once: remove one, or pass a mapping like "
            "{'fast': model, 'spare': model} to tell them apart"
        )
    return tuple(candidate_of(name, one, registry) for name, one in named)


def candidate_of(
    name: str, model: CandidateModel, registry: ModelRegistry
) -> Candidate:
    """Return one candidate with its facts as they are now, and with the output that its requests are set to ask for."""
    info, is_model = _info(name, model, registry), not is_named(model)
    requested = ModelLimits.of(model).requested_output_tokens if is_model else None
    limits = replace(info.limits, requested_output_tokens=requested)
    if not limits.known:
        raise UnknownModelError(
            f"the context window of candidate {name!r} is unknown: pass a registry that knows it, a model whose "
            "profile states max_input_tokens, or ModelInfo(name=..., context_window=...)"
        )
    stated = info.tokenizer_family
    family = stated if stated in FRAMING else family_of(model)
    return Candidate(name=name, model=model, info=info, limits=limits, family=family)


def _name_of(model: CandidateModel) -> str:
    if isinstance(model, str):
        if not model.strip():
            raise ConfigError(f"candidate {model!r}: give a name like 'provider:name'")
        return model.strip()
    if isinstance(model, ModelInfo):
        return f"{model.provider}/{model.name}" if model.provider else model.name
    part = only_model(model)
    if part is None or not isinstance(part[0], BaseChatModel):
        raise ConfigError(
            f"candidate {type(model).__name__} is no chat model: pass a chat model, a binding of one, a ModelInfo or a "
            "name like 'provider:name'; fallbacks and alternatives become candidates of their own"
        )
    return model_name(model) or type(part[0]).__name__


def _info(name: str, model: CandidateModel, registry: ModelRegistry) -> ModelInfo:
    """Facts of the registry, else what the model states about itself; a `ModelInfo` stands as it is."""
    if isinstance(model, ModelInfo):
        return model
    if isinstance(model, str):
        return registry.lookup(model)
    with suppress(UnknownModelError):
        return registry.lookup(model)
    own = ModelLimits.of(model)
    return ModelInfo(
        name=model_name(model) or name,
        **{field: getattr(own, field) for field in LIMIT_FIELDS},
        provenance={"context_window": own.source},
    )


def made_model(candidate: Candidate) -> BaseChatModel:
    """Return the chat model that a name or facts stand for; a `ConfigError` says what is missing."""
    # in a mapping a candidate has a name of its own
    named = _name_of(candidate.model).replace("/", ":", 1)
    return chat_model_named(named, f"candidate {candidate.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The input tokens of a request under one tokenizer."""

    tokens: int
    upper: int  # what it has at most, so that a limit of as much is safe
    lower: int  # what it has at least: with a smaller limit it is surely refused


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRequest:
    """One request to be routed."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Any] = ()
    conversation: str = (
        ""  # key of what stays with its model; empty when the request stands alone
    )
    # capabilities beside those that tools and media show
    requires: tuple[str, ...] = ()
    # candidates that may not be chosen, and why
    exclude: Mapping[str, str] = field(default_factory=dict)
    # the size by tokenizer family, where it was measured; a missing one is counted
    sizes: Mapping[str, Size] = field(default_factory=dict)
    output_tokens: int | None = (
        None  # what the call asks for; None leaves it to the model's own setting
    )
    reserve: int | None = (
        None  # what the caller keeps for the answer, whatever else says so
    )
    prefer: str = (
        ""  # candidate to take if it can do what the request needs, whatever its size
    )
    shrinks: bool = (
        False  # the caller makes it fit the largest window, where it fits none
    )
    prefer_reason: str = ""  # why, when another decision stands behind it
    kept: str = ""  # candidate that the conversation had so far, when the caller keeps count of that
    complexity: Complexity | None = None  # as the caller states it
    judged: Complexity = "medium"  # what counts, worked out by the router

    @property
    def answer_tokens(self) -> int | None:
        """The tokens to keep for the answer; None leaves it to each candidate's own setting."""
        return self.output_tokens if self.reserve is None else self.reserve


def needed_capabilities(request: RouteRequest) -> tuple[str, ...]:
    """Return the capabilities that a request needs: for its tools and media, and those that it requires."""
    needed = ["tools"] if request.tools else []
    for message in request.messages:
        for block in message.content:
            if not isinstance(block, dict):
                continue
            kind = MEDIA_TYPES.get(str(block.get("type")), "")
            if kind in MEDIA_CAPABILITIES:
                needed.append(MEDIA_CAPABILITIES[kind])
    return tuple(dict.fromkeys([*needed, *request.requires]))


def conversation_key(messages: Sequence[AnyMessage]) -> str:
    """Return the thread id of the surrounding run, else a fingerprint of the first message.

    A system message counts only where there is no other.
    """
    if thread := thread_key():
        return thread
    every = as_messages(messages)
    others = [one for one in every if not isinstance(one, SystemMessage)]
    if not every:
        return ""
    first = (others or every)[0]
    return f"first:{digest(first.type, compact_json(first.content))}"


def thread_key() -> str:
    """Return the key of the surrounding run's thread, else an empty string."""
    configurable = ensure_config().get("configurable") or {}
    thread = configurable.get("thread_id")
    return "" if thread is None or thread == "" else f"{THREAD}{thread}"


def counted(request: RouteRequest, counter: TokenCounter | None, family: str) -> Size:
    """Return the size of a request by a counter, or by the estimator of a tokenizer family."""
    priced = Pricing(counter, family=family)
    tokens = priced.base_tokens + priced.tool_set(request.tools).tokens
    tokens += sum(map(priced.price, request.messages))
    factor = 1.0 if priced.exact else HEADROOM
    upper = getattr(priced.counter, "upper", lambda tokens: ceil(tokens * factor))
    lower = getattr(priced.counter, "lower", lambda tokens: int(tokens / factor))
    return Size(tokens=tokens, upper=upper(tokens), lower=lower(tokens))


# ---- how much a request asks, and how likely it is answered well -----------------------------------------------------

Complexity = Literal["low", "medium", "high"]
Classify = Callable[[Sequence[AnyMessage], Sequence[Any]], Complexity]

# Chosen on every other prompt of public outcomes (RouteLLM) and every other request of two lists, measured on the
# others by `benchmarks/routing.py`.
LONG_CHARS = 80  # of what is asked, beside options to choose from; in less, any model answers nearly as well
MANY_NUMBERS = 3  # a sum has two
PRESUMED_STRENGTH = 0.5  # in the middle, where prices say nothing
ENOUGH = 0.75
"""Chance of a good answer from which a candidate is strong enough. Presumed is 1 for one whose strength is what the
complexity needs, 0.5 and a little more for a weaker one: ten good answers without a bad one make it strong enough, and
one bad answer in four takes that from any."""

PRESUMED_OF_WEAKER, MORE_BY_STRENGTH = 0.5, 0.2
NEEDED = {"low": 0.0, "medium": 0.5, "high": 1.0}
"""Complexity -> strength of a model that is enough for it."""

PRIOR_TRIALS = 10.0  # outcomes that weigh as much as what is presumed: a share of ten is known to about 15 points

_WORK = re.compile(
    r"\b(?:algorithms?|analy[sz]e|architect(?:ure)?|compare|construct|debug|deriv(?:e|ation)|design|detect|diagnose"
    r"|draft|estimate|evaluate|implement|integral|migrat\w+|optimi[sz]e|plan|proofs?|prov(?:e|ing)|recommend|reconcile"
    r"|refactor|review|rewrite|simplify|step by step|trade-?offs?|walk (?:me )?through|why|how would"
    r"|write an? \w+ \w+)\b",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"```|^[ \t]*(?:def|class|import|from|return|func|fn|const|let|var|#include|SELECT|Traceback)\b"
    r"|[{};][ \t]*$|[=!<>]=|=>|->|::|\w\(\w*\)",
    re.MULTILINE,
)
_OPTION = re.compile(r"^[ \t]*\(?[A-E][.):] .*$\n?", re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def judged(messages: Sequence[AnyMessage], tools: Sequence[Any] = ()) -> Complexity:
    """Return the complexity of a request by plain signs in its latest user message: none is low, one is medium.

    Examples:
        >>> (
        ...     judged([HumanMessage("What is 2+2?")]),
        ...     judged([HumanMessage("Prove it, and why `f(x) == x`.")]),
        ... )
        ('low', 'high')
    """
    text = last_question(messages)
    signs = [
        len(_OPTION.sub("", text)) >= LONG_CHARS,
        _WORK.search(text) is not None,
        _CODE.search(text) is not None,
        len(_NUMBER.findall(text)) >= MANY_NUMBERS,
        text.count("?") > 1,
        any(name and name in text for name in map(name_of, tools)),
    ]
    return ("low", "medium", "high")[min(sum(signs), 2)]


def last_question(messages: Sequence[AnyMessage]) -> str:
    """Return what the user asks: the text of the last user message."""
    return next(
        (
            message.text
            for message in reversed(messages)
            if isinstance(message, HumanMessage)
        ),
        "",
    )


def bucket_of(text: str, complexity: Complexity, *, needs_tools: bool) -> str:
    """Return kind and complexity of a task, under which outcomes are counted, e.g. `code/high`."""
    kind = "tools" if needs_tools else "code" if _CODE.search(text) else "text"
    return f"{kind}/{complexity}"


def chance_of(strength: float, needed: float, good: int, every: int) -> float:
    """Return the chance of a good answer: what is presumed by strength, moved by the outcomes that were counted."""
    presumed = (
        1.0 if strength >= needed else PRESUMED_OF_WEAKER + MORE_BY_STRENGTH * strength
    )
    return (PRIOR_TRIALS * presumed + good) / (PRIOR_TRIALS + every)


def strengths(infos: Sequence[ModelInfo]) -> list[float]:
    """Return how strong each model presumably is, 0 to 1, by the rank of its price; in the middle when it is unknown.

    Models of one price share a rank.
    """
    prices = [
        info.input_price if info.output_price is None else info.output_price
        for info in infos
    ]
    ranks = sorted({price for price in prices if price is not None})
    return [
        PRESUMED_STRENGTH
        if price is None or len(ranks) == 1
        else ranks.index(price) / (len(ranks) - 1)
        for price in prices
    ]
