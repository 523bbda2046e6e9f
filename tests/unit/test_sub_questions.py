"""Is a question of several parts seen as such, is a single one left alone, and is no text lost?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_ctxwin.decompose import asplit_question, split_question
from support.fakes import ScriptedChatModel, script

BOTH = ("Who signed it?", "When does it end?")
PLAIN = "Who signed it? When does it end?"


def model_that_says(reply):
    return ScriptedChatModel(policy=script(reply))


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Who signed it?", ("Who signed it?",)),
        (PLAIN, BOTH),
        ("About the lease. Who signed it? When does it end?", ("About the lease. Who signed it?", BOTH[1])),
        ("Who signed it? When does it end? Be brief.", (BOTH[0], "When does it end? Be brief.")),
        ("Who signed it and when does it end?", ("Who signed it", "when does it end?")),
        ("Who signed it, and how many doors are there?", ("Who signed it", "how many doors are there?")),
        (
            "List all the doors; name every single key; count the hinges.",
            ("List all the doors", "name every single key", "count the hinges."),
        ),
        ("It has x = 1; it has y = 2; it says which.", ("It has x = 1; it has y = 2; it says which.",)),
        ("I know the man who came and what is his name?", ("I know the man who came and what is his name?",)),
        ("Who knows what and why?", ("Who knows what and why?",)),
        ("What do salt and pepper cost?", ("What do salt and pepper cost?",)),
        ("Is https://a.example/?q=1&b=2 a link of ours?", ("Is https://a.example/?q=1&b=2 a link of ours?",)),
        ("For the lease:\n1. Who signed it?\n2. When does it end?", tuple(f"For the lease: {part}" for part in BOTH)),
        ("- Who signed it?\n- When does it\n  end?", ("Who signed it?", "When does it\n  end?")),
        ("門はどこですか\uff1f鍵は誰が持っていますか\uff1f", ("門はどこですか\uff1f", "鍵は誰が持っていますか\uff1f")),
        ("Really? Who signed the lease?", ("Really? Who signed the lease?",)),
        ("Who signed the lease? Why?", ("Who signed the lease? Why?",)),
        ("Why? " * 40, None),
        ("", ("",)),
    ],
)
def test_a_question_is_cut_only_where_it_is_surely_several(question, parts):
    """Lists, question marks, and clauses that could each stand alone."""
    found = split_question(question)
    if parts is not None:
        assert found == parts
    assert 1 <= len(found) <= 12


WORDS = ["Who is it?", "Why?", "and", "which", "; ", "\n1. ", "\n- ", "The door.", "\uff1f"]


@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_no_word_of_a_question_is_lost(words):
    """The parts together have every word, in order; only marks of a list and joining words are left out."""
    question = " ".join(words)
    joined = " ".join(split_question(question))
    left_out = {"and", "1.", "-", ";"}
    wanted = [word for word in question.replace(";", " ; ").split() if word not in left_out]
    rest = iter(joined.replace(";", " ; ").split())
    assert all(any(word == other for other in rest) for word in wanted)


@pytest.mark.parametrize(
    "reply",
    [
        '["Who signed it?", "When does it end?"]',
        '```json\n["Who signed it?", "When does it end?"]\n```',
        'Here they are: ["Who signed it?", "When does it end?", "Who signed it?"]',
        'Sure! [1] ["Who signed it?", "When does it end?"] [2]',
        '{"questions": ["Who signed it?", "When does it end?"]}',
        "1. Who signed it?\n2. When does it end?",
        "Sure!\n- Who signed it?\n- When does it end?",
    ],
)
def test_a_models_list_is_read_in_any_usual_form(reply):
    """An array, also fenced or with words around it, or the lines of a list; repeated questions once."""
    assert split_question("Who signed it, and until when?", model_that_says(reply)) == BOTH


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot do that.",
        "[1, 2]",
        "[",
        "{}",
        "[]",
        '["a", 3]',
        "[" * 100_000,
        "- The answer is 5.\n- It ends in May.",
        '["' + "x" * 5000 + '"]',
    ],
)
def test_an_unusable_reply_leaves_the_question_to_the_rules(reply):
    """Nothing that a model writes can spoil the run."""
    assert split_question(PLAIN, model_that_says(reply)) == BOTH


def test_a_model_that_sees_one_question_is_believed():
    """The question stays as it was asked."""
    assert split_question(f" {PLAIN} ", model_that_says('["Who signed it until when?"]')) == (PLAIN,)


def test_too_many_questions_are_a_misreading():
    """A model that takes each word for a question is not believed."""
    reply = AIMessage(str([f"Q {number}?" for number in range(40)]).replace("'", '"'))
    assert split_question(PLAIN, model_that_says(reply)) == BOTH


async def test_a_failing_model_leaves_the_question_to_the_rules():
    """Sync and async."""

    def fail(messages):
        raise TimeoutError

    assert split_question(PLAIN, RunnableLambda(fail)) == BOTH
    assert await asplit_question(PLAIN, RunnableLambda(fail)) == BOTH


async def test_the_model_is_awaited_in_async_code():
    """The same questions as in sync code."""
    assert await asplit_question("Both?", model_that_says('["Who signed it?", "When does it end?"]')) == BOTH
