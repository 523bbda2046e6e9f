"""How do providers, gateways and runtimes word refusals? Written by this project in each one's documented shape."""

from pathlib import Path

from langchain_ctxwin import ContextOverflow


def _row(line):
    """Read a line: limit, size, output and kind (or "none"), then the text."""
    sizes, text = line.split(" | ", 1)
    if sizes == "none":
        return text, None
    *numbers, kind = sizes.split()
    limit, actual, output = (None if one == "-" else int(one) for one in numbers)
    if kind in {"bytes", "images"}:
        return text, ContextOverflow(unit=kind, most=limit)
    kind = "input_plus_output" if kind == "both" else "input"
    return text, ContextOverflow(limit, actual, kind, output)


LINES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
REFUSALS = [_row(line) for line in LINES if not line.startswith("# ")]
"""Refusals, and what should be read from each; None for other failures."""
