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
MANY = ["text"] + ["call"] * 20 + ["tool"] * 20


def ledger_of(name):
    return caches.CacheLedger(rules_of(name))


def rules_of(name):
    return next(rules for rules in caches.RULES if rules.name == name)


def request_of(sizes, seconds=0.0, marks=(), *, kinds=None, answer=()):
    """A request of blocks that differ by their place; a negative size is a block that changed."""
    kinds = kinds or ["text"] * len(sizes)
    blocks = [
        caches.Block(
            kind=kind,
            text=f"{at} {'changed' if size < 0 else 'same'}",
            tokens=abs(size),
            is_marked=at + 1 in marks,
        )
        for at, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]
    answers = [
        caches.Block(kind="text", text=f"{len(sizes) + at} same", tokens=size)
        for at, size in enumerate(answer)
    ]
    return caches.Request(blocks, seconds=seconds, answer=answers)


BILLS = {
    "Anthropic writes to the mark, reads back at a tenth, and what follows is plain input": (
        *(
            ANTHROPIC,
            [
                request_of([1_000, 1_000, 500], 0, [2]),
                request_of([1_000, 1_000, 500, 300], 10, [4]),
            ],
        ),
        [(0, 2_000), (2_000, 800)],
    ),
    "it expires after five minutes, which each read starts again": (
        *(
            ANTHROPIC,
            [request_of([2_000], seconds, [1]) for seconds in (0, 299, 598, 899)],
        ),
        [(0, 2_000), (2_000, 0), (2_000, 0), (0, 2_000)],
    ),
    "and no further": (
        *(
            ANTHROPIC,
            [request_of([2_000], 0, [1]), request_of([2_000] + [1] * 20, 1, [21])],
        ),
        [(0, 2_000), (0, 2_020)],
    ),
    "a run of results is one position": (
        *(
            ANTHROPIC,
            [
                request_of([2_000], 0, [1]),
                request_of([2_000] + [1] * 40, 1, [41], kinds=MANY),
            ],
        ),
        [(0, 2_000), (2_000, 40)],
    ),
    # The changed block begins as the other did: two of its nine characters are 44 tokens.
    "OpenAI reads steps of 128 of any prefix from 1,024 on, for ten minutes": (
        OPENAI,
        [
            request_of([1_000, 200]),
            request_of([1_000, 200, 50], 1),
            request_of([1_000, -200], 2),
            request_of([1_000, 200], 700),
        ],
        [(0, 0), (1_152, 0), (1_024, 0), (0, 0)],
    ),
    "its newer models bill writes, mark each end, and look back to the start": (
        *(OPENAI_WRITES, [request_of([2_000]), request_of([2_000] + [10] * 30, 1_700)]),
        [(0, 2_000), (2_000, 300)],
    ),
    # A common part is a unit only after it was seen twice.
    "DeepSeek reads whole requests and what two had in common": (
        *(
            "DeepSeek",
            [
                request_of([100, 500]),
                request_of([100, -500], 1),
                request_of([100, -500, 20], 2),
            ],
        ),
        [(0, 0), (0, 0), (600, 0)],
    ),
}
"""What is billed -> rules, requests, and the tokens that each reads and writes."""


@pytest.mark.parametrize(("name", "requests", "expected"), BILLS.values(), ids=BILLS)
def test_each_request_is_billed_as_published(name, requests, expected):
    ledger, found = ledger_of(name), [(0, 0)]
    for request in requests:
        ledger.record(request)
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
