"""What does a provider add around text, by family?"""

from dataclasses import fields

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.core.tool_schemas import FRAMING, FieldPrices

FAMILIES = sorted(FRAMING)
COUNTS = ("request", "message", "call", "any_tools", "tool")
SIGNATURES = {"openai", "cl100k", "gemini"}
EMPTY = {"name": "", "description": "", "parameters": {}}
CALL = {"name": "", "args": {}, "id": "c1", "type": "tool_call"}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_constant_is_negative(family):
    """Framing never makes a request smaller."""
    framing = FRAMING[family]
    prices = [getattr(framing.fields, field.name) for field in fields(FieldPrices)] if framing.fields else [0]
    assert min(*(getattr(framing, name) for name in COUNTS), *prices) >= 0


def test_models_are_shown_signatures_or_json():
    """Only some families render definitions; the others show them as they are."""
    assert {family for family in FAMILIES if FRAMING[family].fields} == SIGNATURES


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_pays_for_itself_and_for_each_message(family):
    """Messages without text cost their framing alone."""
    framing, count = FRAMING[family], TokenEstimator(family)
    assert count([]) == framing.request
    assert count([HumanMessage("")] * 3) == framing.request + 3 * framing.message


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_and_its_result_each_pay_for_a_call(family):
    """What remains of the price is the text of a call without a name and without arguments: two brackets or nothing."""
    framing, count = FRAMING[family], TokenEstimator(family)
    plain = count([AIMessage(""), HumanMessage("")])
    called = count([AIMessage("", tool_calls=[CALL]), ToolMessage("", tool_call_id="c1")])
    assert 0 <= called - plain - 2 * framing.call <= 3


@pytest.mark.parametrize("family", FAMILIES)
def test_the_constant_for_tools_is_paid_once(family):
    """Each further definition pays for itself alone."""
    framing, count = FRAMING[family], TokenEstimator(family)
    none, one, two = (count([], tools=[EMPTY] * number) for number in range(3))
    assert two - one == pytest.approx(one - none - framing.any_tools, abs=1)
    assert one - none >= framing.any_tools + framing.tool


def test_tools_cost_a_constant_most_where_a_prompt_explains_them():
    """Families with a prompt of their own for tools pay hundreds of tokens for the first, the others next to none."""
    assert {family for family in FAMILIES if FRAMING[family].any_tools >= 300} == {"anthropic", "claude3"}
    assert {family for family in FAMILIES if FRAMING[family].any_tools < 50} == SIGNATURES
