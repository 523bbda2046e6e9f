"""What does one request say that decides who may answer it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage

from langchain_ctxwin.models.routing.sizing import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to be routed."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Any] = ()
    conversation: str = ""
    """Key of the conversation that stays with its model; empty when the request stands alone."""

    requires: tuple[str, ...] = ()
    """Capabilities beside those that tools and media show."""

    exclude: Mapping[str, str] = field(default_factory=dict)
    """Candidates that may not be chosen, and why."""

    estimated_tokens: int | None = None
    """Size as it was measured elsewhere, an upper bound."""

    sizes: Mapping[str, Size] | None = None
    """Sizes by tokenizer family as they were measured elsewhere; a family that is missing is counted."""

    output_tokens: int | None = None
    """What the call asks for; None leaves it to the model's own setting."""

    reserve: int | None = None
    """Tokens that the caller keeps for the answer, whatever else says so."""

    above_tokens: int = 0
    """An input limit that refused this very request."""

    prefer: str = ""
    """Candidate that the caller asks for: it is taken if it can do what the request needs, whatever its size."""

    prefer_reason: str = ""
    """Why the caller asks for it, when another decision stands behind it."""

    kept: str = ""
    """Candidate that the conversation had so far, when the caller keeps count of that."""

    cached_tokens: int | None = None
    """What of the request the kept candidate has seen, when the caller knows; None takes the router's own memory."""

    renew: bool = False
    """True when the prefix changed, so that there is no prompt cache to stay for."""

    @property
    def text(self) -> str:
        """What the user asks: the text of the last user message."""
        return next((message.text for message in reversed(self.messages) if isinstance(message, HumanMessage)), "")
