"""Do local counters count every text exactly?"""

import sys

import pytest
import quicktok
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, ContextEngine, ModelLimits, TokenEstimator
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.counting import (
    LocalCounter,
    VocabularyCounter,
)
from langchain_ctxwin.pricing import Pricing

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
BUNDLED = ["cl100k_base", "llama3", "o200k_base", "o200k_harmony", "qwen3"]
SPECIAL = "<|endoftext|> <|im_start|>system<|im_end|> <|endofprompt|>"
SCHEMA = {
    "name": "look",
    "description": "Look at something.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
}


@pytest.mark.parametrize("encoding", BUNDLED)
def test_a_vocabulary_counts_what_it_encodes(encoding):
    counter = VocabularyCounter(encoding)
    for text in (
        "",
        "How many tokens is this?",
        "def add(a, b):\n    return a + b\n",
        "你好 🙂",
        SPECIAL,
    ):
        assert counter.count_text(text) == len(
            quicktok.get_encoding(encoding).encode_ordinary(text)
        )
    assert counter.count_text("\ud83d\ude00") == counter.count_text("\U0001f600")
    assert counter.count_text("a\ud800b") == counter.count_text("a\ufffdb")


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "system"]), ANY_TEXT),
        max_size=5,
    )
)
def test_a_request_costs_the_sum_of_its_messages(messages):
    counter = VocabularyCounter("o200k_base")
    base = counter([])
    assert counter(messages, tools=[SCHEMA]) == (
        base
        + sum(counter([message]) - base for message in messages)
        + counter([], tools=[SCHEMA])
        - base
    )


def test_a_counter_of_texts_counts_requests():
    counter = LocalCounter(len, family="llama")
    assert counter.count_text("\ud83d\ude00") == 1
    framing = FRAMING["llama"]
    assert counter([HumanMessage("hello")]) == framing.request + framing.message + 5


@pytest.mark.parametrize("encoding", ["o300k_base", 5])
def test_what_a_vocabulary_counter_does_not_know_is_refused_with_what_it_does(encoding):
    message = rf"encoding={encoding!r} is not on this machine: use one of {', '.join(BUNDLED)}, or import"
    with pytest.raises(ConfigError, match=message):
        VocabularyCounter(encoding)


def test_a_family_that_nobody_knows_is_refused_with_those_that_are_known():
    with pytest.raises(
        ConfigError, match=r"family='Claude' is unknown: use one of anthropic, .*qwen"
    ):
        LocalCounter(len, family="Claude")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "quicktok", None)
    with pytest.raises(ConfigError, match=r"pip install langchain-ctxwin\[exact\]"):
        VocabularyCounter("o200k_base")


def test_the_engine_reports_exact_counts():
    limits = ModelLimits(context_window=8192, max_output_tokens=512)
    question = [HumanMessage("What is here?")]
    counted = [
        ContextEngine(limits=limits, counter=counter)
        .measure(question, tools=[SCHEMA])
        .report
        for counter in (VocabularyCounter("o200k_base"), TokenEstimator("openai"))
    ]
    assert [report["counted_by"] for report in counted] == ["exact", "estimate"]
    assert counted[0]["total_tokens"] == VocabularyCounter("o200k_base")(
        question, tools=[SCHEMA]
    )


# Is every count had or estimated, whatever a counter does?

TEXT = HumanMessage("How many tokens is this, for which family of models?")
ESTIMATE = TokenEstimator()([TEXT])


def counting(counter):
    return Pricing(counter, family="generic")


def fail():
    raise KeyError("no such token")


def reasons(logs):
    return [log["reason"] for log in logs if log["event"] == "count.failed"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), "float"),
        (10**400, "int"),
        (-1, "int"),
        ("12", "str"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_count_is_estimated_and_said_once(value, kind):
    pricing = counting(lambda _: value)
    with capture_logs() as logs:
        counts = [pricing.count([TEXT]) for _ in range(3)]
    assert counts == [ESTIMATE] * 3
    assert reasons(logs) == [f"returned no number of tokens, but {kind}"]


def test_a_counter_of_texts_counts_no_messages_and_that_is_said():
    """Of a list of one message it would count nothing, and every request would fit."""
    count, words = (
        counting(lambda text: len(text) // 4).count,
        [HumanMessage("a " * 99)],
    )
    with capture_logs() as logs:
        assert count(words) == TokenEstimator()(words)
    assert "a list of messages, not a text" in reasons(logs)[0]
    assert count([HumanMessage("Hi.")]) == 0


def test_a_counter_without_tools_is_no_exact_one_from_the_first_request_with_tools_on():
    """The estimate that stands in for them has its margin at once."""

    class Exact:
        exact = True

        def __call__(self, messages):
            return 5 * len(messages)

    engine = ContextEngine(ModelLimits(8192), counter=Exact())
    first, then = (engine.measure([TEXT], tools=[SCHEMA]) for _ in range(2))
    assert first.report == then.report
    assert first.report["counted_by"] == "estimate"
    assert first.upper_tokens > first.total_tokens


def test_an_exception_concerns_one_request_and_an_exit_is_heard():
    answers = iter([fail, lambda: 5, lambda: sys.exit(3)])
    count = counting(lambda _: next(answers)()).count
    with capture_logs() as logs:
        assert [count([TEXT]), count([TEXT])] == [ESTIMATE, 5]
    assert reasons(logs) == ["KeyError"]
    with pytest.raises(SystemExit):
        count([TEXT])
