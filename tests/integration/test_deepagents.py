"""Inside deepagents: our middleware in the place of its own summarizer, and its backends as a store of results."""

import asyncio
import re

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import ToolResultGuard
from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import CompactionEvent, MemorySink
from langchain_ctxwin.tool_results.cursors import namespace_of_results
from langchain_ctxwin.tool_results.stores import BackendResultStore
from support.agents import THREAD, WORD, model_of

deepagents = pytest.importorskip(
    "deepagents", reason="deepagents is not installed: pip install deepagents"
)


class SummarizationMiddleware(ContextWindowMiddleware):
    """Ours, by the name of theirs."""


def test_ours_takes_the_place_of_its_summarizer():
    """By its name: then only ours decides what leaves, and no summarizer of theirs asks the model."""
    sink, asked = MemorySink(), []

    def policy(messages, tools):
        asked.append(messages)
        return AIMessage("So.")

    model = model_of(40_000, policy=policy)
    ours = SummarizationMiddleware(sinks=[sink])
    agent = deepagents.create_deep_agent(
        model=model, tools=[], middleware=[ours], checkpointer=InMemorySaver()
    )
    for n in range(8):
        agent.invoke(
            {"messages": [HumanMessage(f"question {n} " + WORD * 6_000)]}, THREAD
        )
    assert len(asked) == 8
    assert not any(request.refused for request in model.requests)
    assert sink.of(CompactionEvent)


# ---- results of tools as files of a backend -------------------------------------------------------------------------


def row(number):
    return {"id": f"ROW-{number:04}", "place": f"shelf {number}", "text": "tea " * 20}


@tool
def stock() -> list:
    """Return all rows."""
    return [row(number) for number in range(400)]


@tool
def story() -> str:
    """Return a long text."""
    return "\n".join(f"line {number} of the story" for number in range(4_000))


def backend_of(kind, tmp_path):
    backends = deepagents.backends
    return {
        "state": backends.StateBackend,
        "store": lambda: backends.StoreBackend(namespace=lambda _: ("files",)),
        "filesystem": lambda: backends.FilesystemBackend(tmp_path, virtual_mode=True),
        "shell": lambda: backends.LocalShellBackend(tmp_path, virtual_mode=True),
    }[kind]()


EVERY_BACKEND = pytest.mark.parametrize(
    "kind", ["state", "store", "filesystem", "shell"]
)


def agent_with(backend, policy, **options):
    config = ToolResultConfig(
        max_tokens=800, per_tool={"read_file": {"enabled": False}}
    )
    guard = ToolResultGuard(config, store=BackendResultStore(backend))
    return deepagents.create_deep_agent(
        model=model_of(60_000, policy=policy),
        tools=[stock, story],
        backend=backend,
        middleware=[SummarizationMiddleware(guard=guard)],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
        **options,
    )


def calling(*calls):
    """A policy that makes these calls, each a function of the last result, and then answers."""

    def policy(messages, tools):
        done = sum(isinstance(message, ToolMessage) for message in messages)
        if done == len(calls):
            return AIMessage("Done.")
        name, args = calls[done](messages[-1].text)
        return AIMessage(
            "", tool_calls=[{"name": name, "args": args, "id": f"c{done}"}]
        )

    return policy


def path_in(text):
    return re.search(r"the file (\S+)]", text)[1]


@EVERY_BACKEND
@pytest.mark.parametrize("is_async", [False, True])
def test_the_agents_own_tools_read_what_left(kind, is_async, tmp_path):
    """`read_file` and `grep` by the path that the page names, and `read_more` by its cursor, in later steps."""
    seen = {}

    def first(_):
        return "stock", {}

    def read(text):
        seen["page"] = text
        return "read_file", {"file_path": path_in(text), "offset": 0, "limit": 60}

    def grep(text):
        seen["read"] = text
        args = {
            "pattern": "ROW-0377",
            "path": "/tool_results",
            "output_mode": "content",
        }
        return "grep", args

    def more(text):
        seen["grep"] = text
        cursor = re.search(r'cursor="([^"]+)"', seen["page"])[1]
        return "read_more", {"cursor": cursor, "contains": "ROW-0377"}

    agent = agent_with(backend_of(kind, tmp_path), calling(first, read, grep, more))
    given = {"messages": [HumanMessage("What is in stock?")]}
    if is_async:
        asyncio.run(agent.ainvoke(given, THREAD))
    else:
        agent.invoke(given, THREAD)
    messages = agent.get_state(THREAD).values["messages"]
    assert "ROW-0377" not in seen["page"]
    assert "ROW-0003" in seen["read"]
    assert "ROW-0377" in seen["grep"]
    assert "shelf 377" in messages[-2].text
    assert messages[-1].text == "Done."


def test_files_are_deleted_with_their_thread(tmp_path):
    backend = backend_of("filesystem", tmp_path)
    store = BackendResultStore(backend)
    guard = ToolResultGuard(ToolResultConfig(max_tokens=800), store=store)
    guard.output(stock.invoke({}), "stock", {})
    assert len([*tmp_path.rglob("*.txt")]) == 1
    store.clear(namespace_of_results(""))
    assert not [*tmp_path.rglob("*.txt")]
