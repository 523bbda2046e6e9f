"""Retrieval within a budget: the most relevant whole chunks, what was left out, settings, runs, LangChain's suite."""

import asyncio
import math
from fractions import Fraction
from numbers import Real

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import Field
from structlog.testing import capture_logs

from langchain_ctxwin import (
    BudgetedCompressor,
    BudgetedRetriever,
    ConfigError,
    ModelInfo,
    RetrievalResult,
    TokenEstimator,
)

NO_SCORE = object()
NUMBERS = [
    math.nan,
    math.inf,
    -math.inf,
    0.5,
    1,
    -2,
    np.float32(0.5),
    np.uint8(200),
    Fraction(7, 2),
]
SCORES = [NO_SCORE, None, "0.9", True, [1.0], *NUMBERS]


class Chars:
    """Counts one token per character, and notes what it counted."""

    def __init__(self):
        self.counted = []

    def count_text(self, text):
        self.counted.append(text[:1])
        return len(text)

    def __call__(self, messages, *, tools=None):
        raise AssertionError("the text alone is asked for")


class FixedRetriever(BaseRetriever):
    """Finds the same documents for every query; remembers how it was called."""

    found: list[Document] = Field(default_factory=list)
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
    return [document.metadata["name"] for document in documents]


def budgeted(found=(), max_context_tokens=100, **options):
    """Put a budget in characters before a base that finds these chunks."""
    options = {"counter": Chars(), "base": FixedRetriever(found=[*found]), **options}
    return BudgetedRetriever(max_context_tokens=max_context_tokens, **options)


def compressing(**options):
    return BudgetedCompressor(
        **{"max_context_tokens": 100, "counter": Chars(), **options}
    )


def marked(document, truncated):
    """Return the document as a retrieval hands it out."""
    return Document(
        document.page_content,
        metadata={**document.metadata, "truncated": truncated},
        id=document.id,
    )


A, B, C, D = (
    chunk("a", 40, 0.2),
    chunk("b", 50, 0.9),
    chunk("c", 60, 0.5),
    chunk("d", 5, 0.1),
)


@pytest.mark.parametrize(
    ("options", "kept", "dropped", "counted"),
    [
        (
            {},
            [B],
            (C, A, D),
            "bc",
        ),  # the first that does not fit ends the selection, although a later one would fit
        (
            {"max_context_tokens": 155, "k": 2},
            [B, C],
            (A, D),
            "bc",
        ),  # what only `k` leaves out was asked for
    ],
)
async def test_whole_chunks_are_kept_by_score_while_they_fit(
    options, kept, dropped, counted
):
    """What is left out is returned, marked and logged; each candidate is priced at most once; the base's are copied."""
    is_cut = len(kept) < min(4, options.get("k", 4))
    expected = [marked(document, truncated=is_cut) for document in kept]
    counter = Chars()
    with capture_logs() as logs:
        result = budgeted([A, B, C, D], **{"counter": counter, **options}).retrieve("q")
    tokens = sum(len(document.page_content) for document in kept)
    assert result == RetrievalResult(
        documents=(*expected,), dropped=dropped, truncated=is_cut, tokens=tokens
    )
    assert "".join(counter.counted) == counted
    facts = {"kept": len(kept), "dropped": len(dropped), "tokens": tokens}
    event = {"event": "retrieval.truncated", "log_level": "warning", **facts}
    assert logs == (
        [{**event, "budget": options.get("max_context_tokens", 100)}] if is_cut else []
    )
    compressor = compressing(**options)
    assert compressor.compress_documents([A, B, C, D], "q") == expected
    assert await compressor.acompress_documents([A, B, C, D], "another") == expected


async def test_what_a_call_asks_for_wins_over_the_constructor():
    """None means the retriever's own; less than 1 is refused before anything is searched."""
    retriever = budgeted([chunk(name, 40) for name in "abcd"], k=2)
    assert names(retriever.invoke("q", k=1)) == ["a"]
    assert names(retriever.invoke("q", k=None)) == ["a", "b"]
    wide = await retriever.aretrieve("q", k=3, max_context_tokens=120)
    assert names(wide.documents) == ["a", "b", "c"]
    retriever.base.asked.clear()
    with pytest.raises(ConfigError, match=r"k=0 .*at least 1"):
        retriever.invoke("q", k=0)
    with pytest.raises(ConfigError, match="max_context_tokens"):
        retriever.retrieve("q", max_context_tokens=0)
    assert retriever.base.asked == []


def test_pairs_of_a_document_and_its_score_are_ordered_by_it():
    """As vector stores return them; the score is in the metadata then, under the key that is looked for."""
    pairs = [(chunk("a", 5), 0.0), (chunk("b", 5), 0.2), (chunk("c", 5), 0.1)]
    found = budgeted(base=RunnableLambda(lambda _: pairs)).invoke("q")
    assert [(d.metadata["name"], d.metadata["score"]) for d in found] == [
        ("b", 0.2),
        ("c", 0.1),
        ("a", 0.0),
    ]
    assert all("score" not in document.metadata for document, _ in pairs)
    for wrong in (["text"], [[chunk("a", 5), chunk("b", 5)]]):  # a batch is no pair
        with pytest.raises(ConfigError, match=r"pairs \(document, score\)"):
            budgeted(base=RunnableLambda(lambda _, wrong=wrong: wrong)).invoke("q")


@pytest.mark.parametrize(
    ("scores", "options", "kept"),
    [
        ([0.1, 0.4, 0.9], {}, "abc"),  # distances: they rise in the base's own order
        ([0.1, None, 0.9], {}, "acb"),
        ([0.4, 0.9, 0.1], {}, "bac"),  # similarities in any order
        ([0.1, 0.4, 0.9], {"score_order": "similarity"}, "cba"),
        ([0.4, 0.9, 0.1], {"score_order": "distance"}, "cab"),
        (
            [0.1, 0.4, 0.9],
            {"score": lambda document: document.metadata["score"]},
            "cba",
        ),
    ],
)
def test_scores_that_rise_in_the_order_of_the_base_are_distances(scores, options, kept):
    """A base answers best first; pairs, scores in metadata and the compressor go by one rule."""
    found = [chunk(name, 5, score) for name, score in zip("abc", scores, strict=True)]
    pairs = [(chunk(name, 5), score) for name, score in zip("abc", scores, strict=True)]
    compressor = compressing(**options)
    assert "".join(names(budgeted(found, **options).invoke("q"))) == kept
    assert (
        "".join(
            names(budgeted(base=RunnableLambda(lambda _: pairs), **options).invoke("q"))
        )
        == kept
    )
    assert "".join(names(compressor.compress_documents(found, "q"))) == kept


def search_of(kind, documents):
    """Make the search of a vector store, whose scores are similarities, or distances as those of Chroma and FAISS."""
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    if kind == "Chroma":
        chroma = pytest.importorskip(
            "langchain_chroma", reason="langchain-chroma is not installed"
        )
        store = chroma.Chroma(embedding_function=store.embeddings)
    store.add_documents(documents)

    def search(query):
        found = store.similarity_search_with_score(query, k=len(documents))
        if kind == "FAISS":  # squared distances of vectors of length 1
            return [(document, 2 - 2 * score) for document, score in found]
        return found

    return search


@pytest.mark.parametrize("kind", ["Chroma", "FAISS", "InMemory"])
def test_what_a_vector_store_finds_nearest_is_kept(kind):
    """With the scores that each store hands out beside its documents."""
    documents = [Document(f"rule {number}; " * 9) for number in range(9)]
    query, search = documents[4].page_content, search_of(kind, documents)
    nearest = [document.page_content for document, _ in search(query)]
    result = budgeted(base=search, max_context_tokens=300).retrieve(query)
    assert [one.page_content for one in result.documents] == nearest[:4]
    assert nearest[0] == query
    assert result.truncated


def test_distances_are_said_once():
    found = [chunk("a", 5), chunk("b", 5)]
    for number, document in enumerate(found):
        document.metadata["said_once"] = float(number)
    with capture_logs() as logs:
        for _ in range(2):
            budgeted(found, score="said_once").invoke("q")
    assert [(e["event"], e["score"], e["first"], e["last"]) for e in logs] == [
        ("retrieval.distances", "said_once", 0.0, 1.0)
    ]


def test_chunks_are_counted_as_the_model_counts_that_they_are_for():
    """By a model, whatever is bound to it; a counter wins."""
    found = [Document("crate 4711 weighs 12.5 kilos; ", metadata={"score": 1}, id="a")]
    count = TokenEstimator("anthropic").count_text(found[0].page_content)
    model = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
    for chosen in (
        model,
        model.bind(stop=["."]),
        ModelInfo(name="m", tokenizer_family="anthropic"),
    ):
        assert budgeted(found, counter=None, model=chosen).retrieve("q").tokens == count
        assert budgeted(found, model=chosen).retrieve("q").tokens == len(
            found[0].page_content
        )
    for wrong in (3, "claude-sonnet-4-5", [model]):
        with pytest.raises(ConfigError, match=r"model="):
            budgeted(found, model=wrong)


def test_what_the_prompt_shows_of_a_chunk_is_priced():
    """As it formats a document, or as many tokens as a function says."""
    found = [chunk("a", 40, 0.9), chunk("b", 40, 0.5)]
    for shown in (
        lambda document: f"[1] {document.page_content}\n",
        lambda document: len(document.page_content) + 5,
    ):
        result = budgeted(found, 89, price_document=shown).retrieve("q")
        assert (names(result.documents), result.tokens, result.truncated) == (
            ["a"],
            45,
            True,
        )


SIZES_AND_SCORES = st.tuples(
    st.integers(0, 12), st.sampled_from(SCORES) | st.floats() | st.integers(-3, 3)
)


@settings(max_examples=60)
@given(
    pairs=st.lists(SIZES_AND_SCORES, max_size=8),
    budget=st.integers(1, 40),
    k=st.none() | st.integers(1, 9),
)
def test_kept_and_dropped_are_the_input_in_order_and_fit(pairs, budget, k):
    """Numbers first, descending, the others in the base's order; async gives the same."""

    def place(document):
        score = document.metadata.get("score")
        usable = isinstance(score, Real) and score is not True
        return (0, -float(score)) if usable and not math.isnan(score) else (1, 0)

    found = [
        chunk(f"{index:02}", size, score) for index, (size, score) in enumerate(pairs)
    ]
    retriever = budgeted(found, budget, k=k, score_order="similarity")
    result = retriever.retrieve("q")
    expected = sorted(found, key=place)
    assert names([*result.documents, *result.dropped]) == names(expected)
    sizes = sum(len(document.page_content) for document in result.documents)
    assert result.tokens == sizes <= budget
    most = min(len(found), k or len(found))
    assert result.truncated == (len(result.documents) < most)
    assert asyncio.run(retriever.aretrieve("q")) == result
    assert asyncio.run(retriever.ainvoke("q")) == [*result.documents]


# Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_context_tokens", 0),
        ("score_order", "up"),
        ("score", 7),
        ("counter", 4),
    ],
)
def test_a_bad_argument_is_a_config_error_that_names_it(name, value):
    for make in (budgeted, BudgetedCompressor):
        with pytest.raises(ConfigError, match=rf"{name}.*={value!r}: "):
            make(**{name: value})


async def test_what_a_run_is_configured_with_reaches_the_base():
    """As a filter for each user does; `retrieve` and `invoke` give the same, also when they are awaited."""

    def search(query, config):
        return [chunk(config["configurable"]["user"], 5)]

    retriever = budgeted(base=RunnableLambda(search))
    config = {"configurable": {"user": "ann"}}
    found = retriever.retrieve("q", config=config).documents
    assert names(found) == ["ann"]
    assert retriever.invoke("q", config) == await retriever.ainvoke("q", config)
    assert [*found] == retriever.invoke("q", config)
