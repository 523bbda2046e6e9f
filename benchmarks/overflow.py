"""How many overflow errors does `classify_overflow` recognise, and what does it take for one that is none?"""

from __future__ import annotations

from common import parser_of, rows_of
from langchain_ctxwin.core.overflow import classify_overflow

DATA_FILE = "overflow_errors.jsonl.gz"
OVERFLOW = "overflow"


class ProviderError(Exception):
    """An error text with the HTTP status that was seen with it."""

    def __init__(self, text, status_code):
        super().__init__(text)
        self.status_code = status_code


def main():
    data = parser_of(__doc__, DATA_FILE, needs_data=True).parse_args().data
    rows = list(rows_of(data / DATA_FILE))
    scored = [row for row in rows if not row["ambiguous"]]
    print(f"{len(rows)} texts, {len(scored)} scored")
    print_scores(scored)


def print_scores(rows):
    found = [(row, classify_overflow(error_of(row))) for row in rows]
    overflows = [(row, result) for row, result in found if row["label"] == OVERFLOW]
    missed = [row for row, result in overflows if result is None]
    false = [
        row for row, result in found if row["label"] != OVERFLOW and result is not None
    ]
    print(
        f"  recall           {ratio(len(overflows) - len(missed), len(overflows))}   goal >= 97.0%"
    )
    print(f"  false positives  {len(false)} of {len(rows) - len(overflows)}   goal 0")
    for name, key in (
        ("limit", "limit"),
        ("actual", "actual"),
        ("output", "requested_output"),
    ):
        stated = [(row, result) for row, result in overflows if row[key] is not None]
        right = [
            row for row, result in stated if result and getattr(result, key) == row[key]
        ]
        print(f"  {name:<8} parsed  {ratio(len(right), len(stated))}")
    kinds = [row for row, result in overflows if result and kind_of(row) == result.kind]
    print(f"  kind right       {ratio(len(kinds), len(overflows))}")
    print_rows("missed", missed)
    print_rows("false positive", false)


def error_of(row):
    return ProviderError(row["text"], row["status"] if row["status_seen"] else None)


def kind_of(row):
    return "input_plus_output" if row["kind"] == "input_plus_output" else "input"


def ratio(part, whole):
    return f"{part}/{whole} = {part / whole:.1%}" if whole else "0/0"


def print_rows(title, rows):
    for row in rows:
        print(f"    {title}: {row['id']} {row['provider']}: {row['text'][:160]!r}")


if __name__ == "__main__":
    main()
