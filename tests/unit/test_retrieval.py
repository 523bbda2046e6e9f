"""Retrieval within a budget: the most relevant whole chunks, what was left out, settings, runs, LangChain's suite."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests.retrievers import RetrieversIntegrationTests
from pydantic import BaseModel, Field
from structlog.testing import capture_logs

from langchain_ctxwin.config import RetrievalConfig
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.retrieval import BudgetedCompressor, BudgetedRetriever, RetrievalResult

NO_SCORE = object()
SCORES = [NO_SCORE, None, math.nan, math.inf, -math.inf, "0.9", True, [1.0], 0.5, 1, -2, 10**400, np.float32(0.5)]


class Chars:
    """Counts one token per character."""

    def count_text(self, text):
        return len(text)

    def __call__(self, messages, *, tools=None):
        raise AssertionError("the text alone is asked for")


class FixedRetriever(BaseRetriever):
    """Finds the same documents for every query; remembers how it was called."""

    found: list[Document]
    asked: list[str] = Field(default_factory=list)
    by_topic: dict[str, list[Document]] = Field(default_factory=dict)

    def _get_relevant_documents(self, query, *, run_manager, topic=None):
        self.asked.append("sync")
        return self.by_topic.get(topic, self.found)

    async def _aget_relevant_documents(self, query, *, run_manager, topic=None):
        self.asked.append("async")
        return self.by_topic.get(topic, self.found)


def chunk(name, size, score=NO_SCORE):
    """Make a chunk of `size` characters, with a score when one is given (whatever its type)."""
    metadata = {"name": name} if score is NO_SCORE else {"name": name, "score": score}
    return Document(name[0] * size, metadata=metadata)


def names(documents):
    """List the names of some chunks."""
    return [document.metadata["name"] for document in documents]


def budgeted(found, max_context_tokens=100, **options):
    """Put a budget in characters before a base that finds these chunks."""
    options = {"counter": Chars(), **options}
    return BudgetedRetriever(base=FixedRetriever(found=found), max_context_tokens=max_context_tokens, **options)


def marked(document, truncated):
    """Return the document as a retrieval hands it out."""
    return Document(document.page_content, metadata={**document.metadata, "truncated": truncated}, id=document.id)


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


TOO_BIG = 10**400  # beyond every float

DOCUMENTS = st.lists(
    st.builds(
        lambda size, score: (size, score),
        st.integers(0, 12),
        st.sampled_from(SCORES) | st.floats() | st.integers(-3, 3),
    ),
    max_size=8,
).map(lambda pairs: [chunk(f"{index:02}", size, score) for index, (size, score) in enumerate(pairs)])
OPTIONS = st.fixed_dictionaries(
    {
        "max_context_tokens": st.integers(1, 40),
        "k": st.none() | st.integers(1, 9),
        "on_overflow": st.sampled_from(["stop", "skip"]),
    }
)


@given(found=DOCUMENTS, options=OPTIONS)
def test_kept_and_dropped_are_the_input_and_fit(found, options):
    """Every document is kept whole or dropped, the kept ones fit and are counted, the flag is the budget's."""
    with capture_logs() as logs:
        result = budgeted(found, **options).retrieve("q")
    everything = [*result.documents, *result.dropped]
    assert sorted(names(everything)) == names(found)
    by_name = {document.metadata["name"]: document for document in found}
    assert all(d == marked(by_name[d.metadata["name"]], truncated=result.truncated) for d in result.documents)
    assert result.tokens == sum(len(d.page_content) for d in result.documents) <= options["max_context_tokens"]
    assert len(result.documents) <= (options["k"] or len(found))
    asked_for = min(len(found), options["k"] or len(found))
    assert result.truncated == (len(result.documents) < asked_for)
    assert len(logs) == result.truncated


@given(found=DOCUMENTS, options=OPTIONS)
def test_both_parts_are_in_descending_order_and_stable(found, options):
    """Numbers first, descending; equal scores and documents without one in the base's order; with stop, a prefix."""
    result = budgeted(found, **options).retrieve("q")

    def place(document):
        score = document.metadata.get("score")
        usable = isinstance(score, float | np.floating) or (type(score) is int and score != TOO_BIG)
        return (0, -float(score)) if usable and not math.isnan(score) else (1, 0)

    expected = names(sorted(found, key=place))
    assert [name for name in expected if name in names(result.documents)] == names(result.documents)
    assert [name for name in expected if name in names(result.dropped)] == names(result.dropped)
    if options["on_overflow"] == "stop":
        assert names([*result.documents, *result.dropped]) == expected


@given(found=DOCUMENTS, options=OPTIONS)
def test_async_gives_what_sync_gives(found, options):
    """The four entry points agree."""
    retriever = budgeted(found, **options)
    result = retriever.retrieve("q")
    assert asyncio.run(retriever.aretrieve("q")) == result
    assert asyncio.run(retriever.ainvoke("q")) == retriever.invoke("q") == list(result.documents)


@given(found=DOCUMENTS, options=OPTIONS)
def test_retrieving_again_from_what_was_kept_changes_nothing(found, options):
    """The selection is idempotent: its own result fits, in the same order."""
    result = budgeted(found, **options).retrieve("q")
    again = budgeted(list(result.documents), **options).retrieve("q")
    assert (names(again.documents), again.dropped, again.truncated) == (names(result.documents), (), False)


# Runs


def test_the_documents_of_the_base_are_not_changed():
    """The flag is written on copies: a store may hand out the objects it keeps."""
    found = [Document("a" * 60, id="1", metadata={"score": 1, "tags": ["x"]}), Document("b" * 60, id="2", metadata={})]
    before = [document.model_copy(deep=True) for document in found]
    kept = budgeted(found).invoke("q")
    assert (found, kept) == (before, [marked(before[0], truncated=True)])


def test_a_subclass_of_document_stays_one():
    """A kept copy keeps its class and its other fields."""

    class Page(Document):
        number: int

    [kept] = budgeted([Page("text", number=7)]).invoke("q")
    assert kept == Page("text", number=7, metadata={"truncated": False})


def test_the_base_may_be_any_runnable():
    """A function wrapped as a Runnable is a base; its documents may come as any iterable."""
    base = RunnableLambda(lambda query: (chunk("a", len(query)), chunk("b", 1, 1)))
    assert names(BudgetedRetriever(base=base, max_context_tokens=9).invoke("query")) == ["b", "a"]


async def test_sync_calls_use_the_sync_path_and_async_calls_the_async_path():
    """No thread stands between an async caller and an async base."""
    retriever = budgeted([chunk("a", 1)])
    retriever.invoke("q")
    retriever.retrieve("q")
    await retriever.ainvoke("q")
    await retriever.aretrieve("q")
    assert retriever.base.asked == ["sync", "sync", "async", "async"]


async def test_keyword_arguments_reach_the_base():
    """Filters and the like pass through; `k` stays ours."""
    base = FixedRetriever(found=[], by_topic={"rivers": [chunk("a", 1), chunk("b", 1)]})
    retriever = BudgetedRetriever(base=base, counter=Chars())
    assert names(retriever.invoke("q", k=1, topic="rivers")) == ["a"]
    assert names(await retriever.ainvoke("q", topic="rivers")) == ["a", "b"]


async def test_configurable_fields_of_the_base_see_the_callers_config():
    """A base that is configured per call (a tenant's filter) is configured behind the budget too."""
    base = FixedRetriever(found=[chunk("a", 1)]).configurable_fields(found=ConfigurableField(id="found"))
    retriever = BudgetedRetriever(base=base)
    config = {"configurable": {"found": [chunk("b", 1)]}}
    assert (names(retriever.invoke("q")), names(retriever.invoke("q", config))) == (["a"], ["b"])
    assert names((await retriever.aretrieve("q", config=config)).documents) == ["b"]


def test_an_error_of_the_base_keeps_its_type():
    """Nothing is wrapped or swallowed."""

    def fail(query: str) -> list[Document]:
        raise ConnectionError("store is down")

    with pytest.raises(ConnectionError, match="store is down"):
        BudgetedRetriever(base=RunnableLambda(fail)).invoke("q")


class Runs(BaseCallbackHandler):
    """Notes the retriever runs that it sees."""

    def __init__(self):
        self.started = {}
        self.ended = {}

    def on_retriever_start(self, serialized, query, *, run_id, parent_run_id=None, tags=None, metadata=None, **kwargs):
        self.started[run_id] = (kwargs["name"], parent_run_id, sorted(tags), metadata.get("team"))

    def on_retriever_end(self, documents, *, run_id, **kwargs):
        self.ended[run_id] = names(documents)


class AsyncRuns(Runs, AsyncCallbackHandler):
    """The same in async runs."""

    async def on_retriever_start(self, *args, **kwargs):
        Runs.on_retriever_start(self, *args, **kwargs)

    async def on_retriever_end(self, *args, **kwargs):
        Runs.on_retriever_end(self, *args, **kwargs)


def check_runs(runs):
    (outer, inner) = runs.started
    assert runs.started == {
        outer: ("budget", None, ["call", "own"], "search"),
        inner: ("FixedRetriever", outer, ["call"], "search"),
    }
    assert runs.ended == {outer: ["a"], inner: ["a", "b"]}


@pytest.mark.parametrize("method", ["invoke", "retrieve"])
def test_the_base_is_a_child_run_of_one_retriever_run(method):
    """Tags and metadata of the call are inherited, the retriever's own tags are not."""
    retriever = budgeted([chunk("a", 60), chunk("b", 60)], tags=["own"])
    config = {"callbacks": [runs := Runs()], "tags": ["call"], "metadata": {"team": "search"}, "run_name": "budget"}
    getattr(retriever, method)("q", config=config)
    check_runs(runs)


@pytest.mark.parametrize("method", ["ainvoke", "aretrieve"])
async def test_the_base_is_a_child_run_in_async_calls_too(method):
    """The same runs with the same tags, awaited."""
    retriever = budgeted([chunk("a", 60), chunk("b", 60)], tags=["own"])
    config = {
        "callbacks": [runs := AsyncRuns()],
        "tags": ["call"],
        "metadata": {"team": "search"},
        "run_name": "budget",
    }
    await getattr(retriever, method)("q", config=config)
    check_runs(runs)


def test_concurrent_calls_do_not_mix():
    """One instance serves many threads, each with its own query and `k`."""
    base = RunnableLambda(lambda query: [Document(query, metadata={"name": query})] * 9)
    retriever = BudgetedRetriever(base=base, counter=Chars())
    calls = [(f"query {index}", index % 9 + 1) for index in range(60)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda call: retriever.retrieve(call[0], k=call[1]), calls))
    assert [names(result.documents) for result in results] == [[query] * k for query, k in calls]
    assert [len(result.dropped) for result in results] == [9 - k for _, k in calls]


async def test_concurrent_async_calls_do_not_mix():
    """The same on one event loop."""

    async def find(query: str) -> list[Document]:
        await asyncio.sleep(0)
        return [Document(query, metadata={"name": query})] * 9

    retriever = BudgetedRetriever(base=RunnableLambda(lambda query: [], afunc=find), counter=Chars())
    calls = [(f"query {index}", index % 9 + 1) for index in range(30)]
    results = await asyncio.gather(*(retriever.aretrieve(query, k=k) for query, k in calls))
    assert [names(result.documents) for result in results] == [[query] * k for query, k in calls]


# Settings


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


# LangChain's own suite, in front of a real vector store

TEXTS = [f"Chapter {number}: {'the river ' * number}" for number in range(1, 9)]


def store():
    embedding = DeterministicFakeEmbedding(size=16)
    return InMemoryVectorStore.from_texts(TEXTS, embedding)


def scored(query: str) -> list[Document]:
    found = store().similarity_search_with_score(query, k=len(TEXTS))
    return [d.model_copy(update={"metadata": {**d.metadata, "score": score}}) for d, score in found]


class _Suite(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BudgetedRetriever]:
        return BudgetedRetriever

    @property
    def retriever_query_example(self) -> str:
        return "Where does the river end?"


class TestOverAVectorStoreRetriever(_Suite):
    """The base is `as_retriever()`, whose documents carry no score."""

    @property
    def retriever_constructor_params(self) -> dict:
        return {"base": store().as_retriever(search_kwargs={"k": len(TEXTS)})}


class TestOverARunnableWithScores(_Suite):
    """The base is a Runnable that puts the vector store's scores into the metadata."""

    @property
    def retriever_constructor_params(self) -> dict:
        return {"base": RunnableLambda(scored)}


def test_scores_of_a_vector_store_decide_the_order():
    """The store's float scores (numpy's) are read as numbers and come out in descending order."""
    result = BudgetedRetriever(base=RunnableLambda(scored)).retrieve("Where does the river end?")
    scores = [document.metadata["score"] for document in result.documents]
    assert (scores, len(scores)) == (sorted(scores, reverse=True), len(TEXTS))
    assert scores[0] == pytest.approx(max(scores))
