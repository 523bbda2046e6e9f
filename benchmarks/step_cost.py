"""Milliseconds of processor time that a step costs as the history grows, beside langchain's and deepagents' middleware.

Three ways to meet a history: the same message objects as in the step before, messages loaded anew by a process that
remembers nothing (the state is there), and a history that is seen for the first time. Everybody is called with the same
messages: ours from the check of the budget to the answer, the others where they decide about a request. Their threshold
is out of reach, so that nobody writes a summary; ours compacts, without a model, what its window does not hold.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import islice
from statistics import median
from typing import Any

from langchain.agents.middleware import SummarizationMiddleware
from langchain.agents.middleware.types import ModelRequest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from common import (
    Transcript,
    head,
    load,
    one_after_the_other,
    parser_of,
    quiet,
    row,
    through,
    usage_of,
)
from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits
from langchain_ctxwin.agent import nodes as our_nodes
from langchain_ctxwin.agent.storage import RunPlace

SIZES = (1_000, 10_000, 100_000)
WAYS = {"the same objects": (4, 12), "loaded anew": (2, 4), "first sight": (0, 2)}
"""Steps that warm up, and steps that are measured."""

ROOMY, SMALL = 100_000_000, 32_768
OUT_OF_REACH = ("tokens", 10**9)
KEPT = ("messages", 20)

State = dict[str, Any]
Step = Callable[[State, AIMessage], State]


def history(transcripts: list[Transcript], size: int) -> list[AnyMessage]:
    """The conversations one after the other, to `size` messages; ends on a tool result or a question."""
    messages = list(islice(one_after_the_other(transcripts), size))
    while isinstance(messages[-1], AIMessage):
        messages.pop()
    return with_own_calls(messages)


def with_own_calls(messages: list[AnyMessage]) -> list[AnyMessage]:
    """The same messages with an id of its own for each call: conversations that follow each other share theirs."""
    known: dict[str, str] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage):
            for number, call in enumerate(message.tool_calls):
                known[str(call["id"])] = f"c{index}-{number}"
            message.tool_calls = [
                {**call, "id": known[str(call["id"])]} for call in message.tool_calls
            ]
        elif isinstance(message, ToolMessage):
            message.tool_call_id = known.get(message.tool_call_id, message.tool_call_id)
    return messages


def ours(tools: list[dict[str, Any]], window: int) -> Step:
    engine = ContextEngine(
        ModelLimits(context_window=window, requested_output_tokens=SMALL // 4)
    )
    nodes = ContextNodes(engine, tools=tools)
    answers: list[AIMessage] = []
    model = nodes.model_node(lambda _: answers[-1])

    def step(state: State, reply: AIMessage) -> State:
        answers.append(reply)
        state = through(nodes, state)
        reply.usage_metadata = usage_of(state["context_report"]["total_tokens"])
        update = model.invoke(state)
        return {**state, "context_counts": update["context_counts"]}

    return step


def langchain() -> Step:
    middleware = SummarizationMiddleware(
        model=FakeListChatModel(responses=["summary"]), trigger=OUT_OF_REACH, keep=KEPT
    )

    def step(state: State, _: AIMessage) -> State:
        middleware.before_model(state, None)  # type: ignore[arg-type]
        return state

    return step


def deepagents() -> Step:
    from deepagents.backends import StateBackend
    from deepagents.middleware.summarization import (
        SummarizationMiddleware as DeepSummarization,
    )

    model = FakeListChatModel(responses=["summary"])
    middleware = DeepSummarization(
        model=model, backend=StateBackend(), trigger=OUT_OF_REACH, keep=KEPT
    )

    def step(state: State, reply: AIMessage) -> State:
        request = ModelRequest(
            model=model, messages=state["messages"], state=state, tools=[]
        )
        middleware.wrap_model_call(request, lambda _: reply)
        return state

    return step


def cost(messages: list[AnyMessage], make: Callable[[], Step], way: str) -> str:
    """Median milliseconds of one step: the history grows by a call and its result, as in an agent's loop."""
    state: State = {"messages": messages}
    try:
        step, taken = make(), list[float]()
    except ImportError:
        return "not installed"
    warm_up, repeats = WAYS[way]
    for number in range(warm_up + repeats):
        if way == "first sight":
            state = {"messages": messages}
        if way != "the same objects":
            state = {
                **state,
                "messages": [m.model_copy(deep=True) for m in state["messages"]],
            }
            step = make()
        call = {"name": "tool_1", "args": {"id": number}, "id": f"c{number}"}
        reply = AIMessage("", id=f"a{number}", tool_calls=[call])
        gc.collect()
        began = time.process_time()
        state = step(state, reply)
        taken.append(time.process_time() - began)
        result = ToolMessage(
            f"row {number}", tool_call_id=f"c{number}", id=f"t{number}"
        )
        state = {**state, "messages": [*state["messages"], reply, result]}
    return f"{median(taken[warm_up:]) * 1_000:.2f}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="messages of the history"
    )
    options = parser.parse_args()
    quiet()
    transcripts = list(load(options.data, limit=5))
    tools = next(t.tools for t in transcripts if t.tools)
    # as in a graph with a checkpointer
    our_nodes.place_of = lambda *_: RunPlace(thread="1")
    everybody = {
        "ours, all in view": lambda: ours(tools, ROOMY),
        f"ours, {SMALL:,} tokens": lambda: ours(tools, SMALL),
        "langchain": langchain,
        "deepagents": deepagents,
    }
    head("ms per step", "messages", *everybody)
    for way in WAYS:
        for size in options.sizes:
            messages = history(transcripts, size)
            figures = (cost(messages, make, way) for make in everybody.values())
            row(way, f"{size:,}", *figures)


if __name__ == "__main__":
    main()
