"""Do the counters on this machine count every text exactly, whatever is in it, and say what they miss?"""

import base64
import hashlib
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import quicktok
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import ConfigError, ContextEngine, ModelLimits, TokenEstimator
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.counting import TokenizerFileCounter, VocabularyCounter
from langchain_ctxwin.counting.local import CACHE_FILES, CACHE_VARIABLE, LocalCounter

RUNS = settings(deadline=None, max_examples=100)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
BUNDLED = ["cl100k_base", "llama3", "o200k_base", "o200k_harmony", "qwen3"]
SPECIAL = "<|endoftext|> <|im_start|>system<|im_end|> <|endofprompt|>"
ODD_TEXTS = {
    "nul": "a\0b", "special": SPECIAL, "lone surrogate": "a\ud800b", "pair": "\ud83d\ude00", "private use": "\ue000",
    "a megabyte": "x" * 1_000_000, "a megabyte of words": "word " * 200_000, "emoji": "👩‍👩‍👧‍👦" * 50,
}  # fmt: skip
CL100K_TOKENS = 100_256  # in the published file; special tokens are not in it
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
def tiktoken_cache(tmp_path_factory):
    """A folder as tiktoken leaves it after a download, written from quicktok's copy of the vocabulary."""
    folder = tmp_path_factory.mktemp("tiktoken")
    encoding = quicktok.get_encoding("cl100k_base")
    tokens = map(encoding.decode_single_token_bytes, range(CL100K_TOKENS))
    lines = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    (folder / CACHE_FILES["cl100k_base"][0]).write_bytes(b"".join(lines))
    return folder


@pytest.fixture
def without_quicktok(monkeypatch, tmp_path):
    """A machine without quicktok and with an empty cache."""
    monkeypatch.setitem(sys.modules, "quicktok", None)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return monkeypatch


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


@RUNS
@given(ANY_TEXT)
def test_any_text_is_counted(text):
    """A count is a whole number, zero for the empty text alone."""
    tokens = VocabularyCounter("o200k_base").count_text(text)
    assert (type(tokens), tokens > 0) == (int, bool(text))


def test_surrogates_count_as_what_arrives():
    """A pair is the character it stands for, a lone one the replacement character."""
    counter = VocabularyCounter("o200k_base")
    assert counter.count_text("\ud83d\ude00") == counter.count_text("\U0001f600")
    assert counter.count_text("a\ud800b") == counter.count_text("a\ufffdb")


def test_threads_count_the_same():
    """One counter serves many threads."""
    counter = VocabularyCounter("o200k_base")
    texts = [f"line {n}: {'word ' * n}" for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(counter.count_text, texts)) == [counter.count_text(text) for text in texts]


@pytest.mark.parametrize("encoding", ["o300k_base", "", "llama4", 5])
def test_an_encoding_that_is_not_here_is_refused_with_those_that_are(encoding, monkeypatch):
    """Who misspells an encoding sees the list."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    message = rf"encoding={encoding!r} is not on this machine: use one of {', '.join(BUNDLED)}, "
    with pytest.raises(ConfigError, match=message):
        VocabularyCounter(encoding)


def test_an_unknown_family_is_refused():
    """A misspelled family is not taken as a generic one."""
    with pytest.raises(ConfigError, match=r"family='Claude' is unknown: use one of anthropic, .*qwen"):
        VocabularyCounter("o200k_base", family="Claude")


def test_a_missing_package_is_named(without_quicktok):
    """Without any tokenizer the error says what to install."""
    for package in ("tiktoken", "tokenizers"):
        without_quicktok.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install langchain-ctxwin\[exact\]"):
        VocabularyCounter("o200k_base")
    with pytest.raises(ConfigError, match=r"pip install langchain-ctxwin\[exact\]"):
        TokenizerFileCounter("tokenizer.json")


def test_tiktoken_counts_from_its_cache(without_quicktok, tiktoken_cache):
    """Where quicktok is missing, a vocabulary that tiktoken has cached counts the same."""
    pytest.importorskip("tiktoken", reason="the other package with these vocabularies is not installed")
    without_quicktok.setenv(CACHE_VARIABLE, str(tiktoken_cache))
    counter = VocabularyCounter("cl100k_base")
    without_quicktok.undo()
    preferred = VocabularyCounter("cl100k_base")
    for text in ("How many tokens is this?", SPECIAL, "a\ud800b", "你好 🙂", "a\0b"):
        assert counter.count_text(text) == preferred.count_text(text)


@pytest.mark.parametrize("content", [None, b"", b"not a vocabulary"])
def test_tiktoken_never_downloads(content, without_quicktok, tmp_path):
    """A vocabulary that is missing or broken in the cache is refused, and the file left as it is."""
    pytest.importorskip("tiktoken", reason="the other package with these vocabularies is not installed")
    path = tmp_path / CACHE_FILES["o200k_base"][0]
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"'o200k_base' is not on this machine: use one of none, .*TIKTOKEN_CACHE_DIR"
    ):
        VocabularyCounter("o200k_base")
    assert content is None or path.read_bytes() == content


def test_the_cache_files_are_those_that_tiktoken_reads():
    """Names and digests are the ones in tiktoken's own source."""
    openai_public = pytest.importorskip("tiktoken_ext.openai_public", reason="tiktoken is not installed")
    for encoding, (name, digest) in CACHE_FILES.items():
        source = inspect.getsource(getattr(openai_public, encoding))
        (url,) = [part for part in source.split('"') if part.startswith("https://")]
        assert (hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest(), digest in source) == (name, True)


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
        (b"[]", "invalid type"),
        (b"{}", "Model missing"),
        (b"\xff\xfe\0", "UTF-8"),
        (b'{"version": "1.0", "model": null}', "did not match"),
    ],
)
def test_a_broken_tokenizer_file_is_refused(content, reason, tmp_path):
    """The error names the file and what is wrong with it."""
    pytest.importorskip("tokenizers", reason="the package that reads tokenizer.json is not installed")
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"broken\.json is no usable tokenizer\.json: .*{reason}"):
        TokenizerFileCounter(path)


def test_a_missing_tokenizer_file_and_a_folder_are_refused(tmp_path):
    """The error names the path and the reason."""
    pytest.importorskip("tokenizers", reason="the package that reads tokenizer.json is not installed")
    with pytest.raises(ConfigError, match=r"nowhere\.json is no usable tokenizer\.json: No such file"):
        TokenizerFileCounter(tmp_path / "nowhere.json")
    with pytest.raises(ConfigError, match=rf"{tmp_path} is no usable tokenizer\.json: Is a directory"):
        TokenizerFileCounter(tmp_path)


def test_a_tokenizer_that_fails_on_unknown_characters_is_refused_at_once(tmp_path):
    """Better no counter than one that fails on a user's text."""
    tokenizers = pytest.importorskip("tokenizers", reason="the package that reads tokenizer.json is not installed")
    path = tmp_path / "words.json"
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="?")).save(str(path))  # noqa: S106
    with pytest.raises(ConfigError, match=r"words\.json is no usable tokenizer\.json: WordLevel error"):
        TokenizerFileCounter(path)


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
