"""How do providers, gateways and runtimes word refusals? Written by this project in each one's documented shape."""

from pathlib import Path

from langchain_ctxwin import ContextOverflow

BOTH = "input_plus_output"


def _tables():
    """Read `overflow_wordings.txt`: under each title lines of limit, size, output and kind (or "none"), and a text."""
    tables = {}
    for line in (
        Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    ):
        if line.startswith("# "):
            rows = tables.setdefault(line.removeprefix("# "), [])
            continue
        sizes, text = line.split(" | ", 1)
        rows.append((text, None if sizes == "none" else _overflow(*sizes.split())))
    return tables


def _overflow(limit, actual, output, kind):
    tokens = [None if size == "-" else int(size) for size in (limit, actual, output)]
    return ContextOverflow(*tokens[:2], BOTH if kind == "both" else "input", tokens[2])


TABLES = _tables()
"""Title -> refusals and what should be read from each; None for other failures."""

OVERFLOWS = [
    (text, expected)
    for rows in TABLES.values()
    for text, expected in rows
    if expected is not None
]
LOOK_ALIKES = [
    text for rows in TABLES.values() for text, expected in rows if expected is None
]
