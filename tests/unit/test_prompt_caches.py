"""Does the ledger of the benchmarks bill what providers publish about their prompt caches?"""

import importlib.util
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "prompt_caches.py"


@pytest.fixture(scope="module")
def caches():
    """The module of the benchmarks, which are not on the path."""
    spec = importlib.util.spec_from_file_location("prompt_caches_under_test", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def rules_named(caches, name):
    return next(rules for rules in caches.RULES if rules.name == name)


def request_of(caches, sizes, *, seconds=0.0, kinds=None, answer=()):
    """A request of blocks that differ by their place; a negative size is a block that changed."""
    kinds = kinds or ["text"] * len(sizes)
    blocks = [
        caches.Block(kind=kind, text=f"{at} {'changed' if size < 0 else 'same'}", tokens=abs(size))
        for at, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]
    answers = [caches.Block(kind="text", text=f"{len(sizes) + at} same", tokens=size) for at, size in enumerate(answer)]
    return caches.Request(blocks, seconds=seconds, answer=answers)


def billed(caches, name, *steps):
    """The reads, the writes and the price of these after each step: a request, and the marks in it."""
    ledger, found = caches.CacheLedger(rules_named(caches, name)), []
    for request, positions, *lives in steps:
        before = ledger.bill.read_tokens, ledger.bill.written_tokens, ledger.bill.write
        life = lives[0] if lives else 0
        ledger.record(request, [caches.Mark(position=position, life=life) for position in positions])
        after = ledger.bill.read_tokens, ledger.bill.written_tokens, ledger.bill.write
        found.append(tuple(b - a for a, b in zip(before, after, strict=True)))
    return found


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


def test_anthropic_writes_to_the_mark_and_reads_back_at_a_tenth(caches):
    """Only what ends at a mark is kept; what follows it is plain input."""
    first, second = request_of(caches, [1_000, 1_000, 500]), request_of(caches, [1_000, 1_000, 500, 300], seconds=10)
    found = billed(caches, "Anthropic, least 1,024", (first, [2]), (second, [4]))
    assert found == [(0, 2_000, 2_500.0), (2_000, 800, 1_000.0)]


def test_anthropic_keeps_nothing_that_is_below_the_least(caches):
    """No error, no write, no read."""
    request = request_of(caches, [1_000])
    assert billed(caches, "Anthropic, least 1,024", (request, [1]), (request, [1])) == [(0, 0, 0.0), (0, 0, 0.0)]


def test_anthropic_expires_after_five_minutes_unless_it_is_read(caches):
    """Each read starts the five minutes again."""
    steps = [(request_of(caches, [2_000], seconds=seconds), [1]) for seconds in (0, 299, 598, 899)]
    assert [read for read, *_ in billed(caches, "Anthropic, least 1,024", *steps)] == [0, 2_000, 2_000, 0]


def test_anthropic_keeps_for_an_hour_at_twice_the_price(caches):
    """The longer lifetime is dearer to write."""
    steps = [(request_of(caches, [2_000], seconds=seconds), [1], 1) for seconds in (0, 3_600, 7_201)]
    assert billed(caches, "Anthropic, least 1,024", *steps) == [
        (0, 2_000, 4_000.0),
        (2_000, 0, 0.0),
        (0, 2_000, 4_000.0),
    ]


def test_anthropic_looks_twenty_positions_back(caches):
    """The mark counts as the first of them."""
    first = request_of(caches, [2_000])
    near, far = (request_of(caches, [2_000] + [1] * added, seconds=1) for added in (19, 20))
    assert billed(caches, "Anthropic, least 1,024", (first, [1]), (near, [20]))[1][0] == 2_000
    assert billed(caches, "Anthropic, least 1,024", (first, [1]), (far, [21]))[1][0] == 0


def test_anthropic_counts_a_run_of_results_as_one_position(caches):
    """Many parallel calls do not push an entry out of sight."""
    kinds = ["text"] + ["call"] * 20 + ["result"] * 20
    wide = request_of(caches, [2_000] + [1] * 40, seconds=1, kinds=kinds)
    assert billed(caches, "Anthropic, least 1,024", (request_of(caches, [2_000]), [1]), (wide, [41]))[1][0] == 2_000


@pytest.mark.parametrize("lives", [(0, 0, 0, 0, 0), (0, 1)])
def test_anthropic_refuses_five_marks_and_short_lives_before_long_ones(caches, lives):
    """As the provider does, with a 400."""
    ledger = caches.CacheLedger(rules_named(caches, "Anthropic, least 1,024"))
    marks = [caches.Mark(position=at + 1, life=life) for at, life in enumerate(lives)]
    with pytest.raises(ValueError, match=r"at most 4|longest have to come first"):
        ledger.record(request_of(caches, [1_000] * 5), marks)


def test_openai_reads_whole_steps_of_any_prefix_from_the_least_on(caches):
    """1,024 tokens and then steps of 128, for ten minutes."""
    first = request_of(caches, [1_000, 200])
    longer, changed = request_of(caches, [1_000, 200, 50], seconds=1), request_of(caches, [1_000, -200], seconds=2)
    late = request_of(caches, [1_000, 200], seconds=700)
    steps = [(one, []) for one in (first, longer, changed, late)]
    # the changed block begins as the other did: two of its nine characters are 44 tokens
    assert [read for read, *_ in billed(caches, "OpenAI, read .1", *steps)] == [0, 1_152, 1_024, 0]


def test_openai_bills_writes_of_its_newer_models_and_looks_back_to_the_start(caches):
    """The end of each request is marked by the provider."""
    first, second = request_of(caches, [2_000]), request_of(caches, [2_000] + [10] * 30, seconds=1_700)
    assert billed(caches, "OpenAI, writes billed", (first, []), (second, [])) == [
        (0, 2_000, 2_500.0),
        (2_000, 300, 375.0),
    ]


def test_gemini_stores_an_explicit_cache_for_its_whole_hour(caches):
    """Reading does not prolong it; a later request has it made anew."""
    ledger = caches.CacheLedger(rules_named(caches, "Gemini explicit, small"))
    for seconds in (0, 3_000, 4_000):
        ledger.record(request_of(caches, [2_000, 500], seconds=seconds), [caches.Mark(position=1)])
    bill = ledger.bill
    assert (bill.written_tokens, bill.read_tokens, bill.input) == (4_000, 2_000, 1_500)
    assert bill.storage == pytest.approx(3.33 * 4_000)


def test_deepseek_reads_whole_requests_and_what_two_had_in_common(caches):
    """A common part is a unit only after it was seen twice."""
    first, second, third = ([100, 500], [100, -500], [100, -500, 20])
    steps = [(request_of(caches, sizes, seconds=at), []) for at, sizes in enumerate((first, second, third))]
    other = caches.Request(
        [*request_of(caches, [100]).blocks, caches.Block(kind="text", text="other", tokens=9)], seconds=9
    )
    assert [read for read, *_ in billed(caches, "DeepSeek", *steps, (other, []))] == [0, 0, 600, 100]


def test_llama_server_holds_the_last_request_and_its_answer(caches):
    """One slot: whatever came in between is gone."""
    first = request_of(caches, [10], answer=[7])
    second = request_of(caches, [10, 7, 5], seconds=1)
    assert [read for read, *_ in billed(caches, "llama.cpp, tokens read", (first, []), (second, []))] == [0, 17]
    other = caches.Request([caches.Block(kind="text", text="other", tokens=9)], seconds=1)
    steps = [(first, []), (other, []), (second, [])]
    assert [read for read, *_ in billed(caches, "llama.cpp, tokens read", *steps)] == [0, 0, 0]


def test_the_parts_of_a_bill_add_up(caches):
    """Input, reads, writes, storage, output and summaries are the total, also of two bills."""
    ledger = caches.CacheLedger(rules_named(caches, "Anthropic, least 1,024"))
    for seconds in (0, 1):
        ledger.record(request_of(caches, [2_000, 100], seconds=seconds, answer=[10]), [caches.Mark(position=1)])
    ledger.record_summary(input_tokens=1_900, output_tokens=100, cached_tokens=1_000)
    bill = ledger.bill
    assert (bill.input, bill.read, bill.write, bill.output, bill.summaries) == (200, 200.0, 2_500.0, 100.0, 1_500.0)
    total = caches.Bill(most_marks=3)
    total.add(bill)
    assert (total.total, total.most_marks) == (bill.total, 3)
