"""Do local counters count every text exactly, and are providers asked rarely and without failing the caller?"""

import asyncio
import contextvars
import sys
import threading

import httpx
import pytest
import quicktok
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, ContextEngine, ModelLimits, TokenEstimator
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.counting import (
    RETRY_SECONDS,
    AnthropicCounter,
    GeminiCounter,
    RemoteCounter,
    TokenizerFileCounter,
    VocabularyCounter,
)
from langchain_ctxwin.protocols import RequestCounter
from support.fakes import ScriptedChatModel, script

RUNS = settings(max_examples=30)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
BUNDLED = ["cl100k_base", "llama3", "o200k_base", "o200k_harmony", "qwen3"]
SPECIAL = "<|endoftext|> <|im_start|>system<|im_end|> <|endofprompt|>"
SCHEMA = {
    "name": "look",
    "description": "Look at something.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
}


@pytest.fixture(scope="session")
def tokenizer():
    """A byte-level tokenizer with a special token, that asks to cut and to pad."""
    tokenizers = pytest.importorskip(
        "tokenizers", reason="the package that reads tokenizer.json is not installed"
    )
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {char: rank for rank, char in enumerate(sorted(alphabet))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<|endoftext|>"])
    made.enable_truncation(max_length=4)
    made.enable_padding(length=64)
    return made


@pytest.fixture
def tokenizer_path(tokenizer, tmp_path):
    """The tokenizer as a file."""
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


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


@RUNS
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


def test_a_tokenizer_file_counts_all_of_a_text_as_text(tokenizer_path):
    counter = TokenizerFileCounter(tokenizer_path, family="llama")
    assert [
        counter.count_text(text)
        for text in ("", "hello", "<|endoftext|>", "é", "a\0b", "\ud83d\ude00")
    ] == [0, 5, 13, 2, 3, 4]
    assert (
        counter([HumanMessage("hello")])
        == FRAMING["llama"].request + FRAMING["llama"].message + 5
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            b'{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}',
            "WordLevel error",
        ),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(content, reason, tmp_path):
    pytest.importorskip(
        "tokenizers", reason="the package that reads tokenizer.json is not installed"
    )
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        ConfigError, match=rf"broken\.json is no usable tokenizer\.json: .*{reason}"
    ):
        TokenizerFileCounter(path)


@pytest.mark.parametrize("encoding", ["o300k_base", 5])
def test_what_a_vocabulary_counter_does_not_know_is_refused_with_what_it_does(encoding):
    message = rf"encoding={encoding!r} is not on this machine: use one of {', '.join(BUNDLED)}, or import"
    with pytest.raises(ConfigError, match=message):
        VocabularyCounter(encoding)
    with pytest.raises(
        ConfigError, match=r"family='Claude' is unknown: use one of anthropic, .*qwen"
    ):
        VocabularyCounter("o200k_base", family="Claude")


@pytest.mark.parametrize(
    ("package", "make"),
    [("quicktok", VocabularyCounter), ("tokenizers", TokenizerFileCounter)],
    ids=str,
)
def test_a_missing_package_is_named(package, make, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install langchain-ctxwin\[exact\]"):
        make("o200k_base")


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


HI = [HumanMessage("hi")]
QUOTED = "the launch code is 0000"
ESTIMATOR = TokenEstimator("gemini")
CALLER = contextvars.ContextVar("CALLER", default="nobody")


class Provider(RemoteCounter):
    """Answers with a number, raises an exception, or does what a function says; remembers what it was asked."""

    provider = "test"
    chat_model = ("support.fakes", "ScriptedChatModel")

    def __init__(self, answer=42, **options):
        self.answer, self.asked, self.now, self.saw = answer, [], 1_000.0, []
        settings = {"estimator": ESTIMATOR, "clock": lambda: self.now} | options
        super().__init__(ScriptedChatModel(policy=script("hi")), **settings)

    def ask(self, messages, tools):
        self.asked.append((messages, tools))
        self.saw.append((CALLER.get(), threading.current_thread().daemon))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


@pytest.fixture(params=["sync", "async"])
def count(request):
    """Count in both ways: `count(counter, messages, tools=None)`."""
    if request.param == "sync":
        return lambda counter, messages, tools=None: counter.count_request(
            messages, tools=tools
        )
    return lambda counter, messages, tools=None: asyncio.run(
        counter.acount_request(messages, tools=tools)
    )


def questions(number):
    return [[HumanMessage(f"question {n}")] for n in range(number)]


def test_the_whole_request_is_asked_once_and_one_that_asks_nothing_never(count):
    provider = Provider()
    first = [SystemMessage("s"), HumanMessage("hi", id="a")]
    requests = [
        first,
        [SystemMessage("s"), HumanMessage("hi", id="b")],
        [*first, AIMessage("ho")],
    ]
    with capture_logs() as logs:
        assert [
            count(provider, request, [SCHEMA]) for request in [*requests, [], first[:1]]
        ] == [42] * 3 + [None] * 2
    assert (provider.asked, logs) == ([(first, [SCHEMA]), (requests[2], [SCHEMA])], [])


class StatedError(Exception):
    """An error with a status, as SDKs raise them, that quotes the request."""

    def __init__(self):
        super().__init__(f"cannot count {QUOTED!r}")
        self.response = httpx.Response(429)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (StatedError(), "StatedError: HTTP 429"),
        (TimeoutError(), "TimeoutError: no answer within 5 seconds"),
        (None, "the count is a NoneType"),
        (0, "the count is 0"),
    ],
)
def test_a_failure_is_logged_once_and_the_estimate_stands(count, answer, reason):
    provider, request = Provider(answer), [HumanMessage(QUOTED)]
    with capture_logs() as logs:
        assert count(provider, request) is None
        assert provider(request) == ESTIMATOR(request)
    assert logs == [
        {
            "event": "count.failed",
            "log_level": "warning",
            "provider": "test",
            "reason": reason,
        }
    ]
    assert len(provider.asked) == 1


def test_a_dead_endpoint_is_asked_once_per_pause(count):
    """Other requests do not pay for it, what is known is told meanwhile, and when it is back, it is asked again."""
    provider = Provider()
    count(provider, HI)
    provider.answer = ConnectionError()
    assert [count(provider, request) for request in [*questions(20), HI]] == [
        None
    ] * 20 + [42]
    assert len(provider.asked) == 2
    provider.now += RETRY_SECONDS
    provider.answer = 7
    assert [count(provider, request) for request in questions(20)] == [7] * 20


def test_as_a_plain_counter_it_counts_message_likes_and_claims_no_more_than_it_can_keep():
    counter, plain = Provider(), Provider(estimator=lambda messages, *, tools=None: 5)
    assert (counter([("user", "hi")], tools=[SCHEMA]), counter([])) == (
        42,
        ESTIMATOR([]),
    )
    assert counter.asked == [(HI, [SCHEMA])]
    bounds = (ESTIMATOR.upper(1_000), ESTIMATOR.lower(1_000))
    assert (counter.exact, counter.upper(1_000), counter.lower(1_000)) == (
        False,
        *bounds,
    )
    assert (plain.upper(1_000), plain.lower(1_000)) == (1_000, 1_000)
    assert isinstance(counter, RequestCounter)
    assert not isinstance(ESTIMATOR, RequestCounter)


def test_a_model_of_another_class_is_refused(monkeypatch):
    with pytest.raises(
        ConfigError,
        match="GeminiCounter cannot count with a Provider: give it the ChatGoogleGen",
    ):
        GeminiCounter(Provider())
    monkeypatch.setitem(sys.modules, "langchain_anthropic", None)
    with pytest.raises(
        ConfigError,
        match="AnthropicCounter needs ChatAnthropic: pip install langchain-anthropic",
    ):
        AnthropicCounter(Provider())
