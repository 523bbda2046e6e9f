"""Does a retrieval keep the most relevant whole chunks that fit, and say what it left out?"""

from fractions import Fraction

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from structlog.testing import capture_logs

from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.retrieval import BudgetedCompressor, BudgetedRetriever, RetrievalResult
from support.chunks import SCORES, Chars, FixedRetriever, budgeted, chunk, marked, names


def truncation_events(logs):
    return [entry for entry in logs if entry["event"] == "retrieval.truncated"]


def test_chunks_are_kept_by_descending_score_until_one_does_not_fit():
    """The first chunk over the budget ends the selection, although a later one would fit."""
    a, b, c, d = chunk("a", 40, 0.2), chunk("b", 50, 0.9), chunk("c", 60, 0.5), chunk("d", 5, 0.1)
    assert budgeted([a, b, c, d]).retrieve("q") == RetrievalResult(
        documents=(marked(b, truncated=True),), dropped=(c, a, d), truncated=True, tokens=50
    )


def test_skip_goes_on_with_smaller_chunks():
    """With `on_overflow="skip"` a chunk that is too big does not end the selection."""
    a, b, c, d = chunk("a", 40, 0.2), chunk("b", 50, 0.9), chunk("c", 60, 0.5), chunk("d", 20, 0.1)
    result = budgeted([a, b, c, d], on_overflow="skip").retrieve("q")
    assert (names(result.documents), names(result.dropped), result.tokens) == (["b", "a"], ["c", "d"], 90)


def test_a_budget_that_is_met_exactly_truncates_nothing():
    """Chunks may fill the budget to the last token."""
    result = budgeted([chunk("a", 60, 1), chunk("b", 40, 2)]).retrieve("q")
    assert (names(result.documents), result.dropped, result.truncated, result.tokens) == (["b", "a"], (), False, 100)
    assert [document.metadata["truncated"] for document in result.documents] == [False, False]


def test_a_first_chunk_that_is_too_big_gives_an_empty_result_with_a_warning():
    """Nothing is split to make it fit; the flag and the log say so."""
    big, small = chunk("b", 101, 0.9), chunk("s", 1, 0.1)
    with capture_logs() as logs:
        result = budgeted([small, big]).retrieve("q")
    assert result == RetrievalResult(documents=(), dropped=(big, small), truncated=True, tokens=0)
    assert truncation_events(logs) == [
        {
            "event": "retrieval.truncated",
            "log_level": "warning",
            "kept": 0,
            "dropped": 2,
            "tokens": 0,
            "budget": 100,
        }
    ]


def test_an_empty_base_gives_an_empty_result():
    """Finding nothing is not a truncation and is not logged."""
    with capture_logs() as logs:
        result = budgeted([]).retrieve("q")
    assert (result, logs) == (RetrievalResult(documents=(), dropped=(), truncated=False, tokens=0), [])


def test_nothing_is_logged_when_everything_fits():
    """The warning is for truncation only."""
    with capture_logs() as logs:
        budgeted([chunk("a", 1, 1)]).invoke("q")
    assert logs == []


def test_documents_without_a_usable_score_keep_the_base_order_at_the_end():
    """Missing, None, NaN, text, booleans, lists, integers beyond every float: no scores; ties keep their order."""
    found = [chunk(f"{index:02}", 1, score) for index, score in enumerate(SCORES)]
    ordered = ["03", "09", "08", "12", "10", "04"]
    unscored = ["00", "01", "02", "05", "06", "07", "11"]
    assert names(budgeted(found).invoke("q")) == ordered + unscored


def test_unsigned_and_fraction_scores_are_ordered():
    """Scores of any real type compare by value: negating numpy's unsigned integers would reverse them."""
    found = [chunk("a", 1, np.uint8(3)), chunk("b", 1, np.uint8(200)), chunk("c", 1, Fraction(7, 2))]
    assert names(budgeted(found).invoke("q")) == ["b", "c", "a"]


def test_the_score_may_be_another_key_or_a_function():
    """A function turns a distance, where less is better, into a relevance."""
    near = Document("n", metadata={"name": "near", "distance": 0.1, "rank": 1})
    far = Document("f", metadata={"name": "far", "distance": 0.8, "rank": 9})
    by_key = budgeted([near, far], score="rank").invoke("q")
    by_function = budgeted([far, near], score=lambda document: -document.metadata["distance"]).invoke("q")
    assert (names(by_key), names(by_function)) == (["far", "near"], ["near", "far"])


def test_an_error_in_the_score_function_reaches_the_caller():
    """A broken score is not taken for a missing one."""
    with pytest.raises(KeyError):
        budgeted([chunk("a", 1)], score=lambda document: document.metadata["rerank"]).invoke("q")


def test_k_drops_without_truncating():
    """What only `k` leaves out was asked for: it is dropped, but neither flagged nor logged."""
    found = [chunk("a", 10, 3), chunk("b", 10, 2), chunk("c", 10, 1)]
    with capture_logs() as logs:
        result = budgeted(found, k=2).retrieve("q")
    assert (names(result.documents), names(result.dropped)) == (["a", "b"], ["c"])
    assert (result.truncated, result.tokens, logs) == (False, 20, [])


def test_k_of_the_call_wins_over_the_constructor():
    """`invoke`, `retrieve` and `batch` take `k`; None means the retriever's own."""
    retriever = budgeted([chunk(name, 1) for name in "abcd"], k=2)
    assert names(retriever.invoke("q", k=3)) == ["a", "b", "c"]
    assert names(retriever.retrieve("q", k=1).documents) == ["a"]
    assert names(retriever.invoke("q", k=None)) == ["a", "b"]
    assert [names(documents) for documents in retriever.batch(["q", "r"], k=1)] == [["a"], ["a"]]
    assert names(retriever.bind(k=4).invoke("q")) == ["a", "b", "c", "d"]


def test_k_and_the_budget_together_drop_everything_in_order():
    """Chunks over the budget come before chunks beyond `k`; the flag is the budget's."""
    found = [chunk("a", 90, 4), chunk("b", 20, 3), chunk("c", 1, 2), chunk("d", 1, 1)]
    with capture_logs() as logs:
        result = budgeted(found, k=3).retrieve("q")
    assert (names(result.documents), names(result.dropped), result.truncated) == (["a"], ["b", "c", "d"], True)
    assert [(e["kept"], e["dropped"], e["tokens"]) for e in truncation_events(logs)] == [(1, 3, 90)]


@pytest.mark.parametrize("k", [0, -1])
async def test_a_k_that_keeps_nothing_is_refused_before_the_base_is_asked(k):
    """The error names the value and what to pass, sync and async."""
    retriever = budgeted([chunk("a", 1)])
    with pytest.raises(ConfigError, match=rf"k={k} .*at least 1"):
        retriever.invoke("q", k=k)
    with pytest.raises(ConfigError, match=rf"k={k} .*at least 1"):
        await retriever.aretrieve("q", k=k)
    assert retriever.base.asked == []


def test_the_default_counter_is_the_token_estimator():
    """`counter=None` prices a chunk's text as `TokenEstimator()` does."""
    text = "Chunks are whole: 8,192 tokens hold about sixteen of them. " * 20
    result = BudgetedRetriever(base=FixedRetriever(found=[Document(text)])).retrieve("q")
    assert result.tokens == TokenEstimator().count_text(text)


def test_a_plain_message_counter_is_accepted():
    """LangChain's own counter prices the text as one user message."""
    text = "a chunk of some length " * 10
    result = budgeted([Document(text)], 1000, counter=count_tokens_approximately).retrieve("q")
    assert result.tokens == count_tokens_approximately([HumanMessage(text)])


def test_each_candidate_is_priced_at_most_once():
    """Counting may be expensive: nothing beyond `k` or behind the first overflow is counted."""
    counted = []

    class Noting(Chars):
        def count_text(self, text):
            counted.append(text[0])
            return len(text)

    found = [chunk("a", 60, 5), chunk("b", 60, 4), chunk("c", 1, 3), chunk("d", 1, 2)]
    budgeted(found, k=3, counter=Noting()).invoke("q")
    assert counted == ["a", "b"]


async def test_the_compressor_makes_the_retrievers_selection():
    """Same order, same copies, same flag, same warning, whatever the query; sync and async."""
    found = [chunk("a", 40, 0.2), chunk("b", 50, 0.9), chunk("c", 60, 0.5)]
    compressor = BudgetedCompressor(max_context_tokens=100, counter=Chars())
    with capture_logs() as logs:
        kept = compressor.compress_documents(found, "q")
        akept = await compressor.acompress_documents(found, "another")
        expected = budgeted(found).invoke("q")
    assert kept == akept == expected == [marked(found[1], truncated=True)]
    assert len(truncation_events(logs)) == 3
    assert logs[0] == logs[1] == logs[2]


def test_the_compressor_caps_the_number():
    """`k` works without a base as well."""
    compressor = BudgetedCompressor(k=1, counter=Chars())
    assert names(compressor.compress_documents([chunk("a", 1), chunk("b", 1, 1)], "q")) == ["b"]
