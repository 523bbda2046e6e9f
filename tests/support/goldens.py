"""Texts that are stored, so that a change of them is noticed: whole ones by case and part, in one compressed file."""

import difflib
import json
import lzma
from itertools import islice
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "goldens"
SHOWN_LINES = 40


def stored(path):
    """Read the texts of every case."""
    return json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}


def store(path, cases):
    """Write the texts of every case, and print which of them are not what they were."""
    before = stored(path)
    for case in [*before, *(case for case in cases if case not in before)]:
        if message := difference(case, before.get(case, {}), cases.get(case, {})):
            print(message)  # noqa: T201  # for whoever writes them anew
    path.write_bytes(
        lzma.compress(
            json.dumps(cases, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            preset=9,
        )
    )


def difference(case, before, now):
    """Say which parts of a case differ, with the first one line by line; empty when none does."""
    differing = [
        part for part in {**before, **now} if before.get(part) != now.get(part)
    ]
    if not differing:
        return ""
    first = differing[0]
    old, new = (
        parts.get(first, "").replace("\\n", "\n").splitlines()
        for parts in (before, now)
    )
    lines = list(
        difflib.unified_diff(
            old, new, f"{first}, stored", f"{first}, now", lineterm="", n=2
        )
    )
    cut = (
        [f"... and {len(lines) - SHOWN_LINES} more lines"]
        if len(lines) > SHOWN_LINES
        else []
    )
    return "\n".join(
        [
            f"{case}: {len(differing)} of {len(now)} parts differ ({', '.join(islice(differing, 8))})"
        ]
        + [line[:200] for line in lines[:SHOWN_LINES]]
        + cut
    )
