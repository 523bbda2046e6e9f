"""Is a cursor good for exactly what it was signed for, and for nothing else?"""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import CursorSigner
from langchain_ctxwin.errors import ConfigError, CursorExpiredError, CursorTamperedError
from langchain_ctxwin.tool_results import Cursor
from langchain_ctxwin.tool_results.cursors import args_digest
from support.walking import FakeClock

KEY = "the first key of this test, 32 characters"
CURSOR = Cursor("search", "d1", "tenant/thread", "r-1_x", 40)
URL_SAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

# any code point, lone surrogates too
texts = st.text(st.characters(codec=None), max_size=12)
cursors = st.builds(
    Cursor,
    texts,
    texts,
    texts,
    st.text(URL_SAFE, min_size=1, max_size=13),
    st.integers(0, 2**64 - 1),
)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def signer(clock):
    return CursorSigner(KEY, clock=clock)


def verified(signer, text, cursor=CURSOR):
    """Verify a text as belonging to the call of `cursor`."""
    return signer.verify(
        text, tool=cursor.tool, args_digest=cursor.args_digest, thread=cursor.thread
    )


def is_refused(signer, text, cursor=CURSOR):
    """Say whether a text is refused as tampered with."""
    try:
        verified(signer, text, cursor)
    except CursorTamperedError:
        return True
    return False


@given(
    cursors, st.integers(-300, 600), st.sampled_from([0.0, 1e3, 1e5, 2.0**24, 1.8e9])
)
def test_what_was_signed_verifies_until_it_expires(cursor, age_seconds, now):
    """Whatever id, offset and call, on workers whose clocks differ by up to five minutes and begin anywhere."""
    clock = FakeClock(now)
    signer = CursorSigner(KEY, clock=clock)
    text = signer.sign(cursor)
    clock.now += age_seconds
    assert (verified(signer, text, cursor), signer.peek(text)) == (
        cursor,
        cursor.result_id,
    )
    assert len(text) <= 60


def test_only_one_spelling_is_accepted(signer):
    """Each place with every other character of the alphabet, bits that base64 does not use among them."""
    text = signer.sign(replace(CURSOR, offset=0xABC))
    spellings = {
        text[:place] + one + text[place + 1 :]
        for place in range(len(text))
        for one in URL_SAFE
    } - {text}
    spellings |= {
        text.upper(),
        text.replace(".", ".0", 1),
        f"{text}=",
        f"{text}==",
        f"{text}\n",
        f" {text}",
    }
    assert [
        spelling for spelling in sorted(spellings) if not is_refused(signer, spelling)
    ] == []


@pytest.mark.parametrize("name", ["tool", "args_digest", "thread"])
def test_a_cursor_is_good_for_its_own_call_only(signer, name):
    call = {"tool": "search", "args_digest": "d1", "thread": "tenant/thread"}
    with pytest.raises(
        CursorTamperedError, match="belongs to another call, thread or key"
    ):
        signer.verify(signer.sign(CURSOR), **(call | {name: "other"}))


@pytest.mark.parametrize(
    "text",
    ["", "a.0.0.", "é" * 38, "\ud800" * 38, None, 5, b"a.0.0.AA", ["a"]],
    ids=repr,
)
def test_garbage_is_refused(signer, text):
    """Without the key, too; the error says what to do."""
    for read in (signer.peek, lambda text: verified(signer, text)):
        with pytest.raises(
            CursorTamperedError,
            match="copy it from the page before exactly as it stands there",
        ):
            read(text)


@pytest.mark.parametrize(
    ("age", "said"), [(600.5, "600 seconds old"), (-3_600, "-3,600 seconds old")]
)
def test_an_old_cursor_and_one_of_a_time_that_has_not_come_are_refused(
    signer, clock, age, said
):
    text = signer.sign(CURSOR)
    clock.now += age
    with pytest.raises(CursorExpiredError) as raised:
        verified(signer, text)
    assert str(raised.value) == (
        f"the cursor {text} is {said}, it was good for 600: use the newest cursor of this result, or call the tool "
        "again only if repeating it is safe"
    )


def test_keys_are_rotated(clock):
    old, both, new = (
        CursorSigner(keys, clock=clock) for keys in (["old"], ["old", b"new"], ("new",))
    )
    assert (verified(both, old.sign(CURSOR)), both.sign(CURSOR)) == (
        CURSOR,
        new.sign(CURSOR),
    )
    assert (is_refused(old, both.sign(CURSOR)), is_refused(new, old.sign(CURSOR))) == (
        True,
        True,
    )


@pytest.mark.parametrize(
    "keys",
    ["", b"", "  ", [], (), ["hidden", ""], ["hidden", 5], None],
    ids=repr,
)
def test_keys_that_are_none_are_refused_and_not_shown(keys):
    with pytest.raises(
        ConfigError, match=r"keys is .*: pass a secret of 32 random characters or more"
    ) as raised:
        CursorSigner(keys)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("ttl_seconds", [0, -1, math.nan, math.inf, "600", None])
def test_a_time_to_live_that_is_none_is_refused(ttl_seconds):
    with pytest.raises(
        ConfigError,
        match=r"ttl_seconds=.*: pass a (positive, finite )?number of seconds",
    ):
        CursorSigner(KEY, ttl_seconds=ttl_seconds)


@pytest.mark.parametrize(
    "changed",
    [
        *(
            {"result_id": one}
            for one in ("", "a" * 14, "a.b", "é", "\ud800", "a\n", "x" * 10_000)
        ),
        *({"offset": one} for one in (-1, 2**64)),
    ],
    ids=lambda changed: f"{changed!r:.40}",
)
def test_what_a_cursor_cannot_hold_is_refused(signer, changed):
    with pytest.raises(
        ConfigError,
        match=f"{next(iter(changed))}=.*use an id of 1 to 13",
    ) as raised:
        signer.sign(replace(CURSOR, **changed))
    assert len(str(raised.value)) < 400


def test_equal_arguments_have_one_digest_whatever_their_order():
    one, other = {"a": 1, "b": ["x", {2}]}, {"b": ["x", {2}], "a": 1}
    assert args_digest(one) == args_digest(other) != args_digest({"a": 2})
