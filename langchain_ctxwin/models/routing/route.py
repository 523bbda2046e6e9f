"""What was decided about one request: the model, why, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo


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
