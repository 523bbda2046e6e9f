"""Is a cursor good for exactly what it was signed for, and for nothing else?"""

import hashlib
import json
import math
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin import CursorSigner
from langchain_ctxwin.errors import ConfigError, CursorExpiredError, CursorTamperedError
from langchain_ctxwin.tool_results import Cursor
from langchain_ctxwin.tool_results import cursors as module
from langchain_ctxwin.tool_results.cursors import MAX_CHARS, MAX_OFFSET, args_digest
from support.result_stores import FakeClock

KEY = "the first key of this test, 32 characters"
NOW = FakeClock().now
HEX_ID = "0123456789abcdef" * 2
CURSOR = Cursor("search", "d1", "tenant/thread", "r-1_x", 40)
URL_SAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

texts = st.text(st.characters(codec=None), max_size=12)  # any code point, lone surrogates too
result_ids = st.one_of(st.text(URL_SAFE, min_size=1, max_size=17), st.uuids().map(lambda value: value.hex))
cursors = st.builds(Cursor, texts, texts, texts, result_ids, st.integers(0, 36**7 - 1))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def signer(clock):
    return CursorSigner(KEY, clock=clock)


def verified(signer, text, cursor=CURSOR):
    """Verify a text as belonging to the call of `cursor`."""
    return signer.verify(text, tool=cursor.tool, args_digest=cursor.args_digest, thread=cursor.thread)


def is_refused(signer, text, cursor=CURSOR):
    """Say whether a text is refused as tampered with."""
    try:
        verified(signer, text, cursor)
    except CursorTamperedError:
        return True
    return False


def flipped(text):
    """Every text that differs in one bit of one byte."""
    data = text.encode()
    for place in range(len(data)):
        for bit in range(8):
            yield (data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]).decode("latin-1")


def test_a_cursor_has_the_documented_form(signer):
    assert signer.sign(CURSOR) == "r-1_x.14.tro8w0.T35oO6sjnhrVF0PDJnUT_A"


@given(cursor=cursors, age_seconds=st.integers(0, 600))
def test_what_was_signed_verifies_until_it_expires(cursor, age_seconds):
    clock = FakeClock()
    signer = CursorSigner(KEY, clock=clock)
    text = signer.sign(cursor)
    clock.now += age_seconds
    assert (verified(signer, text, cursor), signer.peek(text)) == (cursor, cursor.result_id)
    assert len(text) <= MAX_CHARS == 60


def test_the_longest_id_and_offset_fit():
    signer = CursorSigner(KEY, clock=lambda: 36.0**7 - 1)
    cursor = Cursor("t", "d", "th", "a" * 15, MAX_OFFSET - 1)
    text = signer.sign(cursor)
    assert (len(text), verified(signer, text, cursor)) == (60, cursor)


@pytest.mark.parametrize("result_id", ["_", "-", "-_-", "__", "A", "_" * 17, "-" * 17, HEX_ID])
def test_ids_of_odd_characters_are_told_apart_from_the_tag(signer, result_id):
    cursor = Cursor("t", "d", "th", result_id, 0)
    text = signer.sign(cursor)
    assert (verified(signer, text, cursor), text.count(".")) == (cursor, 3)


def test_no_single_bit_can_be_flipped(signer):
    for cursor in (CURSOR, Cursor("t", "d", "th", HEX_ID, 7)):
        changed = list(flipped(signer.sign(cursor)))
        assert [text for text in changed if not is_refused(signer, text, cursor)] == []


@given(cursor=cursors, place=st.integers(0, 60), character=st.characters(codec=None))
def test_no_character_can_be_inserted_removed_or_replaced(cursor, place, character):
    signer = CursorSigner(KEY, clock=FakeClock())
    text = signer.sign(cursor)
    place %= len(text) + 1
    changed = {
        text[:place] + character + text[place:],
        text[:place] + text[place + 1 :],
        text[:place] + character + text[place + 1 :],
    } - {text}
    assert [text for text in changed if not is_refused(signer, text, cursor)] == []


def test_only_one_spelling_is_accepted(signer):
    text = signer.sign(Cursor("search", "d1", "tenant/thread", HEX_ID, 40))
    packed, offset, time_36, tag = text.split(".")
    spellings = [
        f"{packed}.{offset.upper()}.{time_36.upper()}.{tag}",
        f"{packed}.0{offset}.{time_36}.{tag}",
        f"{packed}.{offset}.0{time_36}.{tag}",
        f"{HEX_ID}.{offset}.{time_36}.{tag}",
        f"{packed[:-1]}{chr(ord(packed[-1]) + 1)}.{offset}.{time_36}.{tag}",
        f"{packed}.{offset}.{time_36}.{tag[:-1]}{chr(ord(tag[-1]) + 1)}",
    ]
    padded = [f"{text}{added}" for added in ("=", "==", " ", "\n", "\0", ".", "A", "é", "\ud800")]
    padded += [f"{added}{text}" for added in (" ", "\n", "=")]
    assert [spelling for spelling in [*spellings, *padded] if not is_refused(signer, spelling)] == []


def test_the_spelling_is_checked_without_the_key(signer):
    text = signer.sign(CURSOR)
    for changed in (f"{text}=", text[:-1], text.upper(), text[:-1] + "B", ""):
        with pytest.raises(CursorTamperedError):
            signer.peek(changed)


@pytest.mark.parametrize("name", ["tool", "args_digest", "thread"])
def test_a_cursor_is_good_for_its_own_call_only(signer, name):
    call = {"tool": "search", "args_digest": "d1", "thread": "tenant/thread"}
    with pytest.raises(CursorTamperedError, match="belongs to another call, thread or key"):
        signer.verify(signer.sign(CURSOR), **(call | {name: "other"}))


@given(one=cursors, other=cursors)
def test_no_two_calls_share_a_tag(one, other):
    signer = CursorSigner(KEY, clock=FakeClock())
    calls = [(cursor.tool, cursor.args_digest, cursor.thread) for cursor in (one, other)]
    assert is_refused(signer, signer.sign(one), other) == (calls[0] != calls[1])


@pytest.mark.parametrize(("one", "other"), [
    (("ab", "c", "d"), ("a", "bc", "d")), (("a", "", "b"), ("a", "b", "")), (("😀", "", ""), ("\ud83d\ude00", "", "")),
    (("\ud800", "", ""), ("?", "", "")),
])  # fmt: skip
def test_fields_do_not_run_into_each_other(signer, one, other):
    assert is_refused(signer, signer.sign(Cursor(*one, "r", 0)), Cursor(*other, "r", 0))


GARBAGE = [
    *("", ".", "...", "a.0.0.", "x" * 60, "x" * 61, "é" * 20, "\ud800" * 20, "\0", "a.0.0." + "é" * 22),
    *(None, 5, 1.5, b"a.0.0.AAAAAAAAAAAAAAAAAAAAAA", bytearray(b"a"), ["a"], {}, object()),
]


@pytest.mark.parametrize("text", GARBAGE, ids=lambda text: f"{text!r:.20}")
def test_garbage_is_refused(signer, text):
    for read in (signer.peek, lambda text: verified(signer, text)):
        with pytest.raises(CursorTamperedError, match="copy it from the page before exactly as it stands there"):
            read(text)


@pytest.mark.parametrize("unit", ["a", "=", "\ud800", b"a"], ids=repr)
def test_a_megabyte_of_garbage_costs_nothing(signer, unit):
    garbage = unit * 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(CursorTamperedError) as raised:
            verified(signer, garbage)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (peak < 50_000, len(str(raised.value)) < 300) == (True, True)


@pytest.mark.parametrize("age", [-300, 0, 600])
def test_a_cursor_is_good_until_it_expires_and_clocks_may_differ(signer, clock, age):
    text = signer.sign(CURSOR)
    clock.now += age
    assert verified(signer, text) == CURSOR


@pytest.mark.parametrize(("age", "said"), [
    (600.5, "is 600 seconds old, it was good for 600"), (1234, "is 1,234 seconds old, it was good for 600"),
    (-3_600, "is of a time 3,600 seconds from now, clocks may differ by 300"),
])  # fmt: skip
def test_an_old_cursor_and_one_of_a_time_that_has_not_come_are_refused(signer, clock, age, said):
    text = signer.sign(CURSOR)
    clock.now += age
    with pytest.raises(CursorExpiredError) as raised:
        verified(signer, text)
    assert str(raised.value) == (
        f"the cursor {text} {said}: use the newest cursor of this result, or call the tool again only if repeating it "
        "is safe"
    )


def test_a_cursor_never_expires_early(clock):
    clock.now = NOW + 0.9
    signer = CursorSigner(KEY, ttl_seconds=10, clock=clock)
    text = signer.sign(CURSOR)
    clock.now += 10
    assert verified(signer, text) == CURSOR


def test_a_forged_cursor_is_not_told_its_age(signer, clock):
    text = signer.sign(CURSOR)
    clock.now += 10_000
    assert is_refused(CursorSigner("another key", clock=clock), text)


def test_a_time_before_the_epoch_is_the_epoch():
    signer = CursorSigner(KEY, clock=lambda: -5.0)
    text = signer.sign(CURSOR)
    assert (text.split(".")[2], verified(signer, text)) == ("0", CURSOR)


def test_keys_are_rotated(clock):
    old, both, new = (CursorSigner(keys, clock=clock) for keys in (["old"], ["old", b"new"], ("new",)))
    assert (verified(both, old.sign(CURSOR)), both.sign(CURSOR)) == (CURSOR, new.sign(CURSOR))
    assert (is_refused(old, both.sign(CURSOR)), is_refused(new, old.sign(CURSOR))) == (True, True)


@pytest.mark.parametrize(("keys", "message"), [
    ("", "key 0 is empty"), (b"", "key 0 is empty"), ("  ", "key 0 is empty"), ([], "keys is empty"),
    ((), "keys is empty"), (["hidden", ""], "key 1 is empty"), (["hidden", 5], "key 1 is int"),
    (["hidden", None], "key 1 is NoneType"), (None, "keys is NoneType"), (5, "keys is int"),
    ({"hidden"}, "keys is set"), ({"hidden": 1}, "keys is dict"), (bytearray(b"hidden"), "keys is bytearray"),
    (memoryview(b"hidden"), "keys is memoryview"),
])  # fmt: skip
def test_keys_that_are_none_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message) as raised:
        CursorSigner(keys)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("ttl_seconds", [0, -1, math.nan, math.inf, "600", None, True])
def test_a_time_to_live_that_is_none_is_refused(ttl_seconds):
    with pytest.raises(ConfigError, match=r"ttl_seconds=.*: pass a positive, finite number of seconds"):
        CursorSigner(KEY, ttl_seconds=ttl_seconds)


def test_a_key_may_hold_any_character_and_is_never_shown(clock):
    signer = CursorSigner(["\udcff hidden", b"hidden 2"], clock=clock)
    assert verified(signer, signer.sign(CURSOR)) == CURSOR
    assert (repr(signer), str(signer)) == ("CursorSigner(keys=2, ttl_seconds=600)",) * 2


def test_signers_of_one_process_share_a_random_key(monkeypatch):
    monkeypatch.setattr(module, "_first_use", threading.Lock())
    with capture_logs() as logs:
        one, other = CursorSigner.random(), CursorSigner.random(ttl_seconds=5)
    assert verified(other, one.sign(CURSOR)) == CURSOR
    assert logs == [
        {
            "event": "cursors.process_key",
            "effect": "cursors end with this process, and other processes refuse them",
            "remedy": "set cursor_keys or CTXWIN_TOOL_RESULTS_CURSOR_KEYS, or pass a CursorSigner with keys of yours",
            "log_level": "info",
        }
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        *(
            ({"result_id": one}, r"\(\d.* characters\): use 1 to 17 of A-Z, a-z, 0-9, _ and -, or 32 lower-case hex")
            for one in ("", "a" * 18, "a" * 33, "A" * 32, "a.b", "a b", "é", "a\n", "x" * 10_000)
        ),
        *(
            ({"offset": one}, "pass a whole number from 0 to below 18,446,744,073,709,551,616")
            for one in (-1, 2**64, 1.0, True, "1", None)
        ),
        *(({name: None}, "NoneType: pass text") for name in ("tool", "args_digest", "thread", "result_id")),
        ({"result_id": HEX_ID, "offset": 36**7}, "has 61 of at most 60 characters: use a shorter result id"),
    ],
    ids=lambda value: f"{value!r:.40}" if isinstance(value, dict) else "",
)
def test_what_a_cursor_cannot_hold_is_refused(signer, changed, said):
    with pytest.raises(ConfigError, match=said) as raised:
        signer.sign(replace(CURSOR, **changed))
    assert len(str(raised.value)) < 300


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(arguments=st.dictionaries(texts, json_values, max_size=4))
def test_the_order_of_arguments_does_not_matter(arguments):
    digest = args_digest(arguments)
    assert (len(digest), int(digest, 16) >= 0) == (32, True)
    assert args_digest(dict(reversed(arguments.items()))) == digest


@given(one=json_values, other=json_values)
def test_other_arguments_have_another_digest(one, other):
    same = json.dumps(one, sort_keys=True, ensure_ascii=False) == json.dumps(other, sort_keys=True, ensure_ascii=False)
    assert (args_digest({"a": one}) == args_digest({"a": other})) == same


class _Unprintable:
    def __repr__(self):
        raise KeyError("no text")


def test_any_arguments_have_a_digest():
    cycle, deep = {}, []
    cycle["itself"] = cycle
    for _ in range(100_000):
        deep = [deep]
    odd = [{1: "a", "b": 2}, {"a": {("x", 1): 2}}, {"a": object()}, {"a": b"\xff", "b": {3}}, cycle, {"a": 10**5000}]
    for arguments in [*odd, {"a": _Unprintable()}, {"deep": deep}]:
        assert len(args_digest(arguments)) == 32
        assert args_digest(arguments) == args_digest(arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"b": "ü", "a": Path("x")}, '{"a": "x", "b": "ü"}'),
        ({1: "a", "b": 2}, "{1: 'a', 'b': 2}"),
        ({"a": _Unprintable(), "b": 1}, "2 arguments: KeyError"),
    ],
    ids=["json", "repr", "unprintable"],
)
def test_the_digest_of_arguments_stays_the_same_between_releases(arguments, text):
    assert args_digest(arguments) == hashlib.sha256(text.encode()).hexdigest()[:32]
