"""Warnings said once: a lasting trouble is logged again only when it changes or comes back."""

from __future__ import annotations

import structlog

from langchain_ctxwin.errors import ContextWindowError

_log = structlog.get_logger(__name__)


class SayOnce:
    """Warns about a lasting trouble once."""

    def __init__(self, **about: str) -> None:
        self._about = about
        self._told: dict[str, str] = {}

    def tell(self, event: str, reason: str) -> None:
        """Log a warning unless the same was told last; an empty reason says that it is over."""
        if reason and self._told.get(event) != reason:
            _log.warning(event, reason=reason, **self._about)
        self._told[event] = reason


def reason_of(error: BaseException) -> str:
    """Return the class and status of an error; foreign texts may quote an address with a key and are left out."""
    name = type(error).__name__
    if isinstance(error, ContextWindowError):
        return f"{name}: {error}"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"{name}: HTTP {status}" if isinstance(status, int) else name
