"""Are characters and runs counted in the right class?"""
# ruff: noqa: RUF001  # letters of other scripts look alike

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxwin.core.tokens import (
    ASCII_FEATURES,
    FEATURES,
    SAMPLE_ABOVE_CHARS,
    SAMPLE_WINDOW_CHARS,
    SAMPLE_WINDOWS,
    SCRIPT_FEATURES,
    features,
    sample,
)

RUNS = settings(deadline=None, max_examples=200)
ANY_TEXT = st.text(st.characters(exclude_categories=()))
SCRIPTS = {
    "é": "latin1", "°": "latin1_symbols", "š": "latin_extended", "ʃ": "ipa_diacritics", "λ": "greek", "ж": "cyrillic",
    "ң": "cyrillic_extended",
    "ө": "cyrillic_extended", "հ": "armenian", "ש": "hebrew", "م": "arabic", "ह": "devanagari", "ব": "bengali",
    "ਪ": "gurmukhi", "ગ": "gujarati", "ଓ": "oriya", "த": "tamil", "త": "telugu", "ಕ": "kannada", "മ": "malayalam",
    "ස": "sinhala", "ไ": "thai", "ລ": "lao", "မ": "myanmar", "ქ": "georgian", "ሀ": "ethiopic", "ក": "khmer",
    "ế": "vietnamese", "—": "typography", "─": "box", "⠓": "braille", "→": "symbols_e2", "∑": "symbols_e2",
    "。": "cjk_symbols", "か": "kana", "㐀": "rare_cjk", "中": "cjk_low", "語": "cjk_high", "한": "hangul",
    "\ue000": "private", "\ufe0f": "selectors", "ａ": "fullwidth", "😀": "emoji", "𠀀": "rare_astral",
    "ꀀ": "other_scripts",
}  # fmt: skip


def counted(text):
    found = features(text)
    return {name: count for name, count in zip(FEATURES, found, strict=False) if count}


@pytest.mark.parametrize(("character", "name"), SCRIPTS.items(), ids=SCRIPTS.values())
def test_a_character_counts_in_its_script_alone(character, name):
    """One character beyond ASCII is one count of its class, and one run."""
    assert counted(character) == {"characters": 1, name: 1, "foreign_runs": 1}


def test_letters_of_latin_in_a_row_are_told_apart_from_words():
    """Three accented letters in a row are no word of any language but misread bytes, and cost more."""
    assert counted("éàü") == {"characters": 3, "latin1": 3, "latin1_runs": 1, "foreign_runs": 1}
    assert "latin1_runs" not in counted("créée où été")


def test_every_script_has_an_example():
    """No class is left out above, runs excepted."""
    assert set(SCRIPT_FEATURES) - set(SCRIPTS.values()) == {"latin1_runs", "foreign_runs"}


def test_ascii_text_has_ascii_counts_only():
    """The list ends where the scripts begin."""
    assert counted("Hello world_42\n  x") == {
        "characters": 18, "letters": 11, "letter_runs": 3, "digits": 2, "digit_runs": 1, "symbols": 1, "symbol_runs": 1,
        "capitals": 1, "newlines": 1, "indents": 1, "space_runs": 1, "vowel_endings": 1,
    }  # fmt: skip
    assert len(features("plain")) == len(ASCII_FEATURES)


@RUNS
@given(text=ANY_TEXT)
def test_every_character_is_counted_once(text):
    """Classes of scripts are disjoint and complete; only long runs of a symbol are shortened."""
    found = counted(text)
    runs = {"latin1_runs", "foreign_runs"}
    foreign = sum(count for name, count in found.items() if name in SCRIPT_FEATURES and name not in runs)
    replaced = text.encode("utf-8", "replace").decode()
    assert foreign == sum(not character.isascii() for character in replaced)
    assert found.get("characters", 0) <= len(text)


@RUNS
@given(text=ANY_TEXT)
def test_counts_are_never_negative(text):
    """Blocks that two scripts share never give one of them less than nothing."""
    found = features(text)
    assert min(found) >= 0
    assert len(found) in {len(ASCII_FEATURES), len(FEATURES)}


@pytest.mark.parametrize(("symbol", "kept"), [("=", 16), ("-", 16), ("\n", 8), ("─", 8)])
def test_long_runs_of_a_symbol_are_shortened(symbol, kept):
    """A rule costs by the token, not by the character; a short one is left alone."""
    assert counted(symbol * 15)["characters"] == 15
    assert counted(f"a{symbol * 800}b")["characters"] == 2 + 1 + 800 // kept


def test_spaces_that_indent_are_left_alone():
    """Only blank stretches longer than any indentation are shortened."""
    assert counted(" " * 40 + "x")["characters"] == 41
    assert counted(" " * 640)["characters"] == 41


@pytest.mark.parametrize("size", [0, 1, SAMPLE_ABOVE_CHARS, SAMPLE_ABOVE_CHARS + 1, 1_000_003])
def test_a_sample_is_bounded_and_reaches_both_ends(size):
    """Up to the threshold the sample is the text itself."""
    text = ("0123456789" * (size // 10 + 1))[:size]
    taken = sample(text)
    if size <= SAMPLE_ABOVE_CHARS:
        assert taken == text
    else:
        assert len(taken) == SAMPLE_WINDOWS * SAMPLE_WINDOW_CHARS
        assert (taken[:50], taken[-50:]) == (text[:50], text[-50:])
