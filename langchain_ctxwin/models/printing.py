"""The lines that `ctxwin models` prints: a table of models, and how sources are doing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.util.log import aligned

UNKNOWN = "-"
COLUMNS = {
    "MODEL": "name",
    "PROVIDER": "provider",
    "WINDOW": "context_window",
    "INPUT": "max_input_tokens",
    "OUTPUT": "max_output_tokens",
    "$ IN": "input_price",
    "$ OUT": "output_price",
    "$ CACHED": "cache_read_price",
}
FROM = "FROM"
LEGEND = "Tokens; USD per million tokens; INPUT is a limit of its own beside the window; - is unknown."


def model_table(infos: Sequence[ModelInfo]) -> Iterator[str]:
    """Yield the lines of a table of models, each with the source of its limits."""
    rows = [
        (
            *(_printed(getattr(info, field)) for field in COLUMNS.values()),
            info.limits.source,
        )
        for info in infos
    ]
    numbers = frozenset(COLUMNS) - {"MODEL", "PROVIDER"}
    yield from aligned([(*COLUMNS, FROM), *rows], right=numbers)
    yield LEGEND


def source_lines(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield a line per source, with its fault."""
    for name, fault in sources.items():
        yield f"{name}: {fault}" if fault else name


def _printed(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return UNKNOWN if value is None else str(value)
