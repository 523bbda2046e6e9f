"""What do images, sound, video, files and their texts cost, wherever an integration puts them?"""

import base64
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from langchain_ctxwin import CharRatioCounter, TokenEstimator
from langchain_ctxwin.core.media import image_size
from langchain_ctxwin.core.tool_schemas import FRAMING, area, large_tiles, small_tiles

OPENAI = TokenEstimator("openai")
WORDS = "one word after the other, " * 200


def b64(raw):
    return base64.b64encode(raw).decode()


def png(width, height, padding=0):
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"
    return head + bytes(padding)


def jpeg(width, height):
    frame = b"\xff\xc0\0\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + bytes(20)
    return b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(9) + frame


def webp(kind, body):
    return b"RIFF\0\0\0\0WEBP" + kind + body + bytes(20)


HEADS = (b"", b"\x89PNG", b"GIF8", b"RIFF1234WEBPVP8 ", b"RIFF1234WEBPVP8L", b"\xff\xd8")
WEBP_LOSSY = webp(b"VP8 ", bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 640, 480))
WEBP_LOSSLESS = webp(b"VP8L", bytes(4) + b"\x2f" + struct.pack("<I", 639 | 479 << 14))
WEBP_EXTENDED = webp(b"VP8X", bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"))


def price(block, estimator=OPENAI):
    empty = estimator([HumanMessage.model_construct(content=[])])
    return estimator([HumanMessage.model_construct(content=[block])]) - empty


PNG = png(1024, 512)
IMAGES = {
    "url": {"type": "image_url", "image_url": {"url": "data:image/png;base64," + b64(PNG)}},
    "bare url": {"type": "image_url", "image_url": "data:image/png;base64," + b64(PNG)},
    "responses": {"type": "input_image", "image_url": "data:image/png;base64," + b64(PNG)},
    "source type": {"type": "image", "source_type": "base64", "data": b64(PNG), "mime_type": "image/png"},
    "standard": {"type": "image", "base64": b64(PNG), "mime_type": "image/png"},
    "source": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}},
    "media": {"type": "media", "mime_type": "image/png", "data": b64(PNG)},
    "media bytes": {"type": "media", "mime_type": "image/png", "data": PNG},
    "nested bytes": {"type": "image", "image": {"format": "png", "source": {"bytes": PNG}}},
    "untyped bytes": {"image": {"source": {"bytes": PNG}}},
    "non-standard": {"type": "non_standard", "value": {"type": "image", "base64": b64(PNG)}},
    "unknown block": {"type": "screenshot", "shot": b64(png(1024, 512, 2_000))},
    "inside a result": {"type": "tool_result", "content": [{"type": "image", "base64": b64(PNG)}]},
}


@pytest.mark.parametrize("block", IMAGES.values(), ids=IMAGES)
def test_an_image_costs_by_its_size_in_every_shape(block):
    """Width and height are found wherever the data is."""
    assert price(block) == small_tiles(1024, 512) == 425


@pytest.mark.parametrize(
    "raw",
    [png(640, 480), jpeg(640, 480), WEBP_LOSSY, WEBP_LOSSLESS, WEBP_EXTENDED, b"GIF89a\x80\x02\xe0\x01"],
)
def test_the_size_of_every_common_format_is_read(raw):
    """PNG, JPEG, the three kinds of WebP and GIF say how large they are."""
    assert image_size(raw) == (640, 480)


@settings(deadline=None)
@given(head=st.sampled_from(HEADS), rest=st.binary())
def test_broken_images_have_no_size(head, rest):
    """Bytes that end early or say nonsense never fail."""
    assert min(image_size(head + rest)) >= 0


@settings(deadline=None, max_examples=40)
@given(padding=st.integers(0, 200_000), width=st.integers(1, 5_000), height=st.integers(1, 5_000))
def test_the_length_of_the_data_does_not_change_the_price(padding, width, height):
    """Two images of one size cost the same, however well they compress."""
    small, large = ({"type": "image", "base64": b64(png(width, height, size))} for size in (0, padding))
    assert price(small) == price(large)


@pytest.mark.parametrize(
    ("rule", "size", "tokens"),
    [
        (small_tiles, (1024, 1024), 765), (small_tiles, (64, 64), 255), (small_tiles, (4096, 8192), 1105),
        (large_tiles, (64, 64), 258), (large_tiles, (1024, 1024), 1032), (large_tiles, (9000, 9000), 4128),
        (area, (1092, 1092), 1589), (area, (4000, 3000), 1600), (area, (10_000, 1), 1),
    ],
)  # fmt: skip
def test_the_published_image_rules(rule, size, tokens):
    """Tiles and areas as the providers' guides compute them."""
    assert rule(*size) == tokens


def test_low_detail_has_its_own_price():
    """OpenAI shows such an image in 85 tokens; others have no such setting."""
    low = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + b64(PNG), "detail": "low"}}
    assert price(low) == 85
    assert price(low, TokenEstimator("gemini")) == large_tiles(1024, 512)


REFERENCES = (
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, {"type": "image", "file_id": "f1"},
    {"type": "image_url", "image_url": None}, {"type": "image", "source": [1]}, {"type": "image", "base64": "?"},
)  # fmt: skip


@pytest.mark.parametrize("block", REFERENCES)
def test_an_image_that_cannot_be_seen_costs_as_a_usual_one(block):
    """Links, ids and broken data are taken as 1,024 pixels square."""
    assert price(block) == small_tiles(1024, 1024)


TEXT_FILES = {
    "text": {"type": "file", "source_type": "text", "text": WORDS, "mime_type": "text/plain"},
    "plain": {"type": "text-plain", "text": WORDS, "mime_type": "text/plain"},
    "source": {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": WORDS}},
    "content": {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": WORDS}]}},
    "base64": {"type": "file", "base64": b64(WORDS.encode()), "mime_type": "text/plain"},
    "json": {"type": "file", "base64": b64(WORDS.encode()), "mime_type": "application/json"},
    "data url": {"type": "file", "file": {"file_data": "data:text/csv;base64," + b64(WORDS.encode())}},
    "bytes": {"type": "document", "document": {"format": "txt", "source": {"bytes": WORDS.encode()}}},
}


@pytest.mark.parametrize("block", TEXT_FILES.values(), ids=TEXT_FILES)
def test_a_text_file_costs_what_its_text_costs(block):
    """Encoded or not, the text is what the model reads."""
    assert price(block) == OPENAI.count_text(WORDS)


def test_a_large_text_file_is_extrapolated():
    """Only the beginning is decoded; the rest costs in proportion."""
    text = WORDS * 100
    block = {"type": "file", "base64": b64(text.encode()), "mime_type": "text/plain"}
    assert price(block) == pytest.approx(OPENAI.count_text(text), rel=0.02)


def test_the_title_of_a_document_is_read():
    """What stands beside the file is sent as text."""
    block = TEXT_FILES["source"]
    assert price({**block, "title": WORDS}) == pytest.approx(2 * price(block), abs=1)


def wav(seconds, rate):
    return b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0" + struct.pack("<II", rate, rate) + bytes(12 + seconds * rate)


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"type": "input_audio", "input_audio": {"data": b64(wav(10, 8_000)), "format": "wav"}}, 101),
        ({"type": "input_audio", "input_audio": {"data": b64(b"\1" * 480_000), "format": "pcm16"}}, 101),
        ({"type": "audio", "base64": b64(b"\1" * 160_000), "mime_type": "audio/mpeg"}, 101),
        ({"type": "media", "mime_type": "video/mp4", "data": b"\1" * 2_500_000}, 11 * 263),
        ({"type": "file", "base64": b64(b"%PDF" + b"\1" * 149_000), "mime_type": "application/pdf"}, 3 * 1200),
        ({"type": "file", "url": "https://example.com/a.pdf"}, 11 * 1200),
    ],
    ids=["wav", "pcm", "mp3", "video", "pdf", "link"],
)  # fmt: skip
def test_other_media_cost_by_kind_and_size(block, tokens):
    """Seconds of sound and video, pages of documents; a link counts as half a megabyte."""
    assert price(block) == pytest.approx(tokens, abs=2)


@pytest.mark.parametrize("family", sorted(FRAMING))
def test_every_family_prices_every_image(family):
    """No image is free, and none fills a window."""
    assert all(0 < price(block, TokenEstimator(family)) < 5_000 for block in IMAGES.values())


def test_the_char_ratio_counter_prices_media_by_kind_too():
    """The heuristic for text says nothing of images: they cost the same as with the estimator."""
    message = HumanMessage([IMAGES["standard"], {"type": "text", "text": "four" * 10}])
    assert CharRatioCounter()([message]) == 3 + 10 + area(1024, 512)
