"""Does the ledger of the benchmarks bill what providers publish about their prompt caches?"""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import cost as caches  # stands beside the other benchmarks

ANTHROPIC, OPENAI, OPENAI_WRITES = (
    "Anthropic, least prefix 1,024",
    "OpenAI, cached at a tenth",
    "OpenAI, writes billed",
)


def rules_of(name):
    return next(rules for rules in caches.RULES if rules.name == name)


def request_of(sizes, seconds=0.0, marks=()):
    """A request of blocks that differ by their place; a negative size is a block that changed."""
    blocks = [
        caches.Block(
            kind="text",
            text=f"{at} {'changed' if size < 0 else 'same'}",
            tokens=abs(size),
            is_marked=at + 1 in marks,
        )
        for at, size in enumerate(sizes)
    ]
    return caches.Request(blocks, seconds=seconds, answer=[])


BILLS = {
    "Anthropic writes to the mark, reads back at a tenth, and what follows is plain input": (
        ANTHROPIC,
        [
            ([1_000, 1_000, 500], 0, [2]),
            ([1_000, 1_000, 500, 300], 10, [4]),
        ],
        [(0, 2_000), (2_000, 800)],
    ),
    "it expires after five minutes, which each read starts again": (
        ANTHROPIC,
        [([2_000], seconds, [1]) for seconds in (0, 299, 598, 899)],
        [(0, 2_000), (2_000, 0), (2_000, 0), (0, 2_000)],
    ),
    "and reads twenty blocks back, no further": (
        ANTHROPIC,
        [([2_000], 0, [1]), ([2_000] + [1] * 20, 1, [21])],
        [(0, 2_000), (0, 2_020)],
    ),
    # The changed block begins as the other did: two of its nine characters are 44 tokens.
    "OpenAI reads steps of 128 of any prefix from 1,024 on, for ten minutes": (
        OPENAI,
        [
            ([1_000, 200],),
            ([1_000, 200, 50], 1),
            ([1_000, -200], 2),
            ([1_000, 200], 700),
        ],
        [(0, 0), (1_152, 0), (1_024, 0), (0, 0)],
    ),
    "its newer models bill writes, mark each end, and look back to the start": (
        OPENAI_WRITES,
        [([2_000],), ([2_000] + [10] * 30, 1_700)],
        [(0, 2_000), (2_000, 300)],
    ),
    # A common part is a unit only after it was seen twice.
    "DeepSeek reads whole requests and what two had in common": (
        "DeepSeek",
        [([100, 500],), ([100, -500], 1), ([100, -500, 20], 2)],
        [(0, 0), (0, 0), (600, 0)],
    ),
}
"""What is billed -> rules, requests, and the tokens that each reads and writes."""


@pytest.mark.parametrize(("name", "requests", "expected"), BILLS.values(), ids=BILLS)
def test_each_request_is_billed_as_published(name, requests, expected):
    ledger, found = caches.CacheLedger(rules_of(name)), [(0, 0)]
    for request in requests:
        ledger.record(request_of(*request))
        found.append((ledger.bill["read"], ledger.bill["written"]))
    assert [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(found)] == expected


@pytest.mark.parametrize(
    ("name", "marks"),
    [(ANTHROPIC, [1, 2, 4]), (OPENAI_WRITES, [1]), (OPENAI, []), ("DeepSeek", [])],
)
def test_the_breakpoints_that_are_billed_are_those_that_we_send(name, marks):
    messages = [
        SystemMessage("Be brief."),
        HumanMessage("Who?"),
        AIMessage("I."),
        HumanMessage("Why?"),
    ]
    sent, end = caches.marked_by_us(rules_of(name), messages, [])
    assert (
        caches.laid_out(sent, [], AIMessage("So."), seconds=0.0, end=end).marks == marks
    )
