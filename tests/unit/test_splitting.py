"""Is every chunk in exactly one part, in order, whole where it fits, and else cut where a reader would cut?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxwin import BudgetExceededError, ModelLimits, TokenEstimator
from langchain_ctxwin.decompose.parts import (
    PartAnswer,
    PartSplitter,
    chunk_of,
    no_counts,
    pieces_of,
    places_of,
    shortened,
    split_chunks,
)

WORDS = st.sampled_from(
    ["door", "hinge.", "Oak!", "\n", "\n\n", "# Doors\n", "## Keys\n", "Title\n===\n", "a" * 90, "\f", "門"]
)
TEXTS = st.lists(WORDS, max_size=60).map(" ".join) | st.text(max_size=300)
DOORS = "The door of oak has two hinges of brass. "


FRAME = 2


def split(texts, room):
    return split_chunks([chunk_of(number, text) for number, text in enumerate(texts)], room, len, lambda _: FRAME)


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(10, 200))
@settings(max_examples=40)
def test_every_character_is_in_one_part_in_order_and_every_part_fits(texts, room):
    """Only what is larger than a whole part is cut, and each cut is reported."""
    parts, cuts = split(texts, room)
    found = dict.fromkeys(range(len(texts)), "")
    pieces = [chunk for part in parts for chunk in part]
    for chunk in pieces:
        assert chunk["start"] == len(found[chunk["document"]])
        found[chunk["document"]] += chunk["text"]
    order = [chunk["document"] for chunk in pieces]
    assert (list(found.values()), order, set(order)) == (texts, sorted(order), set(found))
    assert max(sum(len(chunk["text"]) + FRAME for chunk in part) for part in parts) <= room
    assert {number for number in order if order.count(number) > 1} == {cut["document"] for cut in cuts}
    assert {cut["document"] for cut in cuts} == {n for n, text in enumerate(texts) if len(text) + FRAME > room}
    assert len(cuts) == len(pieces) - len(texts)


@given(TEXTS)
@settings(max_examples=25)
def test_every_piece_fits_by_a_token_counter(text):
    """Prices that do not add up are checked on whole pieces."""
    price = TokenEstimator("openai").count_text
    assert all(price(text[piece.start : piece.stop]) <= 40 for piece in pieces_of(text, 40, price))


def growing(divisor):
    """A counter whose requests cost more than their parts: the overhead grows with the square of the size."""

    def count(messages, tools=None):
        tokens = sum(len(message.text) for message in messages) // 4
        return tokens + tokens * tokens // divisor

    count.exact = True
    return count


@given(
    st.lists(TEXTS.map(lambda text: text * 9) | st.just(DOORS * 20), min_size=1, max_size=9),
    st.sampled_from([TokenEstimator("openai"), TokenEstimator("generic"), growing(20_000), growing(300)]),
)
@settings(max_examples=30)
def test_every_request_fits_by_the_upper_bound_of_the_counter(texts, counter):
    """What counts is the request as a whole; answers that do not fit together are divided, or shortened."""
    limits = ModelLimits(2_000, requested_output_tokens=100)
    splitter = PartSplitter(None, limits=limits, counter=counter, prompts=("Answer.", "Combine."))
    chunks = [chunk_of(number, text) for number, text in enumerate(texts)]
    works = splitter.of_documents("Which doors?", chunks, no_counts())
    assert [work["part"] for work in works] == list(range(1, len(works) + 1))
    answers = [PartAnswer(text=text, sub_question="", covers=[]) for text in texts]
    combined = splitter.of_answers("Which doors?", 1, answers, no_counts())
    asked = [*works, *(work for work in combined if len(work["chunks"]) > 1)]
    assert [splitter.over_by(splitter.request_of(work)) for work in asked] == [0] * len(asked)


def test_a_part_is_divided_although_its_pieces_cost_less_than_the_whole():
    splitter = PartSplitter(None, limits=ModelLimits(2_000, requested_output_tokens=100), counter=growing(300))
    text = ("word " * 20 + "\n") * 24
    works = splitter.of_documents("Which doors?", [chunk_of(0, text)], no_counts())
    assert [splitter.over_by(splitter.request_of(work)) for work in works] == [0] * len(works)


SECTIONS = "# One\n\nfirst\n\nsecond\n\n## Two\n\nthird\n\n# Three\n\nfourth\n"
TABLE = "".join(f"{number},door,oak\n" for number in range(4))


@pytest.mark.parametrize(
    ("text", "room", "pieces", "kind"),
    [
        (SECTIONS, 42, ["# One\n\nfirst\n\nsecond\n\n## Two\n\nthird\n\n", "# Three\n\nfourth\n"], "section"),
        (SECTIONS, 30, ["# One\n\nfirst\n\nsecond\n\n", "## Two\n\nthird\n\n", "# Three\n\nfourth\n"], "section"),
        ("One\n===\n\nfirst\n\nTwo\n---\n\nnext\n", 22, ["One\n===\n\nfirst\n\n", "Two\n---\n\nnext\n"], "section"),
        ("First one.\n\nNext.\n", 14, ["First one.\n\n", "Next.\n"], "paragraph"),
        # A heading stays with its text.
        (
            "# A\n\n## B\n\nOne is here. Two is there.\n",
            28,
            ["# A\n\n## B\n\nOne is here. ", "Two is there.\n"],
            "sentence",
        ),
        (TABLE, 30, ["0,door,oak\n1,door,oak\n", "2,door,oak\n3,door,oak\n"], "line"),
        ("A door is. Another one is there. Gone.", 24, ["A door is. ", "Another one is there. ", "Gone."], "sentence"),
        ("one two three four five six", 17, ["one two three ", "four five six"], "hard"),
        ("x" * 50, 27, ["x" * 25, "x" * 25], "hard"),
    ],
)
def test_a_text_is_cut_where_a_reader_would_cut(text, room, pieces, kind):
    """At the coarsest units that fit: sections, paragraphs, lines, sentences, words, characters."""
    parts, cuts = split([text], room)
    assert [chunk["text"] for part in parts for chunk in part] == pieces
    assert {cut["kind"] for cut in cuts} == {kind}


def test_a_heading_is_not_left_at_the_end_of_a_part():
    parts, _ = split(["# A\n\nOne is here.\n\n# B\n\nTwo is over there. Three is gone.\n"], 28)
    assert [part[0]["text"] for part in parts[:2]] == ["# A\n\nOne is here.\n\n", "# B\n\nTwo is over there. "]


def test_small_documents_share_a_part():
    """Neighbours fill a part up to the room; one without text is still a chunk that was seen."""
    assert [len(part) for part in split(["door"] * 10, room=24)[0]] == [4, 4, 2]
    assert [[chunk["document"] for chunk in part] for part in split(["", "door"], 40)[0]] == [[0, 1]]


def test_places_name_documents_and_characters():
    """Pieces of one document that follow each other are one place."""
    (part,), _ = split(["door", "key"], 40)
    place = {"document": 0, "source": {}, "start": 0, "stop": 4}
    assert places_of(part) == [place, {**place, "document": 1, "stop": 3}]
    left, right = ({**part[0], "text": "do"}, {**part[0], "start": 2, "text": "or"})
    assert places_of([left, right]) == [place]


def test_a_frame_that_leaves_no_room_is_refused():
    """Pieces of a few tokens are no parts, each of them a call; what fits whole is no piece."""
    chunk = chunk_of(3, "x" * 50)
    with pytest.raises(BudgetExceededError, match=r"around documents\[3\] needs 30 tokens of a room of 70"):
        split_chunks([chunk], 70, len, lambda _: 30, least_tokens=41)
    assert len(split_chunks([chunk], 80, len, lambda _: 30, least_tokens=64)[0]) == 1


@given(st.text(min_size=1, max_size=400), st.integers(45, 200))
@settings(max_examples=40)
def test_a_shortened_text_fits_and_says_what_is_missing(text, room):
    """Beginning and end remain, with the number of characters between."""
    found = shortened(text, room, len)
    assert len(found) <= room
    if found != text:
        head, note = found.split("\n[... ", 1)[0], found[found.index("[... ") :]
        assert text.startswith(head)
        missing = int(note[5:].split(" ", 1)[0].replace(",", ""))
        assert missing == len(text) - len(found) + len(f"\n[... {missing:,} characters left out ...]\n")
