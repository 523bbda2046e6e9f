"""Does the ledger of the benchmarks bill what providers publish about their prompt caches?"""

import importlib.util
import sys
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "prompt_caches.py"
ANTHROPIC, OPENAI = "Anthropic, least 1,024", "OpenAI, read .1"


@pytest.fixture(scope="module")
def caches():
    """The module of the benchmarks, which are not on the path."""
    spec = importlib.util.spec_from_file_location("prompt_caches_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def ledger_of(caches, name):
    return caches.CacheLedger(next(rules for rules in caches.RULES if rules.name == name))


def request_of(caches, sizes, *, seconds=0.0, kinds=None, answer=(), first=0):
    """A request of blocks that differ by their place; a negative size is a block that changed."""
    kinds = kinds or ["text"] * len(sizes)
    blocks = [
        caches.Block(kind=kind, text=f"{at} {'changed' if size < 0 else 'same'}", tokens=abs(size))
        for at, (size, kind) in enumerate(zip(sizes, kinds, strict=True), first)
    ]
    answers = [caches.Block(kind="text", text=f"{len(sizes) + at} same", tokens=size) for at, size in enumerate(answer)]
    return caches.Request(blocks, seconds=seconds, answer=answers)


def test_every_number_of_a_rule_names_its_source(caches):
    """A number that is not the default is somebody's statement."""
    for rules in caches.RULES:
        stated = {
            one.name
            for one in fields(rules)
            if isinstance(getattr(rules, one.name), int | float | tuple)
            and not isinstance(getattr(rules, one.name), bool)
            and (one.default is MISSING or getattr(rules, one.name) != one.default)
        }
        assert stated <= rules.sources.keys(), rules.name


def sent(sizes, seconds=0, marks=(), *, life=0, **options):
    return {"sizes": sizes, "seconds": seconds, **options}, marks, life


MANY = ["text"] + ["call"] * 20 + ["result"] * 20
BILLS = {
    "Anthropic writes to the mark, reads back at a tenth, and what follows is plain input": (
        *(ANTHROPIC, [sent([1_000, 1_000, 500], 0, [2]), sent([1_000, 1_000, 500, 300], 10, [4])]),
        [(0, 2_000, 2_500.0), (2_000, 800, 1_000.0)],
    ),
    "it keeps nothing below the least, without an error": (ANTHROPIC, [sent([1_000], 0, [1])] * 2, [(0, 0, 0.0)] * 2),
    "it expires after five minutes, which each read starts again": (
        *(ANTHROPIC, [sent([2_000], seconds, [1]) for seconds in (0, 299, 598, 899)]),
        [0, 2_000, 2_000, 0],
    ),
    "it keeps for an hour at twice the price": (
        *(ANTHROPIC, [sent([2_000], seconds, [1], life=1) for seconds in (0, 3_600, 7_201)]),
        [(0, 2_000, 4_000.0), (2_000, 0, 0.0), (0, 2_000, 4_000.0)],
    ),
    "it looks twenty positions back, the mark first": (
        *(ANTHROPIC, [sent([2_000], 0, [1]), sent([2_000] + [1] * 19, 1, [20])]),
        [0, 2_000],
    ),
    "and no further": (ANTHROPIC, [sent([2_000], 0, [1]), sent([2_000] + [1] * 20, 1, [21])], [0, 0]),
    "a run of results is one position": (
        *(ANTHROPIC, [sent([2_000], 0, [1]), sent([2_000] + [1] * 40, 1, [41], kinds=MANY)]),
        [0, 2_000],
    ),
    # The changed block begins as the other did: two of its nine characters are 44 tokens.
    "OpenAI reads steps of 128 of any prefix from 1,024 on, for ten minutes": (
        *(OPENAI, [sent([1_000, 200]), sent([1_000, 200, 50], 1), sent([1_000, -200], 2), sent([1_000, 200], 700)]),
        [0, 1_152, 1_024, 0],
    ),
    "its newer models bill writes, mark each end, and look back to the start": (
        *("OpenAI, writes billed", [sent([2_000]), sent([2_000] + [10] * 30, 1_700)]),
        [(0, 2_000, 2_500.0), (2_000, 300, 375.0)],
    ),
    "llama.cpp holds the last request and its answer": (
        *("llama.cpp, tokens read", [sent([10], answer=[7]), sent([10, 7, 5], 1)]),
        [0, 17],
    ),
    "in one slot: what came in between is all there is": (
        *("llama.cpp, tokens read", [sent([10], answer=[7]), sent([9], 1, first=5), sent([10, 7, 5], 1)]),
        [0, 0, 0],
    ),
}
"""What is billed -> rules, requests with their marks, and the reads, or reads, writes and price, of each."""


@pytest.mark.parametrize(("name", "steps", "expected"), BILLS.values(), ids=BILLS)
def test_each_request_is_billed_as_published(caches, name, steps, expected):
    ledger, found = ledger_of(caches, name), []
    for request, positions, life in steps:
        before = ledger.bill.read_tokens, ledger.bill.written_tokens, ledger.bill.write
        marks = [caches.Mark(position=position, life=life) for position in positions]
        ledger.record(request_of(caches, **request), marks)
        after = ledger.bill.read_tokens, ledger.bill.written_tokens, ledger.bill.write
        found.append(tuple(b - a for a, b in zip(before, after, strict=True)))
    assert (found if isinstance(expected[0], tuple) else [read for read, *_ in found]) == expected


def test_deepseek_reads_whole_requests_and_what_two_had_in_common(caches):
    """A common part is a unit only after it was seen twice."""
    other = caches.Request(
        [*request_of(caches, [100]).blocks, caches.Block(kind="text", text="other", tokens=9)], seconds=9
    )
    ledger, reads = ledger_of(caches, "DeepSeek"), [0]
    sizes = [[100, 500], [100, -500], [100, -500, 20]]
    for request in [*(request_of(caches, one, seconds=at) for at, one in enumerate(sizes)), other]:
        ledger.record(request, [])
        reads.append(ledger.bill.read_tokens)
    assert [after - before for before, after in pairwise(reads)] == [0, 0, 600, 100]


@pytest.mark.parametrize("lives", [(0, 0, 0, 0, 0), (0, 1)])
def test_anthropic_refuses_five_marks_and_short_lives_before_long_ones(caches, lives):
    marks = [caches.Mark(position=at + 1, life=life) for at, life in enumerate(lives)]
    with pytest.raises(ValueError, match=r"at most 4|longest have to come first"):
        ledger_of(caches, ANTHROPIC).record(request_of(caches, [1_000] * 5), marks)


def test_gemini_stores_an_explicit_cache_for_its_whole_hour(caches):
    """Reading does not prolong it; a later request has it made anew."""
    ledger = ledger_of(caches, "Gemini explicit, small")
    for seconds in (0, 3_000, 4_000):
        ledger.record(request_of(caches, [2_000, 500], seconds=seconds), [caches.Mark(position=1)])
    bill = ledger.bill
    assert (bill.written_tokens, bill.read_tokens, bill.input) == (4_000, 2_000, 1_500)
    assert bill.storage == pytest.approx(3.33 * 4_000)


def test_the_parts_of_a_bill_add_up(caches):
    """Input, reads, writes, storage, output and summaries are the total, also of two bills."""
    ledger = ledger_of(caches, ANTHROPIC)
    for seconds in (0, 1):
        ledger.record(request_of(caches, [2_000, 100], seconds=seconds, answer=[10]), [caches.Mark(position=1)])
    ledger.record_summary(input_tokens=1_900, output_tokens=100, cached_tokens=1_000)
    bill = ledger.bill
    assert (bill.input, bill.read, bill.write, bill.output, bill.summaries) == (200, 200.0, 2_500.0, 100.0, 1_500.0)
    total = caches.Bill(most_marks=3)
    total.add(bill)
    assert (total.total, total.most_marks) == (bill.total, 3)
