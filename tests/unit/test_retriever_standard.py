"""Does the retriever pass LangChain's own suite, in front of a real vector store?"""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests.retrievers import RetrieversIntegrationTests

from langchain_ctxwin.retrieval import BudgetedRetriever

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
