"""The complexity score: from 0 to 1, named parts, and more of a marker never counts for less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.models.routing.complexity import PARTS, READ_CHARS, complexity, marker_counts
from langchain_ctxwin.models.routing.weights import PART_WEIGHTS

MARKERS = {
    "constraints": "it must be",
    "code": "```",
    "math": "17",
    "steps": "then",
    "tools": "search",
    "languages": "привет",
}
words = st.text(max_size=200) | st.lists(st.sampled_from([*MARKERS.values(), "why", "{", "\n"])).map(" ".join)


@given(words, st.booleans())
def test_the_score_and_its_parts_are_shares(text, needs_tools):
    """Any text has every part, and nothing leaves the range from 0 to 1."""
    found = complexity(text, needs_tools=needs_tools)
    assert tuple(found.parts) == PARTS
    assert all(0 <= value <= 1 for value in (found.score, *found.parts.values()))


@pytest.mark.parametrize("part", MARKERS)
@given(text=words)
def test_one_more_marker_never_lowers_its_part_nor_the_score(part, text):
    """What makes a request look harder cannot make it look easier."""
    before, after = complexity(text), complexity(f"{text}\n{MARKERS[part]}\n")
    assert after.parts[part] > before.parts[part]
    assert after.score > before.score


@given(words)
def test_needing_tools_fills_its_part_alone(text):
    """The caller knows that tools are needed; the words do not have to say so."""
    plain, with_tools = complexity(text), complexity(text, needs_tools=True)
    assert with_tools.parts == {**plain.parts, "tools": 1.0}
    assert with_tools.score >= plain.score


def test_an_empty_text_is_not_complex():
    """Nothing is asked, nothing is hard."""
    assert (complexity("").score, set(complexity("").parts.values())) == (0.0, {0.0})


def test_every_part_has_a_weight():
    """The generated weights name the parts, each within its bounds."""
    assert tuple(PART_WEIGHTS) == PARTS
    assert all(0 < weight < 1 for weight in PART_WEIGHTS.values())


def test_only_the_ends_of_a_long_text_are_searched():
    """The time of a score is bounded; its length still counts in full."""
    hidden = "a " * READ_CHARS + "must " * 50 + "a " * READ_CHARS
    counts = marker_counts(hidden)
    assert (counts["constraints"], counts["length"]) == (0, len(hidden))


@pytest.mark.parametrize("text", ["\n" * 100_000, " " * 100_000, ";" * 100_000, "1," * 50_000, "a(" * 50_000])
def test_a_monotonous_text_is_scored(text):
    """Long runs of one sign are no trouble for the markers."""
    assert complexity(text).parts["length"] > 0.9
