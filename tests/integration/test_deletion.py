"""Is a conversation that was forgotten in no place any more, and every other one as it was?"""

import base64
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ToolResultConfig,
    ToolResultGuard,
    create_context_agent,
    forget,
)
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.tool_results.cursors import ResultRecord
from langchain_ctxwin.tool_results.stores import (
    LangGraphResultStore,
    RedisResultStore,
)
from support.agents import LONG, PATIENCE, call, model_of
from support.fakes import script

pytestmark = pytest.mark.enable_socket
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
    jobs: SummaryJobs = field(default_factory=SummaryJobs)

    def agent(self, text):
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
        )

    def given(self):
        """What `forget` is given."""
        return {
            "checkpointer": self.checkpointer,
            "store": self.store,
            "results": self.results,
            "jobs": self.jobs,
        }

    def talk(self, thread, text):
        """Let a conversation leave something in every place."""
        agent = self.agent(text)
        for number in range(TURNS):
            question = {
                "messages": [HumanMessage(f"question {number} on {text} {LONG}")]
            }
            agent.invoke(question, {"configurable": {"thread_id": thread}})
            self.jobs.drain(PATIENCE)

    def texts(self):
        """What every place holds, unpacked."""
        items = list_items(self.store)
        in_store = [item.value for item in items if item.namespace[1] != "results"]
        kept = [
            json.dumps(item.value) for item in items if item.namespace[1] == "results"
        ]
        assert bool(kept) <= isinstance(self.results, LangGraphResultStore)
        runs = [run.written.text for run in self.jobs._jobs.values() if run.written]
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


def list_items(store):
    return store.search(("ctxwin",), limit=1_000)


def values_of(results):
    """Everything that a store of results holds."""
    if isinstance(results, RedisResultStore):
        return [results._client.get(key) for key in results._client.keys("*")]
    return [
        item.value["result"]
        for item in list_items(results._store)
        if item.namespace[1] == "results"
    ]


def unpacked(value):
    return ResultRecord.from_bytes(
        base64.b64decode(value) if isinstance(value, str) else value
    ).text


@contextmanager
def opened(kind, request):
    if kind == "memory":
        store = InMemoryStore()
        results = LangGraphResultStore(store)
        yield Places(checkpointer=InMemorySaver(), store=store, results=results)
        return
    dsn, url = map(request.getfixturevalue, ("postgres_dsn", "valkey_url"))
    with (
        PostgresSaver.from_conn_string(dsn) as saver,
        PostgresStore.from_conn_string(dsn) as store,
    ):
        saver.setup()
        store.setup()
        results = RedisResultStore.from_url(url)
        results._client.flushall()
        yield Places(checkpointer=saver, store=store, results=results)


@pytest.fixture(params=["memory", "servers"])
def places(request):
    with opened(request.param, request) as places:
        places.talk(SECRET, SECRET)  # the name of a thread may tell something, too
        places.talk("other", OTHER)
        yield places


def everything_holds(places, text):
    for place, held in places.texts().items():
        assert text in held, place


def test_a_conversation_leaves_every_place_and_all_others_stay(places):
    everything_holds(places, SECRET)
    everything_holds(places, OTHER)
    forget(SECRET, **places.given())
    assert {name: held for name, held in places.texts().items() if SECRET in held} == {}
    everything_holds(places, OTHER)
    forget(SECRET, **places.given())  # what is not there is no error


@pytest.mark.parametrize("thread", ["", None, 7])
def test_what_is_no_thread_is_refused(thread):
    with pytest.raises(ConfigError, match="pass the id of the thread"):
        forget(thread)
