"""How many tokens may a request have: what is known about a model's limits, and the two rules that follow from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

from langchain_core.runnables import Runnable

from langchain_ctxwin.core.stated import UNKNOWN_SOURCE, LimitFields, models_behind, stated_limits
from langchain_ctxwin.errors import ConfigError, UnknownModelError

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

    Example:
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
            require_tokens(name, getattr(self, name), minimum=1, optional=True)
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
    """Limits of one model inside a runnable; `bound` are the arguments bound around it."""
    own = getattr(part, "limits", None)
    if not isinstance(own, ModelLimits):
        return _consistent(stated_limits(part, bound))
    if own.requested_output_tokens is not None or not isinstance(part, Runnable):
        return own
    requested = stated_limits(part, bound).requested_output_tokens
    stated = LimitFields(own.context_window, own.max_input_tokens, own.max_output_tokens, requested, source=own.source)
    return _consistent(stated)


def _smallest(candidates: Iterable[ModelLimits]) -> ModelLimits:
    """Field by field the smallest of what is known; the largest requested output, so that the reserve covers each."""
    parts = list(candidates)
    if len(parts) == 1:
        return parts[0]
    values = {name: [value for part in parts if (value := getattr(part, name)) is not None] for name in _LIMIT_NAMES}
    sources = dict.fromkeys(part.source for part in parts if part.known)
    stated = LimitFields(
        min(values["context_window"], default=None),
        min(values["max_input_tokens"], default=None),
        min(values["max_output_tokens"], default=None),
        max(values["requested_output_tokens"], default=None),
        source="+".join(sources) or UNKNOWN_SOURCE,
    )
    return _consistent(stated)


def _consistent(stated: LimitFields) -> ModelLimits:
    """Drop what contradicts the rest, so that what remains never allows a larger input than was stated."""
    window, largest_input, largest_output, requested = stated.values()
    if _exceeds(largest_input, window):
        largest_input = None  # the window is the tighter limit
    if requested is not None and _exceeds(requested + 1, window):
        requested = None  # such a request cannot be sent; the share of the window is reserved instead
    if _exceeds(largest_output, window) or _exceeds(requested, largest_output):
        largest_output = None  # the table contradicts the window, or what is configured on purpose
    return ModelLimits(window, largest_input, largest_output, requested, source=stated.source)


def _exceeds(value: int | None, bound: int | None) -> bool:
    return value is not None and bound is not None and value > bound


@dataclass(frozen=True, slots=True)
class NamedLimits:
    """Limits under the name of their model, so that what a provider states is remembered for it."""

    limits: ModelLimits
    name: str
    tokenizer_family: str = ""
    """Family of the token estimator; empty when the model does not say."""
