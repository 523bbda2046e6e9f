"""What tool definitions, media and the framing of messages cost, whatever their shape."""

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.core.tokens import image_size
from langchain_ctxwin.core.tool_schemas import (
    FRAMING,
    image_tokens,
    schema_tokens,
)

# ---- tools ----------------------------------------------------------------------------------------------------


FIELDS = {
    "city": {"type": "string", "description": "Name of the city"},
    "unit": {"type": "string", "enum": ["c", "f"]},
}
SCHEMA = {"type": "object", "properties": FIELDS}
OPENAI, ANTHROPIC = FRAMING["openai"], FRAMING["anthropic"]
PRICES = OPENAI.fields or pytest.fail("the family has no prices of fields")
NAMED = {"name": "weather", "description": "Looks up the weather."}


def words(text):
    """A price that is easy to add up: one token a word."""
    return float(len(text.split()))


def cost(*tools, framing=OPENAI):
    return schema_tokens(tools, framing, words)


def schema_cost(schema, framing=OPENAI):
    empty = cost({"name": "x", "parameters": {}}, framing=framing)
    return cost({"name": "x", "parameters": schema}, framing=framing) - empty


SHAPES = {
    "openai": {"type": "function", "function": {**NAMED, "parameters": SCHEMA}},
    "openai responses": {"type": "function", **NAMED, "parameters": SCHEMA},
    "anthropic": {**NAMED, "input_schema": SCHEMA},
    "gemini": {"function_declarations": [{**NAMED, "parameters": SCHEMA}]},
    "bedrock": {"toolSpec": {**NAMED, "inputSchema": {"json": SCHEMA}}},
    "json schema": {"title": "weather", "description": NAMED["description"], **SCHEMA},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_one_signature_costs_the_same_in_every_shape(shape):
    constants = (
        OPENAI.any_tools
        + OPENAI.tool
        + PRICES.description
        + PRICES.first_property
        + PRICES.more_properties
    )
    fields = PRICES.property_description + 2 * PRICES.enum_item
    texts = 1 + 4 + 2 + 4 + 2
    assert cost(shape) == constants + fields + texts
    shown = json.dumps({**NAMED, "parameters": SCHEMA})
    assert cost(
        shape, framing=ANTHROPIC
    ) == ANTHROPIC.any_tools + ANTHROPIC.tool + words(shown)


KEYWORDED = {
    "type": "string",
    "pattern": "a b",
    "default": "c d",
    "format": "date",
    "examples": ["e f", "g h"],
}


def test_keywords_cost_where_json_is_shown_and_nothing_in_signatures():
    plain, keyworded = (
        {"properties": {"day": field}} for field in ({"type": "string"}, KEYWORDED)
    )
    assert schema_cost(keyworded) == schema_cost(plain)
    assert schema_cost(keyworded, ANTHROPIC) == schema_cost(plain, ANTHROPIC) + 13


def test_langchain_tools_are_read():
    @tool
    def weather(city: str) -> str:
        """Looks up the weather."""
        return city

    class Weather(BaseModel):
        """Looks up the weather."""

        city: str = Field(description="Name of the city")

    assert (
        cost(weather)
        == OPENAI.any_tools
        + OPENAI.tool
        + PRICES.description
        + PRICES.first_property
        + 6
    )
    assert cost(Weather) == cost(weather) + PRICES.property_description + 4
    assert (cost(), cost(weather, weather) < 2 * cost(weather)) == (0, True)


# ---- media ----------------------------------------------------------------------------------------------------


COUNT = TokenEstimator("openai")
TEXT = "one word after the other, " * 200


def b64(raw):
    return base64.b64encode(raw).decode()


def png(width, height):
    return (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        + struct.pack(">II", width, height)
        + b"\x08\x02\0\0\0"
    )


def jpeg(width, height):
    frame = (
        b"\xff\xc0\0\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + bytes(20)
    )
    return b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(9) + frame


HEADS = (b"", b"\x89PNG", b"GIF8", b"\xff\xd8")


def price(block):
    empty = COUNT([HumanMessage.model_construct(content=[])])
    return COUNT([HumanMessage.model_construct(content=[block])]) - empty


PNG = png(1024, 512)
DATA = b64(PNG)
URL = "data:image/png;base64," + DATA
IMAGES = {
    "url": {
        "type": "image_url",
        "image_url": {"url": URL},
    },
    "responses": {
        "type": "input_image",
        "image_url": URL,
    },
    "source type": {
        "type": "image",
        "source_type": "base64",
        "data": DATA,
        "mime_type": "image/png",
    },
    "standard": {"type": "image", "base64": DATA, "mime_type": "image/png"},
    "source": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": DATA},
    },
    "media": {"type": "media", "mime_type": "image/png", "data": DATA},
    "nested bytes": {
        "type": "image",
        "image": {"format": "png", "source": {"bytes": PNG}},
    },
    "non-standard": {
        "type": "non_standard",
        "value": {"type": "image", "base64": DATA},
    },
    "inside a result": {
        "type": "tool_result",
        "content": [{"type": "image", "base64": DATA}],
    },
}


@pytest.mark.parametrize("block", IMAGES.values(), ids=IMAGES)
def test_an_image_costs_by_its_size_in_every_shape(block):
    assert price(block) == image_tokens(1024, 512) == 699


@pytest.mark.parametrize("raw", [png(640, 480), jpeg(640, 480)], ids=["png", "jpeg"])
def test_the_size_of_the_common_formats_is_read(raw):
    assert image_size(raw) == (640, 480)


@given(head=st.sampled_from(HEADS), rest=st.binary())
def test_broken_images_have_no_size(head, rest):
    assert min(image_size(head + rest)) >= 0


TEXT_FILES = {
    "text": {
        "type": "file",
        "source_type": "text",
        "text": TEXT,
        "mime_type": "text/plain",
    },
    "source": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": TEXT},
    },
    "content": {
        "type": "document",
        "source": {"type": "content", "content": [{"type": "text", "text": TEXT}]},
    },
}


@pytest.mark.parametrize("block", TEXT_FILES.values(), ids=TEXT_FILES)
def test_a_text_file_costs_what_its_text_costs(block):
    assert price(block) == COUNT.count_text(TEXT)


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"type": "input_audio", "input_audio": {"data": b64(b"\1" * 160_000), "format": "wav"}}, 352),
        ({"type": "media", "mime_type": "audio/mpeg", "data": b"\1" * 160_000}, 352),
        ({"type": "media", "mime_type": "video/mp4", "data": b"\1" * 2_500_000}, 11 * 263),
        ({"type": "file", "base64": b64(b"%PDF" + b"\1" * 149_000), "mime_type": "application/pdf"}, 3 * 1200),
        ({"type": "file", "url": "https://example.com/a.pdf"}, 11 * 1200),
        ({"type": "file", "file": {"file_id": "file-1"}}, 11 * 1200),
        ({"type": "file", "base64": b64(b"a,b\n1,2"), "mime_type": "text/csv"}, 3),
        ({"type": "file", "file": {"file_data": "data:text/csv;base64," + b64(b"a,b\n1,2")}}, 8),
        ({"type": "file", "base64": b64(TEXT.encode()), "mime_type": "text/plain"}, len(TEXT) // 3),
        ({"type": "file", "file": {"file_data": "data:text/csv;base64," + b64(TEXT.encode())}}, len(TEXT) // 3),
        ({"type": "document", "document": {"format": "txt", "source": {"bytes": TEXT.encode()}}}, len(TEXT) // 3),
    ],
    ids=["wav", "mp3", "video", "pdf", "link", "id", "short", "short url", "text", "csv", "bytes"],
)  # fmt: skip
def test_other_media_cost_by_kind_and_size(block, tokens):
    assert price(block) == pytest.approx(tokens, abs=8)


# ---- framing --------------------------------------------------------------------------------------------------


FAMILIES = sorted(FRAMING)
NO_TOOL = {"name": "", "description": "", "parameters": {}}
NO_CALL = {"name": "", "args": {}, "id": "c1", "type": "tool_call"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_pays_for_itself_each_message_each_call_and_once_for_tools(family):
    framing, count = FRAMING[family], TokenEstimator(family)
    assert count([]) == framing.request
    assert count([HumanMessage("")] * 3) == framing.request + 3 * framing.message
    plain = count([AIMessage(""), HumanMessage("")])
    called = count(
        [AIMessage("", tool_calls=[NO_CALL]), ToolMessage("", tool_call_id="c1")]
    )
    assert 0 <= called - plain - 2 * framing.call <= 3
    none, one, two = (count([], tools=[NO_TOOL] * number) for number in range(3))
    assert two - one == pytest.approx(one - none - framing.any_tools, abs=1)
    assert one - none >= framing.any_tools + framing.tool


# ---- what goes along outside of the content ---------------------------------------------------------------------


THOUGHT = (
    "Shelf two has bolts of eight millimetres, so the next one to look at is shelf four. "
    * 20
)
DETAILS = [
    {"type": "reasoning.text", "text": THOUGHT, "format": "x", "signature": "c2ln"}
]


@pytest.mark.parametrize(
    "kept",
    [
        {"reasoning_content": THOUGHT},
        {"reasoning": THOUGHT, "reasoning_details": DETAILS},
    ],
    ids=["reasoning_content", "reasoning_details"],
)
def test_reasoning_that_goes_back_outside_of_the_content_counts_once(kept):
    """Ollama, gateways and DeepSeek are sent it with every request that shows the answer."""
    count = TokenEstimator()
    beside = AIMessage("x", additional_kwargs=kept)
    inside = AIMessage(
        [{"type": "text", "text": "x"}, {"type": "reasoning", "reasoning": THOUGHT}]
    )
    assert count([beside]) == pytest.approx(count([inside]), rel=0.02)


def test_a_spoken_answer_costs_its_words():
    spoken = {
        "audio": {
            "id": "audio_1",
            "data": "UklGRg==",
            "expires_at": 1,
            "transcript": THOUGHT,
        }
    }
    count = TokenEstimator()
    assert count([AIMessage("", additional_kwargs=spoken)]) == count(
        [AIMessage(THOUGHT)]
    )
