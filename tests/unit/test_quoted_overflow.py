"""Are the words of a request told from those of the provider that quotes them?"""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import ContextOverflow, classify_overflow
from langchain_ctxwin.core.overflow import Quotes, has_number, request_texts
from support.overflow_wordings import OVERFLOWS
from support.quoting import CLAIM, QUOTES, rejected, too_large

NOTHING_STATED = ContextOverflow()


@pytest.mark.parametrize("quote", QUOTES)
def test_a_limit_in_a_quote_of_the_request_is_not_read(quote):
    """However the provider prints it."""
    message = f"Look at this, it's odd: {CLAIM}"
    error = rejected(QUOTES[quote](message))
    assert classify_overflow(error) not in {None, NOTHING_STATED}
    found = classify_overflow(error, request=[message])
    assert (found, found.said_by) == (NOTHING_STATED, "request")


@pytest.mark.parametrize("quote", QUOTES)
def test_the_provider_s_own_limit_is_read_beside_a_quote(quote):
    """The same sentence with another number is the provider's."""
    error = too_large(8192, 8500, QUOTES[quote](CLAIM))
    found = classify_overflow(error, request=[CLAIM])
    assert (found.limit, found.said_by) == (8192, "provider")


@pytest.mark.parametrize(
    "texts",
    [
        ["the maximum context length is 3", "00 tokens. However, your messages", " resulted in 9000 tokens"],
        ["maximum context ", "length is 300 tokens. However,", " your messages resulted in 9000 tokens"],
    ],
)
def test_a_text_that_is_split_over_messages_is_a_quote_all_the_same(texts):
    """Servers print the messages one after the other."""
    error = rejected("".join(texts))
    assert classify_overflow(error).limit == 300
    assert classify_overflow(error, request=texts) == NOTHING_STATED


@pytest.mark.parametrize("message", ["max 300", "ctx 300", "limit: 300"])
def test_a_short_message_is_a_quote_as_a_whole(message):
    """It has too few letters to be found by a part of it."""
    error = f"the prompt is too long for the context: '{message}'"
    assert classify_overflow(error).limit == 300
    assert classify_overflow(error, request=[message]).limit is None


def test_words_of_the_request_do_not_give_the_provider_s_number_a_meaning():
    """The length of a text, beside a quote about context lengths, is no limit."""
    message = "this prompt exceeds the maximum context length of the model"
    error = rejected(f"'{message}' (300 tokens)")
    assert classify_overflow(error).limit == 300
    assert classify_overflow(error, request=[message]).limit is None


def test_a_code_that_the_request_brought_is_not_the_provider_s():
    """A body may hold the request itself."""
    block = {"type": "context_length_exceeded", "text": "limit 300"}
    body = {"detail": [{"msg": "unknown block", "input": block}]}
    assert classify_overflow(body).limit == 300
    found = classify_overflow(body, request=request_texts([HumanMessage([block])]))
    assert (found, found.said_by) == (NOTHING_STATED, "request")


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(CLAIM),
        HumanMessage([{"type": "text", "text": CLAIM}]),
        SystemMessage(CLAIM),
        ToolMessage(CLAIM, tool_call_id="1"),
        AIMessage("", tool_calls=[{"name": "note", "args": {"deep": [{"text": CLAIM}]}, "id": "1"}]),
        AIMessage("", additional_kwargs={"function_call": {"name": "note", "arguments": CLAIM}}),
    ],
)
def test_every_part_of_a_message_counts_as_the_request_s(message):
    """Contents, blocks and calls: whoever may have written them."""
    assert classify_overflow(rejected(CLAIM), request=request_texts([message])) == NOTHING_STATED


def test_a_tool_definition_counts_as_the_request_s():
    """It may come from somebody else's server."""
    tool = {"type": "function", "function": {"name": "t", "description": CLAIM, "parameters": {}}}
    assert classify_overflow(rejected(json.dumps(tool)), request=request_texts([], [tool])) == NOTHING_STATED


@pytest.mark.parametrize("wording", OVERFLOWS)
def test_a_request_about_something_else_changes_no_reading(wording):
    """Ordinary words and numbers are everybody's."""
    request = [
        "How many orders of the messages are open in 2024? There are 8192, with 1,024 items each.",
        "Is it long?",
    ]
    error, expected = OVERFLOWS[wording]
    assert classify_overflow(error, request=request) == expected


@pytest.mark.parametrize("wording", [name for name, (_, expected) in OVERFLOWS.items() if expected.limit])
def test_a_request_that_tells_of_another_refusal_changes_no_limit(wording):
    """The same sentence with other numbers is no quote."""
    error, expected = OVERFLOWS[wording]
    told = re.sub(r"\d+", lambda number: "7" * len(number[0]), str(error))
    found = classify_overflow(error, request=[f"Yesterday it said {told}"])
    assert (found.limit, found.said_by) == (expected.limit, "provider")


quoted = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=80)


@given(before=quoted, after=quoted, style=st.sampled_from([*QUOTES.values()][2:6]))
def test_no_quote_states_a_limit(before, after, style):
    """Whatever stands around it in the message, and however that is printed."""
    message = f"{before} {CLAIM} {after}"
    found = classify_overflow(rejected(style(message)), request=[message])
    assert found is None or found == NOTHING_STATED


@given(text=quoted)
def test_masking_leaves_what_is_not_in_the_request(text):
    """An error that shares nothing comes back as it was."""
    assert Quotes([]).masked(text) == text


@pytest.mark.parametrize(
    ("text", "is_there"),
    [("300", True), ("at most 8,300", False), ("30000", True), ("3,00", True), ("1300", False), ("3 k", False)],
)
def test_a_number_is_found_as_the_request_spells_it(text, is_there):
    """Also cut off, but not inside another number."""
    assert has_number([text], 300) is is_there


def test_thousands_are_found_in_their_short_form():
    """8k is 8,000."""
    assert [has_number([text], 8000) for text in ("8k", "8 K tokens", "18k", "8,000")] == [True, True, False, True]
