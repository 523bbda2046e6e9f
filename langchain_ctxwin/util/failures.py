"""Failures: logged without the texts of others, and once while they last."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from langchain_ctxwin.errors import ContextWindowError, SummarizationError
from langchain_ctxwin.util.log import log


class FailureLog:
    """Warns about a lasting failure once, and again when its reason changes or when it comes back."""

    def __init__(self, **about: str) -> None:  # what each warning carries
        self._about = about
        self._reasons: dict[str, str] = {}

    def note(self, event: str, reason: str) -> None:
        """Log a warning unless the same was noted last; an empty reason says that it is over."""
        if reason and self._reasons.get(event) != reason:
            log.warning(event, reason=reason, **self._about)
        self._reasons[event] = reason


def log_failure(
    event: str,
    error: BaseException,
    *,
    timeout_seconds: float | None = None,
    **about: Any,
) -> None:
    """Warn of an error by its class, its status and a digest of its text, which may quote messages and keys.

    Args:
        event: what failed.
        error: what was raised.
        timeout_seconds: how long an answer was waited for.
        about: what the warning carries beside it.
    """
    log.warning(
        event,
        **about,
        error=reason_of(error, timeout_seconds=timeout_seconds),
        digest=digest_of(str(error)),
    )


def digest_of(text: str) -> str:
    """Return a few characters that tell equal texts from others."""
    encoded = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=4).hexdigest() if text else ""


def reason_of(error: BaseException, *, timeout_seconds: float | None = None) -> str:
    """Return the class and status of an error; foreign texts may quote messages, or an address with a key."""
    name = type(error).__name__
    if isinstance(error, TimeoutError) and timeout_seconds is not None:
        return f"{name}: no answer within {timeout_seconds:g} seconds"
    is_ours = isinstance(error, ContextWindowError) and not isinstance(
        error, SummarizationError
    )
    if is_ours and error.__cause__ is None:  # else it may quote the error behind it
        return f"{name}: {error}"
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return f"{name}: {os.strerror(error.errno)}"  # its own text may be anybody's
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"{name}: HTTP {status}" if isinstance(status, int) else name
