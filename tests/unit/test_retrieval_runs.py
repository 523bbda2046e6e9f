"""Does the budget work in front of any base, sync and async, as one traced run?"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField, RunnableLambda

from langchain_ctxwin.retrieval import BudgetedRetriever
from support.chunks import Chars, FixedRetriever, budgeted, chunk, marked, names


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
