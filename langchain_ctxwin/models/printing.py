"""The lines that `ctxwin models` prints: a table of models, how sources are doing, who states what about one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.registry import SourceState
from langchain_ctxwin.util.log import aligned

UNKNOWN = "-"
NUMBERS = ("WINDOW", "INPUT", "OUTPUT", "$ IN", "$ OUT", "$ CACHED")
HEADINGS = ("MODEL", "PROVIDER", *NUMBERS, "CAN", "WINDOW FROM", "NOTES")
LEGEND = "Tokens; USD per million tokens; INPUT is a limit of its own beside the window; - is unknown."

# How a capability is shown; others only in the explanation.
CAPABILITY_LETTERS = {
    "tools": "T",
    "images": "I",
    "audio": "A",
    "video": "V",
    "pdf": "P",
    "structured_output": "S",
    "reasoning": "R",
}


def model_table(infos: Sequence[ModelInfo]) -> Iterator[str]:
    """Yield the lines of a table of models; a conflict is a field of which some source states another value."""
    rows: list[tuple[str, ...]] = []
    for info in infos:
        limits = (
            info.context_window,
            info.max_input_tokens,
            info.max_output_tokens,
        )
        prices = (info.input_price, info.output_price, info.cache_read_price)
        letters = "".join(
            letter
            for name, letter in CAPABILITY_LETTERS.items()
            if name in info.capabilities
        )
        source = info.provenance.get("context_window") or info.provenance.get(
            "max_input_tokens"
        )
        words = (letters or UNKNOWN, source or UNKNOWN, "; ".join(_notes(info)))
        rows.append(
            (
                info.name,
                info.provider or UNKNOWN,
                *map(_printed, (*limits, *prices)),
                *words,
            )
        )
    yield from aligned([HEADINGS, *rows], right=frozenset(NUMBERS))
    yield LEGEND
    yield "CAN: " + ", ".join(
        f"{letter} {name}" for name, letter in CAPABILITY_LETTERS.items()
    )


def source_lines(states: Iterable[SourceState]) -> Iterator[str]:
    """Yield a line per source: how many models it lists, how old its list is, and its fault."""
    for state in states:
        plural = "" if state.models == 1 else "s"
        age = ""
        if (seconds := state.age_seconds) is not None:
            age = f", asked {f'{seconds:.0f} s' if seconds < 60 else f'{seconds / 60:,.0f} min'} ago"  # noqa: PLR2004
        fault = f": {state.fault}" if state.fault else ""
        yield f"{state.name} ({state.tier}): {state.models:,} model{plural}{age}{fault}"


def explanation_lines(info: ModelInfo) -> Iterator[str]:
    """Yield the facts about one model, field by field: the value that counts, and the values of other sources."""
    yield f"{info.provider}/{info.name}" if info.provider else info.name
    yield from (f"  {note}" for note in _notes(info))
    rows = list[tuple[str, ...]]()
    for field, source in info.provenance.items():
        rows.append((f"  * {field}", _printed(getattr(info, field)), source))
        others = info.conflicts.get(field, {})
        rows += [(f"    {field}", _printed(said), who) for who, said in others.items()]
    yield from aligned(rows)
    yield "  * the value that counts"


def _notes(info: ModelInfo) -> Iterator[str]:
    if info.deprecated:
        yield "deprecated"
    if info.retires_on:
        yield f"retires {info.retires_on.isoformat()}"
    if info.conflicts:
        yield f"sources disagree: {', '.join(info.conflicts)}"


def _printed(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, frozenset | tuple):
        return ", ".join(sorted(map(str, value)))
    return UNKNOWN if value is None else str(value)
