"""Does the ledger of the benchmarks bill what providers publish about their prompt caches?"""

import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import cost as caches  # stands beside the other benchmarks

ANTHROPIC, OPENAI = "Anthropic, least prefix 1,024", "OpenAI, writes billed"


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
    "OpenAI bills writes, and looks back to the start": (
        OPENAI,
        [([2_000], 0, [1]), ([2_000] + [10] * 30, 1_700, [31])],
        [(0, 2_000), (2_000, 300)],
    ),
}
"""What is billed -> rules, requests, and the tokens that each reads and writes."""


@pytest.mark.parametrize(("name", "requests", "expected"), BILLS.values(), ids=BILLS)
def test_each_request_is_billed_as_published(name, requests, expected):
    ledger = caches.CacheLedger(rules_of(name))
    assert [ledger.taken(request_of(*one)) for one in requests] == expected


@pytest.mark.parametrize(
    ("name", "marks"),
    [(ANTHROPIC, [1, 4]), (OPENAI, [1, 4])],
)
def test_the_breakpoints_that_are_billed_are_those_that_we_send_and_the_end(
    name, marks
):
    messages = [
        SystemMessage("Be brief."),
        HumanMessage("Who?"),
        AIMessage("I."),
        HumanMessage("Why?"),
    ]
    rules = rules_of(name)
    sent, said = caches.marked_by_us(rules, messages, []), AIMessage("So.")
    request = caches.laid_out(sent, [], said, seconds=0.0)
    assert request.marks == marks
