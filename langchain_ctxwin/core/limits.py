"""Model limits: what is known of them, what a provider was heard to say, and the input limit that follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable, RunnableConfigurableAlternatives

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.reported import is_absurd
from langchain_ctxwin.errors import ConfigError, UnknownModelError

OUTPUT_ARGUMENTS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict", "n_predict")
"""Names under which chat models take the number of tokens to generate."""

UNKNOWN_SOURCE = "unknown"
"""The source of limits that nobody stated."""

MODEL_ARGUMENTS = ("model", "model_name")
"""Bound arguments that replace the model itself, so that its profile describes another model."""


def models_behind(runnable: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each model behind `runnable` with the arguments bound around it; the outermost binding wins.

    Steps of a sequence that are no models are yielded too: they state nothing. Alternatives that are factories are
    left alone, because building a model has side effects.
    """
    if isinstance(runnable, RunnableBindingBase):
        for part, bound in models_behind(runnable.bound):
            yield part, {**bound, **runnable.kwargs}
        return
    inner = _inner(runnable)
    if inner is None:
        yield runnable, {}
        return
    for item in inner:
        yield from models_behind(item)


def _inner(runnable: Any) -> list[Any] | None:
    if isinstance(runnable, RunnableSequence):
        return list(runnable.steps)
    if isinstance(runnable, RunnableWithFallbacks):
        return [runnable.runnable, *runnable.fallbacks]
    if isinstance(runnable, RunnableConfigurableAlternatives):
        return [runnable.default, *(item for item in runnable.alternatives.values() if isinstance(item, Runnable))]
    if isinstance(runnable, DynamicRunnable):
        return [runnable.default]
    return None


def _is_replaced(model: Any, bound: Mapping[str, Any]) -> bool:
    names = [_bare(bound[key]) for key in MODEL_ARGUMENTS if bound.get(key)]
    own = [_bare(getattr(model, key, None)) for key in MODEL_ARGUMENTS]
    return any(name not in own for name in names)


def _bare(name: object) -> str:
    """The name without a `models/` or provider prefix, which clients add on their own."""
    return str(name).rpartition("/")[2]


def _requested(model: Any, bound: Mapping[str, Any]) -> int | None:
    stated = [bound.get(name) for name in OUTPUT_ARGUMENTS] + [getattr(model, name, None) for name in OUTPUT_ARGUMENTS]
    return next(filter(None, map(_tokens, stated)), None)


def _tokens(value: Any) -> int | None:
    """A positive whole number, also as an integral float (some tables have those), else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


OUTPUT_SHARE = 0.25
"""Share of the window reserved for the answer when nobody says how long it may be: a quarter is common practice, and
reserving all that a model may generate would leave some models no input at all."""

GUESS_FACTOR = 4
"""Guessed window per token of output limit. A last resort: about half of the entries of public catalogs have a smaller
window than this, so a guess needs a wider margin until a response or an error confirms it."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Token limits of one model as far as they are known; None means unknown, never unlimited.

    Raises:
        ConfigError: a value is not a positive whole number, or two of them contradict each other.

    Examples:
        >>> ModelLimits(8192, max_output_tokens=1024).input_limit(1024)
        7168
    """

    context_window: int | None = None
    """Tokens that input and output share."""

    max_input_tokens: int | None = None
    """A limit of the input alone, only where the provider declares one beside the window."""

    max_output_tokens: int | None = None
    """Tokens the model may generate at most; says nothing about what it can hold."""

    requested_output_tokens: int | None = None
    """Tokens that requests ask for (`max_tokens`), when that is configured."""

    _: KW_ONLY
    source: str = "explicit"
    """Who states the limits: `explicit`, `profile`, `guess`, `unknown` or the name of a source."""

    def __post_init__(self) -> None:
        for name in _LIMIT_NAMES:
            value = getattr(self, name)
            if value is not None:
                require_tokens(name, value, minimum=1, optional=True)
        _require_at_most(self, "max_input_tokens", "context_window")
        _require_at_most(self, "max_output_tokens", "context_window")
        _require_at_most(self, "requested_output_tokens", "max_output_tokens")
        requested, window = self.requested_output_tokens, self.context_window
        if requested is not None and window is not None and requested >= window:
            raise ConfigError(
                f"requested_output_tokens={requested:,} leaves no input in context_window={window:,}: "
                "request a shorter output or raise context_window"
            )

    @classmethod
    def of(cls, model: Any) -> ModelLimits:
        """Read the limits that a model, or a runnable around models, states about itself.

        Taken in this order: a `ModelLimits` as it is; a `.limits` attribute that holds one; a LangChain `.profile`,
        whose `max_input_tokens` is read as the joint `context_window` (more often than not it is). What requests ask
        for comes from the configured or bound `max_tokens` and its other names. Bindings, sequences, fallbacks and
        configurable alternatives are looked through; of several models the smallest limits count, and the largest
        requested output.

        Tables are messy, so nothing read this way raises: non-positive values are unknown, an output limit larger
        than the window or smaller than the configured output is dropped, and so is a configured output that leaves
        no input. Whatever states nothing gives limits whose `known` is false.
        """
        if isinstance(model, cls):
            return model
        return _smallest(_of_part(part, bound) for part, bound in models_behind(model))

    @property
    def known(self) -> bool:
        """True when an input limit follows from these limits."""
        return self.context_window is not None or self.max_input_tokens is not None

    def input_limit(self, reserve: int) -> int:
        """Largest input in tokens when `reserve` tokens are kept for the answer.

        A `max_input_tokens` of its own is not reduced by the reserve.

        Raises:
            ConfigError: the reserve is negative, or leaves no input.
            UnknownModelError: neither the window nor an input limit is known.
        """
        require_tokens("reserve", reserve)
        joint = None if self.context_window is None else self.context_window - reserve
        candidates = [tokens for tokens in (self.max_input_tokens, joint) if tokens is not None]
        if not candidates:
            raise UnknownModelError(
                "the model's context window is unknown: pass limits=ModelLimits(context_window=...), use a model whose "
                "profile states max_input_tokens, or allow a guess from its output limit"
            )
        if min(candidates) <= 0:
            raise ConfigError(
                f"output reserve {reserve:,} leaves no input in context_window={self.context_window:,}: "
                "lower output_reserve (or the model's max_tokens) or raise context_window"
            )
        return min(candidates)

    def output_reserve(self, configured: int | None = None) -> int:
        """Tokens to keep for the answer.

        `configured` if given, else what requests ask for, else the smaller of the output limit and a quarter of the
        window. 0 when only an input limit is known: such an input is not shared with the output.
        """
        require_tokens("output_reserve", configured, optional=True)
        for stated in (configured, self.requested_output_tokens):
            if stated is not None:
                return stated
        share = None if self.context_window is None else int(self.context_window * OUTPUT_SHARE)
        return min((tokens for tokens in (self.max_output_tokens, share) if tokens is not None), default=0)

    def guessed(self) -> ModelLimits:
        """These limits with a guessed window where none is known (`source="guess"`), else unchanged.

        Raises:
            UnknownModelError: the output limit is unknown too.
        """
        if self.known:
            return self
        if self.max_output_tokens is None:
            raise UnknownModelError(
                "the model's context window is unknown and cannot be guessed without its output limit: "
                "pass limits=ModelLimits(context_window=...)"
            )
        return replace(self, context_window=GUESS_FACTOR * self.max_output_tokens, source="guess")


_LIMIT_NAMES = tuple(field.name for field in fields(ModelLimits) if field.name != "source")


def require_tokens(name: str, value: object, *, minimum: int = 0, optional: bool = False) -> None:
    """Raise `ConfigError` unless `value` is a whole number of at least `minimum` (or None, where optional)."""
    if value is None and optional:
        return
    if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
        return
    otherwise = ", or None when it is unknown" if optional else ""
    raise ConfigError(f"{name}={value!r}: give a whole number of tokens, at least {minimum}{otherwise}")


def _require_at_most(limits: ModelLimits, name: str, bound_name: str) -> None:
    value, bound = getattr(limits, name), getattr(limits, bound_name)
    if _exceeds(value, bound):
        raise ConfigError(f"{name}={value:,} is more than {bound_name}={bound:,}: lower {name} or raise {bound_name}")


def _of_part(part: Any, bound: dict[str, Any]) -> ModelLimits:
    """Limits of one model inside a runnable, with the arguments bound around it; odd values are unknown."""
    own, requested = getattr(part, "limits", None), _requested(part, bound)
    if isinstance(own, ModelLimits):
        if own.requested_output_tokens is not None or not isinstance(part, Runnable):
            return own
        return _consistent((own.context_window, own.max_input_tokens, own.max_output_tokens, requested), own.source)
    profile = getattr(part, "profile", None)
    if not isinstance(profile, Mapping) or _is_replaced(part, bound):
        profile = {}
    window, largest_output = _tokens(profile.get("max_input_tokens")), _tokens(profile.get("max_output_tokens"))
    return _consistent((window, None, largest_output, requested), UNKNOWN_SOURCE if window is None else "profile")


def _smallest(candidates: Iterable[ModelLimits]) -> ModelLimits:
    """Field by field the smallest of what is known; the largest requested output, so that the reserve covers each."""
    parts = list(candidates)
    if len(parts) == 1:
        return parts[0]
    values = {name: [value for part in parts if (value := getattr(part, name)) is not None] for name in _LIMIT_NAMES}
    sources = dict.fromkeys(part.source for part in parts if part.known)
    smallest = [min(values[name], default=None) for name in _LIMIT_NAMES[:3]]
    requested = max(values["requested_output_tokens"], default=None)
    return _consistent((*smallest, requested), "+".join(sources) or UNKNOWN_SOURCE)


def _consistent(stated: Sequence[int | None], source: str) -> ModelLimits:
    """Drop what contradicts the rest, so that what remains never allows a larger input than was stated."""
    window, largest_input, largest_output, requested = stated
    if _exceeds(largest_input, window):
        largest_input = None  # the window is the tighter limit
    if requested is not None and _exceeds(requested + 1, window):
        requested = None  # such a request cannot be sent; the share of the window is reserved instead
    if _exceeds(largest_output, window) or _exceeds(requested, largest_output):
        largest_output = None  # the table contradicts the window, or what is configured on purpose
    return ModelLimits(window, largest_input, largest_output, requested, source=source)


def _exceeds(value: int | None, bound: int | None) -> bool:
    return value is not None and bound is not None and value > bound


@dataclass(frozen=True, slots=True)
class NamedLimits:
    """Limits under the name of their model, so that what a provider states is remembered for it."""

    limits: ModelLimits
    name: str
    tokenizer_family: str = ""
    """Family of the token estimator; empty when the model does not say."""


LEAST_LIMIT_TOKENS = 256
"""A stated limit below this is that of something else: no served model has such a window."""

MOST_TIMES_OFF = 20
"""How many times smaller, or larger, than declared a limit may be to be told to other conversations. Hosts cut windows
to a sixteenth (GitHub Models answers "Max size: 8000 tokens" for models of 128,000), rarely further. What is further
off is met by each conversation itself, at the price of one refused request: little beside a window that one
conversation could take away from all."""

COUNT_SLACK = 1.01
"""Reports of accepted requests may be this much above a limit that holds: servers count a template or keep a few tokens
for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beside what a refusal states."""

    limits: ModelLimits | None = None
    """The limits that hold so far."""

    kept_input_tokens: int | None = None
    """The input limit that requests keep to, the output reserve taken off; None takes off the limits' own reserve."""

    accepted_tokens: int = 0
    """The largest input that this model was reported to have taken; 0 when none is known."""

    refused_tokens: int | None = None
    """The most that the refused request may have by our own count."""


def stated_limit(overflow: ContextOverflow, known: Known) -> dict[str, int]:
    """Return the limit that a refusal states, by the field of `ModelLimits` it belongs to, for its own conversation.

    Empty without one, and for one that cannot be: the provider took more before, or the request cannot have been that
    large.
    """
    limit = overflow.limit
    if limit is None or limit < LEAST_LIMIT_TOKENS or _cannot_have_exceeded(overflow, limit, known):
        return {}
    joint = overflow.kind == "input_plus_output" or _is_joint(limit, known)
    return unrefuted({"context_window" if joint else "max_input_tokens": limit}, known.accepted_tokens)


def for_everybody(learned: Mapping[str, int], declared: ModelLimits | None) -> dict[str, int]:
    """Return the learned limits that hold for other conversations too: those that are near what is declared.

    Where nothing is declared, there is nothing that a limit could be far from.
    """
    stated = (declared.context_window, declared.max_input_tokens) if declared else ()
    size = max((tokens for tokens in stated if tokens is not None), default=None)
    usable = remembered(learned)
    if size is None:
        return usable
    least, most = size / MOST_TIMES_OFF, size * MOST_TIMES_OFF
    return {name: tokens for name, tokens in usable.items() if least <= tokens <= most}


def remembered(learned: Mapping[str, int], accepted_tokens: int = 0) -> dict[str, int]:
    """Return what of limits that were learned before may be a limit, and is not refuted: state comes from outside."""
    usable = {name: tokens for name, tokens in learned.items() if tokens >= LEAST_LIMIT_TOKENS}
    return unrefuted(usable, accepted_tokens)


def unrefuted(learned: Mapping[str, int], accepted_tokens: int) -> dict[str, int]:
    """Return the limits that are not below the input of a request that the provider accepted."""
    return {name: tokens for name, tokens in learned.items() if accepted_tokens <= COUNT_SLACK * tokens}


def _cannot_have_exceeded(overflow: ContextOverflow, limit: int, known: Known) -> bool:
    """True when no hidden prompt makes the refused request as large as the limit that it is to have exceeded."""
    if known.refused_tokens is None or overflow.kind == "input_plus_output":
        return False  # the output that was requested may be nearly all of it
    return is_absurd(limit, known.refused_tokens)


def _is_joint(limit: int, known: Known) -> bool:
    """True when a stated limit corrects a window that is known to be shared by input and output.

    The limit that requests kept to already, ours without the output reserve, is one for input and corrects nothing.
    """
    limits, kept = known.limits, known.kept_input_tokens
    if limits is None or limits.max_input_tokens is not None or limits.context_window is None:
        return False
    if kept is None:
        kept = limits.input_limit(limits.output_reserve())
    return limit <= limits.context_window and (limit == limits.context_window or limit != kept)
