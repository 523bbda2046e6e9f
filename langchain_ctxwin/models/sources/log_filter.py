"""Does the HTTP client log an address with a key in it? Not for what the sources ask."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx

_asking: ContextVar[bool] = ContextVar("ctxwin_asking", default=False)


@contextmanager
def without_queries() -> Iterator[None]:
    """Keep queries out of what the client logs in this block; other requests of the program are logged as ever."""
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)


def _strip(record: logging.LogRecord) -> bool:
    if _asking.get() and isinstance(record.args, tuple):
        record.args = tuple(arg.copy_with(query=None) if isinstance(arg, httpx.URL) else arg for arg in record.args)
    return True


logging.getLogger("httpx").addFilter(_strip)
