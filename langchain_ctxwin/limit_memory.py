"""Limits of models that change: what a registry says now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import ModelInfo, family_of, model_name
from langchain_ctxwin.errors import UnknownModelError


def is_registry(value: Any) -> bool:
    """True for an object that looks models up, such as a `ModelRegistry`; it is asked with each request."""
    return not isinstance(value, type) and callable(getattr(value, "lookup", None))


@dataclass(frozen=True, slots=True)
class FollowedLimits:
    """Limits of one model as a registry states them now: asked whenever they are read, which the registry caches."""

    registry: Any
    model: Any

    @property
    def limits(self) -> ModelLimits:
        """The limits that the registry states; for a model that it does not know, those that the model states.

        Raises:
            UnknownModelError: neither states a limit.
        """
        own = ModelLimits.of(self.model)
        try:
            listed: ModelLimits = self.registry.lookup(self.model).limits
        except UnknownModelError:
            if not own.known:
                raise
            return own
        output, requested = listed.max_output_tokens, own.requested_output_tokens
        if requested is None or (
            listed.context_window is not None and requested >= listed.context_window
        ):
            return listed
        output = output if output is None or requested <= output else None
        return replace(
            listed, requested_output_tokens=requested, max_output_tokens=output
        )

    @property
    def name(self) -> str:
        """Name of the model."""
        return model_name(self.model)

    @property
    def tokenizer_family(self) -> str:
        """Family of its tokenizer."""
        return family_of(self.model)


def followed(limits: Any, learned: Any) -> Any:
    """Return limits that follow the registry they were looked up in, where that is the memory of an engine, too."""
    is_looked_up = isinstance(limits, ModelInfo) and is_registry(learned)
    return FollowedLimits(learned, limits) if is_looked_up else limits
