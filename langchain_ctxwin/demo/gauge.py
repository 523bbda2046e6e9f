"""How full is the window, and with what? One stacked bar over the whole context window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_ctxwin.demo.narration import Part

REGIONS = (
    ("system", "system_tokens", "blue", "s"),
    ("tools", "tool_tokens", "cyan", "t"),
    ("summary", "summary_tokens", "magenta", "m"),
    ("pinned", "pinned_tokens", "yellow", "p"),
    ("history", "history_tokens", "green", "h"),
    ("free", "free_tokens", "bright_black", "."),
    ("reserve", "reserved_tokens", "red", "r"),
)
"""Name, key in a report, color on a terminal, letter elsewhere; in the order in which they are drawn."""

BLOCK = "\u2588"


def regions(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of every region, what is free included; they add up to the window when the request fits."""
    free = max(0, report["input_limit"] - report["total_tokens"])
    return {name: int(({"free_tokens": free} | dict(report))[key]) for name, key, _, _ in REGIONS}


def cells(report: Mapping[str, Any], width: int) -> dict[str, int]:
    """Share `width` cells among the regions; rounding never moves a border by more than one cell.

    Example:
        >>> report = {"input_limit": 6, "total_tokens": 4, "system_tokens": 1, "tool_tokens": 1, "summary_tokens": 0}
        >>> cells(report | {"pinned_tokens": 0, "history_tokens": 2, "reserved_tokens": 2}, 8)["history"]
        2
    """
    sizes = regions(report)
    window = sum(sizes.values()) or 1
    shares, border, done = {}, 0, 0
    for name, tokens in sizes.items():
        done += tokens
        shares[name] = round(done * width / window) - border
        border += shares[name]
    return shares


def bar(report: Mapping[str, Any], width: int, *, is_plain: bool) -> list[Part]:
    """Return the stacked bar, in colored blocks or in letters."""
    shares = cells(report, width)
    return [((letter if is_plain else BLOCK) * shares[name], color) for name, _, color, letter in REGIONS]


def legend(*, is_plain: bool) -> list[Part]:
    """Return what the parts of a bar mean."""
    signs = [(f"{letter}={name}  " if is_plain else f"{BLOCK} {name}  ", color) for name, _, color, letter in REGIONS]
    return [("Gauge  ", ""), *signs]


def footer(report: Mapping[str, Any]) -> list[Part]:
    """Return the regions of the current request with their tokens."""
    sizes = regions(report)
    return [("now: ", "bold"), *((f"{name} {sizes[name]:,} ", color) for name, _, color, _ in REGIONS)]
