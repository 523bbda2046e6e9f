"""How is told what happens to a watched file? In the log; one that fails is no reason to stop watching."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import structlog

log = structlog.get_logger("langchain_ctxwin")


def tell(level: Literal["info", "warning", "exception"], event: str, **values: Any) -> None:
    """Log an event."""
    with suppress(Exception):  # a closed stream, a processor with a fault: there is nobody else to tell
        getattr(log, level)(event, **values)
