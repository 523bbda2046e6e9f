"""Do the counters on this machine count every text exactly, whatever is in it, and say what they miss?"""

import sys

import pytest
import quicktok
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import ConfigError, ContextEngine, ModelLimits, TokenEstimator
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.counting import TokenizerFileCounter, VocabularyCounter
from langchain_ctxwin.counting.local import LocalCounter

RUNS = settings(deadline=None, max_examples=30)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
BUNDLED = ["cl100k_base", "llama3", "o200k_base", "o200k_harmony", "qwen3"]
SPECIAL = "<|endoftext|> <|im_start|>system<|im_end|> <|endofprompt|>"
ODD_TEXTS = {
    "nul": "a\0b", "special": SPECIAL, "lone surrogate": "a\ud800b", "pair": "\ud83d\ude00", "private use": "\ue000",
    "a megabyte": "x" * 1_000_000, "a megabyte of words": "word " * 200_000, "emoji": "👩‍👩‍👧‍👦" * 50,
}  # fmt: skip
SCHEMA = {
    "name": "look",
    "description": "Look at something.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
}
CALL = {"name": "look", "args": {"name": "door"}, "id": "1", "type": "tool_call"}
HISTORY = [
    SystemMessage("Be brief."),
    HumanMessage("What is here?"),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage("A door.", tool_call_id="1"),
]


@pytest.fixture(scope="session")
def tokenizer():
    """A byte-level tokenizer with a special token, that asks to cut and to pad."""
    tokenizers = pytest.importorskip("tokenizers", reason="the package that reads tokenizer.json is not installed")
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
    """The count of a text is the number of its tokens; special tokens are text."""
    counter = VocabularyCounter(encoding)
    for text in ("", "How many tokens is this?", "def add(a, b):\n    return a + b\n", "你好 🙂", SPECIAL):
        assert counter.count_text(text) == len(quicktok.get_encoding(encoding).encode_ordinary(text))


@pytest.mark.parametrize(
    ("encoding", "family"),
    [("o200k_base", "openai"), ("cl100k_base", "cl100k"), ("llama3", "llama"), ("qwen3", "qwen")],
)
def test_framing_goes_by_the_encoding_unless_a_family_is_given(encoding, family):
    """What surrounds the text costs what it costs in the family of the vocabulary."""
    implied, stated = VocabularyCounter(encoding), VocabularyCounter(encoding, family="gemini")
    assert (implied.family, implied([])) == (family, FRAMING[family].request)
    assert stated([HumanMessage("hi")]) == stated([]) + FRAMING["gemini"].message + stated.count_text("hi")


@pytest.mark.parametrize("tools", [[], [SCHEMA]])
def test_a_request_differs_from_an_estimate_in_its_texts_alone(tools):
    """Framing, calls and tool structure are priced by the same rules: only rounding up each text is left."""
    estimator = TokenEstimator("openai")
    local = LocalCounter(estimator.count_text, family="openai")
    texts = 20  # more than there are in the request
    assert estimator(HISTORY, tools=tools) <= local(HISTORY, tools=tools) <= estimator(HISTORY, tools=tools) + texts


@RUNS
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), ANY_TEXT), max_size=5))
def test_a_request_costs_the_sum_of_its_messages(messages):
    """The engine adds up prices of single messages."""
    counter = VocabularyCounter("o200k_base")
    base = counter([])
    assert counter(messages, tools=[SCHEMA]) == (
        base + sum(counter([message]) - base for message in messages) + counter([], tools=[SCHEMA]) - base
    )


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_odd_texts_are_counted(text, tokenizer_path):
    """No text raises, and none that has characters is free."""
    assert VocabularyCounter("o200k_base").count_text(text) > 0
    assert TokenizerFileCounter(tokenizer_path).count_text(text) > 0


def test_surrogates_count_as_what_arrives():
    """A pair is the character it stands for, a lone one the replacement character."""
    counter = VocabularyCounter("o200k_base")
    assert counter.count_text("\ud83d\ude00") == counter.count_text("\U0001f600")
    assert counter.count_text("a\ud800b") == counter.count_text("a\ufffdb")


def test_a_tokenizer_file_counts_all_of_a_text_as_text(tokenizer_path):
    """What the file asks for elsewhere (to cut, to pad, to read special tokens) does not change a count."""
    counter = TokenizerFileCounter(tokenizer_path, family="llama")
    assert [counter.count_text(text) for text in ("", "hello", "<|endoftext|>", "é")] == [0, 5, 13, 2]
    assert counter([HumanMessage("hello")]) == FRAMING["llama"].request + FRAMING["llama"].message + 5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "EOF"),
        (b"not json", "expected"),
        (b"{}", "Model missing"),
        (b"\xff\xfe\0", "UTF-8"),
        (b'{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}', "WordLevel error"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(content, reason, tmp_path):
    """The error names the file and what is wrong with it; one that would fail on a user's text is refused as well."""
    pytest.importorskip("tokenizers", reason="the package that reads tokenizer.json is not installed")
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"broken\.json is no usable tokenizer\.json: .*{reason}"):
        TokenizerFileCounter(path)


@pytest.mark.parametrize("encoding", ["o300k_base", "", 5])
def test_what_a_vocabulary_counter_does_not_know_is_refused_with_what_it_does(encoding):
    message = rf"encoding={encoding!r} is not on this machine: use one of {', '.join(BUNDLED)}, or import"
    with pytest.raises(ConfigError, match=message):
        VocabularyCounter(encoding)
    with pytest.raises(ConfigError, match=r"family='Claude' is unknown: use one of anthropic, .*qwen"):
        VocabularyCounter("o200k_base", family="Claude")


@pytest.mark.parametrize(
    ("package", "make"), [("quicktok", VocabularyCounter), ("tokenizers", TokenizerFileCounter)], ids=str
)
def test_a_missing_package_is_named(package, make, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install langchain-ctxwin\[exact\]"):
        make("o200k_base")


def test_the_engine_reports_exact_counts():
    """A local counter says of itself that it is exact, and has no bounds."""
    limits = ModelLimits(context_window=8192, max_output_tokens=512)
    question = [HumanMessage("What is here?")]
    counted = [
        ContextEngine(limits=limits, counter=counter).measure(question, tools=[SCHEMA]).report
        for counter in (VocabularyCounter("o200k_base"), TokenEstimator("openai"))
    ]
    assert [report["counted_by"] for report in counted] == ["exact", "estimate"]
    assert counted[0]["total_tokens"] == VocabularyCounter("o200k_base")(question, tools=[SCHEMA])
