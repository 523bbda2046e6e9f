"""Where do the settings of a retrieval come from, and which are refused?"""

import math

import pytest
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.retrievers import BaseRetriever
from pydantic import BaseModel

from langchain_ctxwin.config import RetrievalConfig
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.retrieval import BudgetedCompressor, BudgetedRetriever
from support.chunks import Chars, FixedRetriever, budgeted, chunk, names


def test_defaults_are_the_documented_ones():
    """8,192 tokens, the key `score`, no `k`, stop at the first overflow."""
    retriever = BudgetedRetriever(base=FixedRetriever(found=[]))
    settings = (retriever.max_context_tokens, retriever.score, retriever.k, retriever.on_overflow, retriever.counter)
    assert settings == (8192, "score", None, "stop", None)


@pytest.mark.parametrize("make", [lambda **o: budgeted([], **o), BudgetedCompressor])
def test_the_environment_sets_defaults_and_arguments_win(monkeypatch, make):
    """Defaults are read when the object is made, also for the compressor; `k=None` is an argument too."""
    monkeypatch.setenv("CTXWIN_RETRIEVAL_K", "3")
    monkeypatch.setenv("CTXWIN_RETRIEVAL_SCORE", "relevance")
    monkeypatch.setenv("CTXWIN_RETRIEVAL_ON_OVERFLOW", "skip")
    default, explicit = make(), make(k=None, score="rank", on_overflow="stop")
    assert (default.k, default.score, default.on_overflow) == (3, "relevance", "skip")
    assert (explicit.k, explicit.score, explicit.on_overflow) == (None, "rank", "stop")


def test_a_budget_in_the_environment_applies(monkeypatch):
    """The budget can be lowered without touching the code."""
    monkeypatch.setenv("CTXWIN_RETRIEVAL_MAX_CONTEXT_TOKENS", "10")
    retriever = BudgetedRetriever(base=FixedRetriever(found=[chunk("a", 6), chunk("b", 6)]), counter=Chars())
    assert names(retriever.invoke("q")) == ["a"]


def test_settings_of_a_file_apply_and_arguments_win(tmp_path):
    """`from_config` takes every setting of the file; further arguments win over it."""
    path = tmp_path / "retrieval.toml"
    path.write_text('max_context_tokens = 50\nscore = "rank"\nk = 4\non_overflow = "skip"\n')
    config = RetrievalConfig.from_file(path)
    retriever = BudgetedRetriever.from_config(config, base=FixedRetriever(found=[]), k=2)
    compressor = BudgetedCompressor.from_config(config)
    assert (retriever.max_context_tokens, retriever.score, retriever.k, retriever.on_overflow) == (
        50,
        "rank",
        2,
        "skip",
    )
    assert (compressor.max_context_tokens, compressor.score, compressor.k) == (50, "rank", 4)


@pytest.mark.parametrize(
    "options",
    [
        {"max_context_tokens": 0},
        {"max_context_tokens": -1},
        {"max_context_tokens": "many"},
        {"max_context_tokens": math.nan},
        {"k": 0},
        {"k": -3},
        {"on_overflow": "split"},
        {"score": 7},
        {"counter": 4},
        {"max_tokens": 100},
    ],
)
def test_a_bad_argument_is_a_config_error_that_names_it(options):
    """Out of range, of the wrong type, or misspelt: never ignored, for the retriever and the compressor."""
    [(name, value)] = options.items()
    with pytest.raises(ConfigError, match=rf"{name}.*={value!r}: "):
        BudgetedRetriever(base=FixedRetriever(found=[]), **options)
    with pytest.raises(ConfigError, match=rf"{name}.*={value!r}: "):
        BudgetedCompressor(**options)


@pytest.mark.parametrize("base", [None, "store", lambda query: []])
def test_a_base_that_is_no_runnable_is_a_config_error(base):
    """The error names the field and what it got."""
    with pytest.raises(ConfigError, match="base="):
        BudgetedRetriever(base=base)


def test_a_bad_environment_is_a_config_error(monkeypatch):
    """A wrong variable is reported when the retriever is made."""
    monkeypatch.setenv("CTXWIN_RETRIEVAL_K", "0")
    with pytest.raises(ConfigError, match="k='0'"):
        BudgetedRetriever(base=FixedRetriever(found=[]))


def test_both_are_accepted_as_fields_of_other_pydantic_models():
    """Composite retrievers validate their parts as instances, also as one member of a union."""

    class Pipeline(BaseModel):
        compressor: BaseDocumentCompressor
        retriever: BaseRetriever
        either: BudgetedCompressor | FixedRetriever

    compressor, retriever, fixed = BudgetedCompressor(), budgeted([]), FixedRetriever(found=[])
    pipeline = Pipeline(compressor=compressor, retriever=retriever, either=fixed)
    assert (pipeline.compressor, pipeline.retriever, pipeline.either) == (compressor, retriever, fixed)
