"""Is a conversation that was forgotten in no place any more, and every other one as it was?"""

from __future__ import annotations

import base64
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    Forgotten,
    ToolResultConfig,
    ToolResultGuard,
    aforget,
    create_context_agent,
    forget,
    search_messages,
)
from langchain_ctxwin.observe import History, HistorySink
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.tool_results.cursors import ResultRecord, namespace_of_results
from langchain_ctxwin.tool_results.stores import (
    LangGraphResultStore,
    MemoryResultStore,
    RedisResultStore,
)
from langchain_ctxwin.util.memo import Lru
from support.agents import LONG, PATIENCE, call, model_of
from support.fakes import ScriptedChatModel, script

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]
SECRET, OTHER = "IBAN DE02 1203 0000 0000 2020 51", "the other one's tea order"
TURNS = 6


@tool
def look(account: str) -> list[dict[str, str]]:
    """Look up an account."""
    return [
        {"account": account, "number": str(number), "note": LONG}
        for number in range(40)
    ]


@dataclass(kw_only=True)
class Places:
    """Where conversations leave something."""

    checkpointer: BaseCheckpointSaver[Any]
    store: BaseStore
    results: Any
    history: Path
    jobs: SummaryJobs = field(default_factory=SummaryJobs)

    def agent(self, text: str) -> Any:
        answers = [
            call("look", f"c-{text}", account=text),
            *[f"answer {number}: {text} {LONG}" for number in range(99)],
        ]
        return create_context_agent(
            model_of(2500, policy=script(*answers)),
            [look],
            config=ContextConfig(prepare=0.1, output_reserve=0, summary_max_tokens=60),
            summarizer=lambda messages: f"They spoke of {text}.",
            checkpointer=self.checkpointer,
            store=self.store,
            guard=ToolResultGuard(ToolResultConfig(max_tokens=300), store=self.results),
            jobs=self.jobs,
            sinks=[HistorySink(self.history)],
        )

    def given(self) -> dict[str, Any]:
        """What `forget` is given."""
        return {
            "checkpointer": self.checkpointer,
            "store": self.store,
            "results": self.results,
            "history": HistorySink(self.history),
            "jobs": self.jobs,
        }

    def talk(self, thread: str, text: str) -> None:
        """Let a conversation leave something in every place."""
        agent = self.agent(text)
        for number in range(TURNS):
            question = {
                "messages": [HumanMessage(f"question {number} on {text} {LONG}")]
            }
            agent.invoke(question, {"configurable": {"thread_id": thread}})
            self.jobs.drain(PATIENCE)

    async def atalk(self, thread: str, text: str) -> None:
        agent = self.agent(text)
        for number in range(TURNS):
            question = {
                "messages": [HumanMessage(f"question {number} on {text} {LONG}")]
            }
            await agent.ainvoke(question, {"configurable": {"thread_id": thread}})
            await self.jobs.adrain(PATIENCE)

    def texts(self) -> dict[str, str]:
        """What every place holds, unpacked."""
        items = list_items(self.store)
        in_store = [item.value for item in items if item.namespace[1] != "results"]
        kept = [
            json.dumps(item.value) for item in items if item.namespace[1] == "results"
        ]
        assert bool(kept) <= isinstance(self.results, LangGraphResultStore)
        runs = [run.written.text for run in self.jobs._runs.values() if run.written]
        return {
            "checkpoints": repr(
                [one.checkpoint for one in self.checkpointer.list(None)]
            ),
            "writes": repr(
                [one.pending_writes for one in self.checkpointer.list(None)]
            ),
            "store": json.dumps(in_store),
            "results": "".join(unpacked(value) for value in values_of(self.results)),
            "jobs": "".join(runs),
        }

    def threads_in_history(self) -> set[str]:
        return {event.thread for event in History(self.history).events()}


def list_items(store: BaseStore) -> list[Any]:
    return store.search(("ctxwin",), limit=1_000)


def values_of(results: Any) -> list[bytes]:
    """Everything that a store of results holds."""
    if isinstance(results, MemoryResultStore):
        return [value for value, _ in results._entries.values()]
    if isinstance(results, RedisResultStore):
        return [results._client.get(key) for key in results._client.keys("*")]
    return [
        item.value["result"]
        for item in list_items(results._store)
        if item.namespace[1] == "results"
    ]


def unpacked(value: bytes | str) -> str:
    return ResultRecord.from_bytes(
        base64.b64decode(value) if isinstance(value, str) else value
    ).text


@contextmanager
def opened(kind: str, folder: Path, request: Any) -> Iterator[Places]:
    history = folder / "history.db"
    if kind == "memory":
        yield Places(
            checkpointer=InMemorySaver(),
            store=InMemoryStore(),
            results=MemoryResultStore(),
            history=history,
        )
    elif kind == "sqlite":
        path = str(folder / "threads.db")
        with (
            SqliteSaver.from_conn_string(path) as saver,
            SqliteStore.from_conn_string(path) as store,
        ):
            store.setup()
            saver.setup()
            yield Places(
                checkpointer=saver,
                store=store,
                results=LangGraphResultStore(store),
                history=history,
            )
    else:
        dsn, url = (
            request.getfixturevalue("postgres_dsn"),
            request.getfixturevalue("valkey_url"),
        )
        with (
            PostgresSaver.from_conn_string(dsn) as saver,
            PostgresStore.from_conn_string(dsn) as store,
        ):
            saver.setup()
            store.setup()
            results = RedisResultStore.from_url(url)
            results._client.flushall()
            yield Places(
                checkpointer=saver, store=store, results=results, history=history
            )


@pytest.fixture(params=["memory", "sqlite", "servers"])
def places(request, tmp_path) -> Iterator[Places]:
    with opened(request.param, tmp_path, request) as places:
        places.talk(SECRET, SECRET)  # the name of a thread may tell something, too
        places.talk("other", OTHER)
        yield places


def everything_holds(places: Places, text: str) -> None:
    for place, held in places.texts().items():
        assert text in held, place


def test_a_conversation_leaves_every_place_and_all_others_stay(places):
    everything_holds(places, SECRET)
    everything_holds(places, OTHER)
    assert places.threads_in_history() == {SECRET, "other"}
    done = forget(SECRET, **places.given())
    assert {name: held for name, held in places.texts().items() if SECRET in held} == {}
    assert places.threads_in_history() == {"other"}
    assert SECRET.encode() not in places.history.read_bytes()
    everything_holds(places, OTHER)
    assert min(done.jobs, done.results, done.summaries, done.events) >= 1
    assert (done.thread_id, done.had_checkpoints, done.not_given) == (SECRET, True, ())
    nothing = Forgotten(thread_id=SECRET)
    assert forget(SECRET, **places.given()) == nothing


def test_the_process_keeps_no_message_of_it_either(places):
    """Nor a text that holds the secret: in what engines measured, what was compacted, and what was searched."""
    search_messages([HumanMessage(f"{SECRET} {LONG * 20}", id="m")], SECRET)
    agent = places.agent(SECRET)
    agent.invoke(
        {"messages": [HumanMessage(f"What about {SECRET}?")]},
        {"configurable": {"thread_id": SECRET}},
    )
    places.jobs.drain(PATIENCE)
    assert SECRET in repr(memos())
    forget(SECRET, **places.given())
    for model in (one for one in gc.get_objects() if type(one) is ScriptedChatModel):
        model.requests.clear()  # what the provider of the tests was sent
    assert SECRET not in repr(memos())


def memos() -> list[Any]:
    """What every memo of this process holds."""
    held = [
        list(one._values.values()) for one in gc.get_objects() if isinstance(one, Lru)
    ]
    return [
        *held,
        [list(one._values) for one in gc.get_objects() if isinstance(one, Lru)],
    ]


async def test_async_checkpointers_and_stores_are_emptied_alike(tmp_path):
    path = str(tmp_path / "threads.db")
    async with (
        AsyncSqliteSaver.from_conn_string(path) as saver,
        AsyncSqliteStore.from_conn_string(path) as store,
    ):
        await store.setup()
        history = tmp_path / "history.db"
        places = Places(
            checkpointer=saver,
            store=store,
            results=LangGraphResultStore(store),
            history=history,
        )
        await places.atalk(SECRET, SECRET)
        await places.atalk("other", OTHER)
        done = await aforget(SECRET, **places.given())
        assert min(done.jobs, done.results, done.summaries, done.events) >= 1
        assert done.had_checkpoints
        assert await aforget(SECRET, **places.given()) == Forgotten(thread_id=SECRET)
        left = await store.asearch(("ctxwin",))
        assert {item.namespace[1] for item in left} == {"summaries", "results"}
        assert await saver.aget_tuple({"configurable": {"thread_id": "other"}})


def test_what_was_not_given_is_told():
    assert forget("1").not_given == ("store", "checkpointer", "results", "history")
    assert forget(
        "1", store=InMemoryStore(), results=MemoryResultStore()
    ).not_given == ("checkpointer", "history")


class NoClear:
    """A store of one's own that cannot delete a namespace."""

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None: ...
    def get(self, key: str) -> bytes | None: ...
    def delete(self, key: str) -> None: ...


@pytest.mark.parametrize(
    ("thread", "given", "why"),
    [
        ("", {}, r"thread_id='': pass the id of the thread"),
        (None, {}, r"thread_id=None"),
        (7, {}, r"thread_id=7"),
        ("1", {"store": {}}, r"store=\{\}: pass the one"),
        ("1", {"checkpointer": True}, r"checkpointer=True"),
        ("1", {"results": NoClear()}, r"has no method clear\(namespace\)"),
        ("1", {"history": 7}, r"history\[0\]=7"),
        ("1", {"jobs": {}}, r"jobs=\{\}"),
        ("1", {"scope": 7}, r"scope=7"),
    ],
)
def test_bad_input_is_refused_before_anything_is_deleted(thread, given, why):
    store = MemoryResultStore()
    store.put(f"{namespace_of_results('1')}/a", b"value", 60)
    with pytest.raises(ConfigError, match=why):
        forget(
            thread,
            **{"results": store, **given}
            if "results" not in given
            else {"results": [store, given["results"]]},
        )
    assert len(store) == 1
