"""What is shown in a terminal: tables as lines of text, and texts of others without control characters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> Iterator[str]:
    """Yield a line per row, its cells under those of the first one.

    Args:
        rows: of one length each.
        right: headings, in the first row, of what is aligned at its end, such as numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = [">" if heading in right else "<" for heading in rows[0]] if rows else []
    for row in rows:
        yield "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)).rstrip()


def escaped(text: str) -> str:
    """Return a text with everything that is no character to see, such as control characters, escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
