"""What should somebody do about a model: it retires, its name is ambiguous, or nobody knows it?"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import UTC, datetime

import structlog

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.explaining import SourceState
from langchain_ctxwin.models.listing import Resolved
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.memo import Lru

MAX_TOLD = 10_000
"""Warnings remembered so that each is given once."""

_log = structlog.get_logger(__name__)


class Notices:
    """Warnings about models, each given once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: Lru[bool] = Lru(MAX_TOLD)

    def retirement(self, info: ModelInfo) -> None:
        """Warn that a model is deprecated or has a retirement date, and again when that has come."""
        if not info.deprecated and info.retires_on is None:
            return
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        is_retired = info.retires_on is not None and info.retires_on <= today
        event, action = ("retired", "choose another now") if is_retired else ("deprecated", "choose another in time")
        if self._is_news(event, info.provider, info.name):
            retires_on = info.retires_on and info.retires_on.isoformat()
            _log.warning(
                f"models.{event}", model=info.name, provider=info.provider, retires_on=retires_on, action=action
            )

    def choice(self, asked: str, resolved: Resolved) -> None:
        """Warn that of several providers the one with the smallest limits was taken."""
        if self._is_news("ambiguous", asked):
            taken, action = f"{resolved.provider}/{resolved.name}", "name the provider too, as in provider/name"
            _log.warning("models.ambiguous", model=asked, taken=taken, others=resolved.others, action=action)

    def _is_news(self, *about: Hashable) -> bool:
        return not self._told.get(about) and self._told.put(about, True)


def unknown(name: str, info: ModelInfo | None, near: Sequence[str], sources: Sequence[SourceState]) -> str:
    """Return why nothing is known, the nearest of the known names, and what to do."""
    remedy = "state its limits with an ExplicitSource, or pass ModelLimits(context_window=...)"
    if info is not None:
        guess = ", or allow a guess from its output limit" if info.max_output_tokens else ""
        return f"{name!r} is listed, but no source states its context window: {remedy}{guess}"
    states = (f"{source.name} failed: {source.fault}" if source.fault else source.name for source in sources)
    asked = f"{name!r} is listed by no source ({'; '.join(states) or 'there are none'})"
    return f"{asked}; the nearest known names are {', '.join(near)}: {remedy}" if near else f"{asked}: {remedy}"
