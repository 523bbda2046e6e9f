"""What do tool definitions cost, whatever their shape and however their schema is tied?"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from langchain_ctxwin.core.tool_schemas import ANTHROPIC, GEMINI, MAX_NODES, MAX_VALUES, OPENAI, schema_tokens

FIELDS = {"city": {"type": "string", "description": "Name of the city"}, "unit": {"type": "string", "enum": ["c", "f"]}}
SCHEMA = {"type": "object", "properties": FIELDS}
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
    "protocol": {**NAMED, "inputSchema": SCHEMA},
    "gemini": {"function_declarations": [{**NAMED, "parameters": SCHEMA}]},
    "bedrock": {"toolSpec": {**NAMED, "inputSchema": {"json": SCHEMA}}},
    "json schema": {"title": "weather", "description": NAMED["description"], **SCHEMA},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_one_signature_costs_the_same_in_every_shape(shape):
    """Names, descriptions, fields and choices are priced, not the JSON around them."""
    constants = OPENAI.any_tools + OPENAI.tool + PRICES.description + PRICES.first_property + PRICES.more_properties
    fields = PRICES.property_description + 2 * PRICES.enum_item
    texts = 1 + 4 + 2 + 4 + 2
    assert cost(shape) == constants + fields + texts


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_family_that_shows_json_pays_for_its_text(shape):
    """Keywords count there too: the price is that of the definition's JSON, whatever shape it came in."""
    shown = json.dumps({**NAMED, "parameters": SCHEMA})
    assert cost(shape, framing=ANTHROPIC) == ANTHROPIC.any_tools + ANTHROPIC.tool + words(shown)


KEYWORDED = {"type": "string", "pattern": "a b", "default": "c d", "format": "date", "examples": ["e f", "g h"]}


def test_keywords_cost_where_json_is_shown_and_nothing_in_signatures():
    """Patterns, defaults, formats and examples are part of the JSON only."""
    plain, keyworded = ({"properties": {"day": field}} for field in ({"type": "string"}, KEYWORDED))
    assert schema_cost(keyworded) == schema_cost(plain)
    assert schema_cost(keyworded, ANTHROPIC) == schema_cost(plain, ANTHROPIC) + 13


def test_families_render_tools_differently():
    """The same definition costs least as a typed signature and most beside a prompt that explains tools."""
    shape = SHAPES["openai"]
    assert cost(shape) < cost(shape, framing=GEMINI) < cost(shape, framing=ANTHROPIC)


def test_no_tools_cost_nothing():
    """The constant for tools is paid with the first one."""
    assert cost() == 0
    assert cost(SHAPES["openai"], SHAPES["openai"]) < 2 * cost(SHAPES["openai"])


def test_langchain_tools_are_read():
    """Decorated functions and pydantic models cost what their definitions do."""

    @tool
    def weather(city: str) -> str:
        """Looks up the weather."""
        return city

    class Weather(BaseModel):
        """Looks up the weather."""

        city: str = Field(description="Name of the city")

    assert cost(weather) == OPENAI.any_tools + OPENAI.tool + PRICES.description + PRICES.first_property + 6
    assert cost(Weather) == cost(weather) + PRICES.property_description + 4


@pytest.mark.parametrize("odd", [object(), 5, None, "search", {}, {"google_search": {}}, {"type": "web_search"}, [1]])
def test_a_tool_that_nobody_can_read_costs_a_little(odd):
    """A provider's own tools and unreadable ones pay the constants."""
    assert OPENAI.any_tools + OPENAI.tool <= cost(odd) < OPENAI.any_tools + OPENAI.tool + 20


@pytest.mark.parametrize("key", ["items", "anyOf", "oneOf", "allOf", "prefixItems", "additionalProperties", "not"])
def test_descriptions_and_choices_inside_combinations_count(key):
    """A schema inside a schema is priced like a field."""
    inner = {"description": "one of these", "enum": ("a", "b", "c")}
    part = [inner] if key.endswith("Of") or key == "prefixItems" else inner
    expected = PRICES.property_description + 3 + 3 * PRICES.enum_item + 3
    assert schema_cost({"type": "object", key: part}) == expected


def test_malformed_schemas_are_priced_as_far_as_they_go():
    """Keywords that hold the wrong thing are passed over."""
    wrong = {"properties": [1], "allOf": 5, "$defs": [1], "definitions": "x", "items": None, "enum": 3, "anyOf": [None]}
    assert schema_cost(wrong) == 0


def test_a_schema_that_contains_itself_is_entered_once():
    """A cycle ends where it closes."""
    cyclic = {"type": "object", "description": "node"}
    cyclic["properties"] = {"child": cyclic}
    assert schema_cost(cyclic) == PRICES.first_property + PRICES.property_description + 2
    assert 0 < schema_cost(cyclic, ANTHROPIC) < 20


def test_shared_definitions_do_not_multiply_without_end():
    """A schema of millions of paths is priced after so many parts."""
    shared = {"type": "object"}
    for _ in range(40):
        shared = {"type": "object", "properties": {"a": shared, "b": shared, "c": shared}}
    seen = []
    schema_tokens([{"name": "x", "parameters": shared}], OPENAI, lambda text: float(seen.append(text) or 1))
    assert 0 < len(seen) <= 4 * MAX_NODES
    assert 0 < schema_cost(shared, ANTHROPIC) < 3 * MAX_VALUES


def test_a_deep_schema_ends():
    """Nesting that no provider accepts is cut, without a recursion error."""
    deep = {"type": "object"}
    for _ in range(5_000):
        deep = {"type": "object", "properties": {"next": deep}}
    assert 0 < schema_cost(deep) < 1_000
    assert 0 < schema_cost(deep, ANTHROPIC) < 1_000


KEYWORDS = ("properties", "items", "anyOf", "enum", "$defs", "description", "type", "parameters", "function", "name")
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from((*KEYWORDS, "title")), inner, max_size=5)
    ),
)


@settings(deadline=None, max_examples=200)
@given(tools=st.lists(JSON, max_size=3))
def test_anything_has_a_price(tools):
    """No value in place of a tool breaks the count."""
    assert min(cost(*tools), cost(*tools, framing=ANTHROPIC)) >= 0
