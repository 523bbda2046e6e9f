"""Is every chunk in exactly one part, in order, whole where it fits, and else cut where a reader would cut?"""

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxwin import ModelLimits, TokenEstimator
from langchain_ctxwin.decompose.parts import PartSplitter, opening, whole_work
from langchain_ctxwin.decompose.splitting import chunk_of, pieces_of, places_of, shortened, split_chunks

ROOM = 40
WORDS = st.sampled_from(
    ["door", "hinge.", "Oak!", "\n", "\n\n", "# Doors\n", "## Keys\n", "Title\n===\n", "a" * 90, "\f", "門"]
)
TEXTS = st.lists(WORDS, max_size=60).map(" ".join) | st.text(max_size=300)


def frame(chunk):
    return "<>"


def split(texts, room=ROOM, price=len):
    return split_chunks([chunk_of(number, text) for number, text in enumerate(texts)], room, price, frame)


def parts_of(text, room):
    return [part[0]["text"] for part in split([text], room)[0]]


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(10, 200))
@settings(max_examples=40)
def test_every_character_is_in_one_part_in_order(texts, room):
    """Nothing is lost, repeated or moved: the parts, one after the other, are the documents."""
    found = dict.fromkeys(range(len(texts)), "")
    order = []
    for part in split(texts, room)[0]:
        for chunk in part:
            assert chunk["start"] == len(found[chunk["document"]])
            found[chunk["document"]] += chunk["text"]
            order.append(chunk["document"])
    assert list(found.values()) == texts
    assert order == sorted(order)
    assert set(order) == set(found)


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(10, 200))
@settings(max_examples=40)
def test_every_part_fits(texts, room):
    """The texts of a part with what is shown around each are at most as large as the room."""
    sizes = [sum(len(chunk["text"]) + len(frame(chunk)) for chunk in part) for part in split(texts, room)[0]]
    assert max(sizes) <= room


@given(st.lists(TEXTS, min_size=1, max_size=4))
@settings(max_examples=25)
def test_every_part_fits_by_a_token_counter(texts):
    """Prices that do not add up are checked on whole pieces."""
    price = TokenEstimator("openai").count_text
    for text in texts:
        assert all(piece.tokens <= ROOM for piece in pieces_of(text, ROOM, price))


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(10, 200))
@settings(max_examples=40)
def test_a_document_that_fits_is_never_cut(texts, room):
    """Only what is larger than a whole part is cut, and each cut is reported."""
    parts, cuts = split(texts, room)
    pieces = [chunk["document"] for part in parts for chunk in part]
    cut = {number for number in pieces if pieces.count(number) > 1}
    assert cut == {number for number, text in enumerate(texts) if len(text) + 2 > room}
    assert len(cuts) == len(pieces) - len(texts)
    assert {entry["document"] for entry in cuts} == cut


@given(st.lists(TEXTS.map(lambda text: text * 9), min_size=1, max_size=5), st.sampled_from(["openai", "generic"]))
@settings(max_examples=20)
def test_every_request_fits_by_the_upper_bound_of_the_counter(texts, family):
    """What counts is the request as a whole, with instructions, question and fences."""
    limits = ModelLimits(900, requested_output_tokens=100)
    splitter = PartSplitter(
        None, limits=limits, counter=TokenEstimator(family), map_prompt="Answer.", reduce_prompt="Combine."
    )
    chunks = [chunk_of(number, text) for number, text in enumerate(texts)]
    works = splitter.of_documents(whole_work("", "Which doors?", 0, chunks)).works
    assert [work["part"] for work in works] == list(range(1, len(works) + 1))
    assert [splitter.over_by(splitter.request_of(work)) for work in works] == [0] * len(works)


def test_small_documents_share_a_part():
    """Neighbours fill a part up to the room."""
    assert [len(part) for part in split(["door"] * 10, room=24)[0]] == [4, 4, 2]


def test_sections_come_before_paragraphs():
    """A text with headings is cut before them, at the highest level that makes parts small enough."""
    text = "# One\n\nfirst\n\nsecond\n\n## Two\n\nthird\n\n# Three\n\nfourth\n"
    assert parts_of(text, 42) == ["# One\n\nfirst\n\nsecond\n\n## Two\n\nthird\n\n", "# Three\n\nfourth\n"]
    assert parts_of(text, 30)[0] == "# One\n\nfirst\n\nsecond\n\n"


def test_underlined_headings_are_headings():
    """The other way to write headings, with a line of rules below."""
    text = "One\n===\n\nfirst\n\nTwo\n---\n\nsecond\n"
    assert parts_of(text, 22) == ["One\n===\n\nfirst\n\n", "Two\n---\n\nsecond\n"]


def test_a_heading_stays_with_its_text():
    """Where a section has to be cut, its heading goes with its first sentence."""
    text = "# A\n\n## B\n\nOne is here. Two is there. Three is gone.\n"
    assert parts_of(text, 28)[0] == "# A\n\n## B\n\nOne is here. "


def test_a_heading_is_not_left_at_the_end_of_a_part():
    """It goes to the next part with its text, although it would fit alone."""
    text = "# A\n\nOne is here.\n\n# B\n\nTwo is over there. Three is gone.\n"
    assert parts_of(text, 28)[:2] == ["# A\n\nOne is here.\n\n", "# B\n\nTwo is over there. "]


def test_sentences_are_whole_where_one_fits():
    """A paragraph that is too large is cut between sentences."""
    parts, cuts = split(["One door is here. Another one is there. A third is gone."], 28)
    assert [part[0]["text"] for part in parts] == [
        "One door is here. ",
        "Another one is there. ",
        "A third is gone.",
    ]
    assert [cut["kind"] for cut in cuts] == ["sentence", "sentence"]


def test_a_cut_inside_a_sentence_is_reported_as_hard():
    """The last resort: after a word, else between characters."""
    _, cuts = split(["one two three four five six", "x" * 50], 22)
    assert [cut["kind"] for cut in cuts] == ["hard"] * len(cuts)
    assert cuts[0] == {"document": 0, "at": 8, "kind": "hard"}


def test_lines_of_a_table_are_not_cut():
    """Rows without blank lines between them are cut at their ends."""
    text = "".join(f"{number},door,oak\n" for number in range(10))
    parts, cuts = split([text], 40)
    assert all(part[0]["text"].endswith("\n") for part in parts)
    assert {cut["kind"] for cut in cuts} == {"line"}


def test_an_empty_document_has_a_part():
    """Nothing to read is still a chunk that was seen."""
    assert [[chunk["document"] for chunk in part] for part in split(["", "door"])[0]] == [[0, 1]]


def test_places_name_documents_and_characters():
    """Pieces of one document that follow each other are one place."""
    (part,), _ = split(["door", "key"])
    place = {"document": 0, "source": {}, "start": 0, "stop": 4}
    assert places_of(part) == [place, {**place, "document": 1, "stop": 3}]
    left, right = ({**part[0], "text": "do"}, {**part[0], "start": 2, "text": "or"})
    assert places_of([left, right]) == [place]


def test_sources_are_shown_beside_a_chunk():
    """What identifies a document is cited; what could break out of the fence is replaced."""
    chunk = chunk_of(4, {"page_content": "x", "metadata": {"source": 'a "b" <c>\n.md', "page": 3, "score": 0.1}})
    assert opening("document", chunk) == '<document number="5" source="a \'b\' (c) .md" page="3">'


@given(st.text(min_size=1, max_size=400), st.integers(45, 200))
def test_a_shortened_text_fits_and_says_what_is_missing(text, room):
    """Beginning and end remain, with the number of characters between."""
    found = shortened(text, room, len)
    assert len(found) <= room
    if found != text:
        head, note = found.split("\n[... ", 1)[0], found[found.index("[... ") :]
        assert text.startswith(head)
        missing = int(note[5:].split(" ", 1)[0].replace(",", ""))
        assert missing == len(text) - len(found) + len(f"\n[... {missing:,} characters left out ...]\n")
