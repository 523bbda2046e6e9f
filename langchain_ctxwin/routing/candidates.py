"""Candidates of a router: what is known of each model, what it can take, and what happened with it so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from statistics import median
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel

from langchain_ctxwin.core.limits import Known, ModelLimits, for_everybody, stated_limit, unrefuted
from langchain_ctxwin.core.model_families import UNKNOWN_FAMILY, family_of, model_name
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.recovery import BLIND_STEP, lowered, only_model, smaller_of
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError, ContextWindowError, UnknownModelError
from langchain_ctxwin.limit_memory import AcceptedSizes
from langchain_ctxwin.models.merging import declared_limits
from langchain_ctxwin.models.sources import LearnedSource
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.routing.request import Request, Size
from langchain_ctxwin.util.background import in_few_daemons
from langchain_ctxwin.util.forks import ForkSafeLock

FACTS_SECONDS = 60.0
"""How long facts of the registry are used before it is asked again: it keeps its own, longer time to live."""

RECENT_ANSWERS = 20
"""Answers whose time counts: the median of fewer jumps, that of more is late to notice a slow day."""

HEARD_SECONDS = 3_600.0
"""How long a limit that was met is obeyed here. After the hour one refused request finds out whether it was raised."""

CandidateModel = Any
"""A candidate as the caller passes it: a chat model, a binding around one, a `ModelInfo`, or `provider:name`."""

Instance = tuple[BaseChatModel, dict[str, Any]]
"""A chat model and the arguments bound around it."""

PROFILE_KEYS = {
    "tools": "tool_calling",
    "images": "image_inputs",
    "structured_output": "structured_output",
    "audio": "audio_inputs",
    "video": "video_inputs",
    "pdf": "pdf_inputs",
    "reasoning": "reasoning_output",
}
"""Where a LangChain profile states a capability."""

INTEGRATIONS = {
    "google": "google_genai",
    "gemini": "google_genai",
    "mistral": "mistralai",
    "azure": "azure_openai",
    "togetherai": "together",
    "fireworks-ai": "fireworks",
    "fireworks_ai": "fireworks",
    "amazon-bedrock": "bedrock_converse",
    "vertex_ai": "google_vertexai",
}
"""Providers whose LangChain integration goes by another name than theirs."""


class Registry(Protocol):
    """What a router asks of a `ModelRegistry`; one with a method `accepted(model, tokens)` hears of accepted inputs."""

    def lookup(self, model: Any) -> ModelInfo:
        """Return the facts about a model, by name or by chat model, or raise `UnknownModelError`."""
        ...

    def learn(self, name: Any, said: Any) -> None:
        """Remember the limits that a provider stated for a model, given by its facts."""
        ...


class CannotBeMadeError(ConfigError):
    """A name cannot be made into a chat model: a package or a key is missing, or the name is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model that may answer."""

    name: str
    given: CandidateModel
    """As the caller passed it."""

    info: ModelInfo
    limits: ModelLimits
    """Limits of the model, with what its requests are set to ask for."""

    family: str
    """Tokenizer family."""

    @property
    def has_model(self) -> bool:
        """True when the caller passed a model; of others only the name is known until they are called."""
        return not isinstance(self.given, str | ModelInfo)

    def states(self, capability: str) -> bool | None:
        """Say whether the model has a capability; None when nobody says."""
        if self.info.capabilities:
            return capability in self.info.capabilities
        part = only_model(self.given) if self.has_model else None
        profile = getattr(part[0], "profile", None) if part else None
        stated = profile.get(PROFILE_KEYS.get(capability, capability)) if isinstance(profile, Mapping) else None
        return stated if isinstance(stated, bool) else None

    def size(self, request: Request) -> Size:
        """Return the size of a measured request for this candidate."""
        return request.sizes[self.family]

    def input_limit(self, request: Request) -> int:
        """Return the input tokens that it takes beside its answer; 0 when the answer alone fills its window."""
        try:
            return self.limits.input_limit(self.limits.output_reserve(request.reserve))
        except ConfigError:  # the reserve leaves no input: a fact about this candidate, not a fault of the request
            return 0

    def unable(self, request: Request, today: date) -> str:
        """Return why it cannot take a measured request, whatever its size; empty when it can, or when nobody says."""
        retires = self.info.retires_on
        if retires is not None and retires <= today:
            return f"retired on {retires.isoformat()}"
        lacking = next((name for name in request.requires if self.states(name) is False), None)
        if lacking is not None:
            return f"cannot do {lacking!r}, which the request needs"
        largest, asked = self.limits.max_output_tokens, request.output_tokens
        if largest is not None and asked is not None and asked > largest:
            return f"can write {largest:,} tokens, the request asks for {asked:,}"
        return ""

    def too_small(self, request: Request) -> str:
        """Return by how much a measured request is too large; empty when it fits."""
        limit, size = self.input_limit(request), self.size(request)
        if size.upper > limit or not limit:
            may_need = f"may need {size.upper:,} input tokens (count {size.tokens:,})"
            return f"{may_need}, its limit is {self._limit_text(request)}"
        if limit <= request.above_tokens:  # 0 where nobody refused
            return f"its limit is {self._limit_text(request)}, one of {request.above_tokens:,} refused the request"
        return ""

    def _limit_text(self, request: Request) -> str:
        limit, window = self.input_limit(request), self.limits.context_window
        if window is None or window == limit:
            return f"{limit:,}"
        return f"{limit:,} (window {window:,}, {self.limits.output_reserve(request.reserve):,} kept for the answer)"


class Candidates:
    """The candidates of a router; thread-safe, losing what happened so far costs a few refused requests.

    Their facts follow the registry, and what providers said about limits.
    """

    def __init__(
        self,
        given: Sequence[CandidateModel] | Mapping[str, CandidateModel],
        registry: Registry | None,
        *,
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._read = candidates_of(given, registry)
        self._read_at = clock()
        self._failures: dict[str, tuple[str, float]] = {}  # what failed, and until when it rests
        self._heard = LearnedSource(ttl_seconds=HEARD_SECONDS, clock=clock)
        self._seconds: dict[str, deque[float]] = {}
        self._accepted = AcceptedSizes(clock)
        self._made: dict[str, BaseChatModel] = {}
        self._making = ForkSafeLock()

    def current(self) -> tuple[Candidate, ...]:
        """Return the candidates in the order they were given, at once: facts that are old serve until newer arrive."""
        if self._registry is not None and self._clock() - self._read_at >= FACTS_SECONDS:
            self._read_at = self._clock()
            with suppress(RuntimeError):  # no thread is free: what is known serves for another while
                in_few_daemons(self._read_again)  # a source may hang, and the caller may be an event loop
        return tuple(map(self._with_heard, self._read))

    def named(self, name: str) -> Candidate:
        """Return one candidate.

        Raises:
            ConfigError: there is none of this name.
        """
        return self._with_heard(self._as_read(name))

    def instance(self, name: str) -> Instance:
        """Return the chat model of a candidate and the arguments bound around it; of a name it is made once.

        Raises:
            CannotBeMadeError: a package or a key is missing, or the name is unknown.
        """
        candidate = self.named(name)
        if candidate.has_model:
            part = only_model(candidate.given)
            if part is None:  # refused when the candidates were read
                raise ConfigError(f"candidate {candidate.name!r} is no chat model")
            return part
        with self._making:  # others wait
            made = self._made.get(name) or _made(candidate)
            self._made[name] = made
        return made, {}

    def failed(self, name: str, what: str, *, rest_seconds: float) -> None:
        """Let a candidate rest."""
        self._failures[name] = (what, self._clock() + rest_seconds)

    def resting(self, name: str) -> str:
        """Return why a candidate rests, and for how long; empty when it does not."""
        what, until = self._failures.get(name) or ("", 0.0)
        left = until - self._clock()
        return f"failed ({what}), rests for {left:.0f} s more" if left > 0 else ""

    def seconds(self, name: str) -> float | None:
        """Return how long an answer usually takes; None before the first one."""
        known = self._seconds.get(name)
        return median(list(known)) if known else None

    def answered(self, name: str, seconds: float, *, tokens: int = 0) -> None:
        """Take up how long an answer took, and the input it was reported to be for; whoever answers is well."""
        self._accepted.note(name, tokens)
        self._heard.accepted(name, tokens)
        self._failures.pop(name, None)
        self._seconds.setdefault(name, deque(maxlen=RECENT_ANSWERS)).append(max(0.0, seconds))
        forget = getattr(self._registry, "accepted", None)
        if tokens and forget is not None:
            forget(self._as_read(name).info, tokens)

    def refused(self, name: str, overflow: ContextOverflow, *, tokens: int, output_reserve: int | None = None) -> None:
        """Remember the limit that a refusal states, or one below the refused size when it states none.

        Both hold for every conversation, so one that only its own conversation may believe is not kept. What was stated
        is told to the registry.
        """
        if overflow.said_by == "request":
            return
        refusing = self._as_read(name)
        known = Known(
            limits=refusing.limits,
            kept_input_tokens=refusing.input_limit(Request(messages=(), reserve=output_reserve)),
            accepted_tokens=self._accepted.of(name),
            refused_tokens=tokens,
        )
        declared = declared_limits(refusing.info)
        stated = for_everybody(stated_limit(overflow, known), declared)
        inferred = {} if overflow.limit else {"max_input_tokens": int(BLIND_STEP * tokens)}
        with suppress(ContextWindowError):  # no plausible number, or none for the registry: nothing to learn then
            if limits := stated or unrefuted(for_everybody(inferred, declared), known.accepted_tokens):
                self._heard.learn(name, smaller_of(self._heard.recall(name), limits))
            if stated and self._registry is not None:
                self._registry.learn(refusing.info, stated)

    def _with_heard(self, candidate: Candidate) -> Candidate:
        """The candidate with the limits it was heard to have, where those are smaller."""
        heard = self._heard.recall(candidate.name)
        return replace(candidate, limits=lowered(candidate.limits, heard)) if heard else candidate

    def _as_read(self, name: str) -> Candidate:
        """The candidate by its facts alone, without what it was heard to say."""
        for known in self._read:
            if known.name == name:
                return known
        raise ConfigError(f"route={name!r} is no candidate: use one of {', '.join(one.name for one in self._read)}")

    def _read_again(self) -> None:
        """Take up what the registry says now; a model that it no longer knows keeps its facts, the provider decides."""
        read = list(self._read)
        for number, known in enumerate(read):
            with suppress(UnknownModelError):
                read[number] = candidate_of(known.name, known.given, self._registry)
        self._read = tuple(read)


def smallest_limits(candidates: Sequence[Candidate]) -> ModelLimits:
    """Return limits under which a request fits each candidate, beside the answer that each is set to give.

    The largest requested output is left out: it belongs to one candidate's window, and may fill another one's.
    """
    every = [one.limits for one in candidates]
    window = min((one.context_window for one in every if one.context_window is not None), default=None)
    safe_input = min(one.input_limit(one.output_reserve()) for one in every)
    largest = min((one.max_output_tokens for one in every if one.max_output_tokens is not None), default=None)
    if largest is not None and window is not None and largest > window:
        largest = None
    source = "+".join(dict.fromkeys(one.source for one in every))
    joint = ModelLimits(window, None, largest, source=source)
    if window is not None and joint.input_limit(joint.output_reserve()) <= safe_input:
        return joint
    return replace(joint, max_input_tokens=safe_input)


def candidates_of(
    given: Sequence[CandidateModel] | Mapping[str, CandidateModel], registry: Registry | None
) -> tuple[Candidate, ...]:
    """Read the facts of every candidate; a mapping gives them names.

    Raises:
        ConfigError: there are none, two have one name, or one is no model.
        UnknownModelError: the limits of a candidate are not known.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"candidates={given!r}: pass a list of chat models, ModelInfos or names")
    named = [*given.items()] if isinstance(given, Mapping) else [(_name_of(one), one) for one in given]
    if not named:
        raise ConfigError("candidates is empty: pass at least one chat model, ModelInfo or name")
    names = [name for name, _ in named]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"candidates {doubled} are given more than once: remove one, or pass a mapping like "
            "{'fast': model, 'spare': model} to tell them apart"
        )
    return tuple(candidate_of(name, one, registry) for name, one in named)


def candidate_of(name: str, given: CandidateModel, registry: Registry | None) -> Candidate:
    """Return one candidate with its facts as they are now."""
    info = _info(name, given, registry)
    limits = _with_request(info.limits, given)
    if not limits.known:
        raise UnknownModelError(
            f"the context window of candidate {name!r} is unknown: pass a registry that knows it, a model whose "
            "profile states max_input_tokens, or ModelInfo(name=..., context_window=...)"
        )
    return Candidate(name=name, given=given, info=info, limits=limits, family=_family(info, given))


def _name_of(given: CandidateModel) -> str:
    if isinstance(given, str):
        return _registry_name(given)
    if isinstance(given, ModelInfo):
        return f"{given.provider}/{given.name}" if given.provider else given.name
    part = only_model(given)
    if part is None or not isinstance(part[0], BaseChatModel):
        raise ConfigError(
            f"candidate {type(given).__name__} is no chat model: pass a chat model, a binding of one, a ModelInfo or a "
            "name like 'provider:name'; fallbacks and alternatives become candidates of their own"
        )
    return model_name(given) or type(part[0]).__name__


def _registry_name(name: str) -> str:
    """The name with a slash behind the provider: `init_chat_model` puts a colon there."""
    if not name.strip():
        raise ConfigError(f"candidate {name!r}: give a name like 'provider:name'")
    provider, colon, rest = name.strip().partition(":")
    return f"{provider}/{rest}" if colon and rest and "/" not in provider else name.strip()


def _info(name: str, given: CandidateModel, registry: Registry | None) -> ModelInfo:
    """Facts of the registry, completed by what the model states about itself; a `ModelInfo` stands as it is."""
    if isinstance(given, ModelInfo):
        return given
    part = only_model(given)
    known: ModelInfo | None = None
    if registry is not None:
        with suppress(UnknownModelError):
            known = registry.lookup(_registry_name(given) if isinstance(given, str) else part[0] if part else given)
    if known is not None and (known.limits.known or isinstance(given, str)):
        return known
    if isinstance(given, str):
        raise UnknownModelError(
            f"candidate {name!r}: nothing is known about a model of this name: pass a registry that knows it, or "
            "ModelInfo(name=..., provider=..., context_window=...)"
        )
    own = ModelLimits.of(given)
    facts = known or ModelInfo(name=model_name(given) or name)
    return replace(
        facts,
        context_window=own.context_window,
        max_input_tokens=own.max_input_tokens,
        max_output_tokens=own.max_output_tokens,
        provenance={**facts.provenance, "context_window": own.source},
    )


def _with_request(limits: ModelLimits, given: CandidateModel) -> ModelLimits:
    """The limits with the output that requests are set to ask for; a table that contradicts that is not believed."""
    requested = None if isinstance(given, str | ModelInfo) else ModelLimits.of(given).requested_output_tokens
    if requested is None or (limits.context_window is not None and requested >= limits.context_window):
        return limits
    largest = limits.max_output_tokens
    believed = largest if largest is None or largest >= requested else None
    return replace(limits, requested_output_tokens=requested, max_output_tokens=believed)


def _family(info: ModelInfo, given: CandidateModel) -> str:
    if info.tokenizer_family in FRAMING:
        return str(info.tokenizer_family)
    return UNKNOWN_FAMILY if isinstance(given, str | ModelInfo) else family_of(given)


def _made(candidate: Candidate) -> BaseChatModel:
    """The chat model that a name or facts stand for."""
    given = candidate.given
    provider, slash, name = candidate.name.partition("/")
    if isinstance(given, ModelInfo):
        provider, name = given.provider or "", given.name
    elif not slash:
        provider, name = "", candidate.name
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415  # an extra

        model: BaseChatModel = init_chat_model(name, model_provider=INTEGRATIONS.get(provider, provider) or None)
    except Exception as error:
        raise CannotBeMadeError(
            f"candidate {candidate.name!r} cannot be made into a chat model ({type(error).__name__}: {error}): install "
            "langchain-ctxwin[agents] and its integration and set its key, or pass the chat model itself"
        ) from error
    return model
