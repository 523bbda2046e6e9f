"""May a window be guessed where no source states one?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from langchain_ctxwin.core.model_info import ModelInfo


class GuessSource:
    """Allows a registry that has this source to guess a window from the output limit that another source states.

    It knows no model itself: the guess is `ModelLimits.guessed`, made from what the others said once they all have.
    """

    name: ClassVar[str] = "guess"
    tier: ClassVar[str] = "guess"
    cache_key: ClassVar[str] = "guess"

    def fetch(self, name: str | None) -> Sequence[ModelInfo]:  # noqa: ARG002  # the protocol's parameter
        """Return nothing."""
        return []
