"""What do a LangChain model, and the runnables around it, state about their own limits?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable, RunnableConfigurableAlternatives

OUTPUT_ARGUMENTS = (
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "num_predict",
    "n_predict",
)
"""Names under which chat models take the number of tokens to generate."""

UNKNOWN_SOURCE = "unknown"
"""The source of limits that nobody stated."""

MODEL_ARGUMENTS = ("model", "model_name")
"""Bound arguments that replace the model itself, so that its profile describes another model."""


@dataclass(frozen=True, slots=True)
class LimitFields:
    """Limits as they were stated, not yet checked against each other."""

    context_window: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    requested_output_tokens: int | None = None
    _: KW_ONLY
    source: str = UNKNOWN_SOURCE

    def values(self) -> tuple[int | None, int | None, int | None, int | None]:
        """The four limits in the order of the fields."""
        return self.context_window, self.max_input_tokens, self.max_output_tokens, self.requested_output_tokens


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


def stated_limits(model: Any, bound: Mapping[str, Any]) -> LimitFields:
    """Read `.profile` and the requested output of one model; values that are no positive whole number are unknown."""
    profile = getattr(model, "profile", None)
    if not isinstance(profile, Mapping) or _is_replaced(model, bound):
        profile = {}
    window = _tokens(profile.get("max_input_tokens"))
    return LimitFields(
        window,
        None,
        _tokens(profile.get("max_output_tokens")),
        _requested(model, bound),
        source=UNKNOWN_SOURCE if window is None else "profile",
    )


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
    for name in OUTPUT_ARGUMENTS:
        if (tokens := _tokens(bound.get(name))) is not None:
            return tokens
    for name in OUTPUT_ARGUMENTS:
        if (tokens := _tokens(getattr(model, name, None))) is not None:
            return tokens
    return None


def _tokens(value: Any) -> int | None:
    """A positive whole number, also as an integral float (some tables have those), else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
