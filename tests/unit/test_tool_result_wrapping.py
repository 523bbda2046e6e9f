"""Does wrapping change nothing about a tool but what becomes of its results?"""

import asyncio
from itertools import cycle
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForToolRun
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolCallId,
    StructuredTool,
    Tool,
    ToolException,
    tool,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from support.oracle import text_tokens
from support.tool_runs import (
    NODES,
    WIRINGS,
    both,
    call,
    everything,
    everywhere,
    results,
    wired,
)

BUDGET = 500
LINES = [f"line {index} says {index * 7919}" for index in range(400)]


def large(*facts):
    """Return a large result that begins with what the tool was given."""
    return "\n".join([repr(facts), *LINES])


def with_state(query: str, state: Annotated[Any, InjectedState]) -> str:
    return large(query, state["messages"][0].text)


def with_store(query: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    return large(query, store.get(("facts",), "one").value["fact"])


def with_call_id(query: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
    return large(query, call_id)


def with_runtime(query: str, runtime: ToolRuntime) -> str:
    return large(query, runtime.tool_call_id, len(runtime.state["messages"]))


def with_config(query: str, config: RunnableConfig) -> str:
    return large(query, config["configurable"]["tenant"])


async def in_the_loop(query: str, config: RunnableConfig, runtime: ToolRuntime) -> str:
    await asyncio.sleep(0)
    return large(query, config["configurable"]["tenant"], runtime.tool_call_id)


class Wanted(BaseModel):
    """What to look for."""

    query: str = Field(description="The text.", alias="query")
    limit: int = 3


def wanted(query: str, limit: int) -> str:
    return large(query, limit)


def tool_of(function, **options):
    """Return a tool of a sync or an async function."""
    name = "coroutine" if asyncio.iscoroutinefunction(function) else "func"
    given = {name: function, "description": "Look."}
    return StructuredTool.from_function(**(given | options))


with_model = tool_of(wanted, name="with_model", args_schema=Wanted)
with_json_schema = StructuredTool(
    name="with_json_schema",
    description="By a schema.",
    func=lambda **given: large(given),
    args_schema={
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    },
)
single = Tool(name="single", description="One text.", func=large)


class OnlyRun(BaseTool):
    name: str = "only_run"
    description: str = "Blocks."

    def _run(
        self, query: str, run_manager: CallbackManagerForToolRun | None = None
    ) -> str:
        return large(query, run_manager is not None)


class OnlyArun(BaseTool):
    name: str = "only_arun"
    description: str = "Awaits."

    def _run(self, query: str) -> str:
        raise AssertionError("blocked")

    async def _arun(self, query: str, config: RunnableConfig) -> str:
        return large(query, config["configurable"]["tenant"])


SYNC = [
    (tool_of(with_state), ("x", "What is there?")),
    (tool_of(with_runtime), ("x", "c1", 2)),
    (tool_of(with_store), ("x", "it rains")), (tool_of(with_call_id), ("x", "c1")),
    (tool_of(with_config), ("x", "acme")), (with_model, ("x", 3)), (single, ("x",)),
    (with_json_schema, ({"query": "x"},)), (OnlyRun(), ("x", True)),
]  # fmt: skip
ASYNC = [(tool_of(in_the_loop), ("x", "acme", "c1")), (OnlyArun(), ("x", "acme"))]
CASES = [
    *((one, facts, loop) for loop in (False, True) for one, facts in SYNC),
    *((*case, True) for case in ASYNC),
]


def guard_of(**settings):
    return ToolResultGuard(ToolResultConfig(max_tokens=BUDGET, **settings))


def store_of_facts():
    store = InMemoryStore()
    store.put(("facts",), "one", {"fact": "it rains"})
    return store


@pytest.mark.parametrize(
    ("wiring", "one", "facts", "is_async"),
    [(wiring, *case) for wiring, case in zip(cycle(WIRINGS), CASES, strict=False)],
    ids=[f"{one.name}-{'async' if loop else 'sync'}" for one, _, loop in CASES],
)
def test_a_tool_gets_what_it_would_get_without_a_guard(wiring, one, facts, is_async):
    guard = guard_of()
    argument = {"__arg1": "x"} if one is single else {"query": "x"}
    config = {"configurable": {"tenant": "acme"}}
    (message,) = results(
        wiring,
        guard,
        [one],
        call(one.name, **argument),
        is_async=is_async,
        store=store_of_facts(),
        config=config,
    )
    assert message.status == "success", message.text[:300]
    assert text_tokens(message.text) <= BUDGET
    read = everything(guard, message.text)
    assert repr(facts) in read, read[:300]
    assert LINES[-1] in read


class Recorder(BaseCallbackHandler):
    def __init__(self):
        self.events = []

    def on_tool_start(self, serialized, input_str, **kwargs):
        self.events.append(f"start {serialized['name']} {kwargs['inputs']}")

    def on_tool_end(self, output, **kwargs):
        self.events.append("end")


@pytest.mark.parametrize("wiring", NODES)
@both
def test_callbacks_hear_of_a_call_once(wiring, is_async):
    recorder, asked = Recorder(), call("with_state", query="x")
    results(
        wiring,
        guard_of(),
        [tool_of(with_state)],
        asked,
        is_async=is_async,
        config={"callbacks": [recorder]},
    )
    assert recorder.events == ["start with_state {'query': 'x'}", "end"]


def raising(name, error, **options):
    """Return a tool that fails."""

    def fail():
        raise error

    return tool_of(fail, name=name, **options)


breaks, refuses = (
    raising("breaks", OSError("the disk is full")),
    raising("refuses", ToolException("no such city")),
)
explains = raising(
    "explains",
    ToolException("no such city: " + "Atlantis " * 5_000),
    handle_tool_error=True,
)


@pytest.mark.parametrize("wiring", [*NODES, "middleware", "agent"])
@both
@pytest.mark.parametrize(
    ("one", "error"),
    [(breaks, OSError), (refuses, ToolException)],
    ids=["other", "tool"],
)
def test_exceptions_leave_a_tool_as_they_do_without_a_guard(
    wiring, is_async, one, error
):
    with pytest.raises(error):
        results(wiring, guard_of(), [one], call(one.name), is_async=is_async)


HUGE_ERROR = "no such city: " + "Atlantis " * 110_000  # about a megabyte
returns_one = tool_of(
    lambda: ToolMessage(HUGE_ERROR, tool_call_id="c1", name="answers", status="error"),
    name="answers",
)


@everywhere
@both
@pytest.mark.parametrize("one", [explains, returns_one], ids=["handled", "returned"])
def test_a_long_error_is_clamped_and_stays_an_error(wiring, is_async, one):
    (message,) = results(wiring, guard_of(), [one], call(one.name), is_async=is_async)
    assert message.status == "error"
    assert "no such city: Atlantis" in message.text
    assert text_tokens(message.text) <= BUDGET


@everywhere
async def test_a_tool_that_interrupts_is_resumed(wiring):
    @tool
    def ask(query: str) -> str:
        """Ask a person."""
        return large(query, interrupt("May I?"))

    asking = AIMessage("", tool_calls=[call("ask", query="x")])
    guard, saver = guard_of(max_share=1.0), InMemorySaver()
    graph = wired(wiring, guard, [ask], asking, checkpointer=saver)
    given = {"messages": [HumanMessage("Ask."), *([asking] if wiring in NODES else [])]}
    thread = {"configurable": {"thread_id": "1"}}
    assert "__interrupt__" in graph.invoke(given, thread)
    state = await graph.ainvoke(Command(resume="yes"), thread)
    (message,) = [one for one in state["messages"] if isinstance(one, ToolMessage)]
    assert repr(("x", "yes")) in message.text
    assert text_tokens(message.text) <= BUDGET


@pytest.mark.parametrize("many", [True, False])
def test_messages_in_every_form_of_an_update_are_guarded(many):
    message = ToolMessage(large("x"), tool_call_id="c1", name="move")
    update = Command(update={"messages": [message] if many else message})
    assert text_tokens(repr(guard_of().output(update, "move", {}))) <= BUDGET * 2
