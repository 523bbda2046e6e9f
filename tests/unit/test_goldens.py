"""Are requests, states and events the same as before? Compared with what was stored, text by text, ids masked.

After a change that is meant to alter them, `python tests/unit/test_goldens.py` prints what differs and writes them
anew; the commit says why.
"""

import asyncio
import functools
import itertools
import json
import random
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from structlog.testing import capture_logs

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ModelLimits,
    ModelRouter,
    RoutedChatModel,
    RoutingConfig,
    ToolSelector,
    pin,
)
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from support import agents
from support.fakes import (
    core_overflow,
    echo,
    llama_overflow,
    openai_overflow,
)
from support.goldens import FOLDER, difference, store, stored
from support.graphs import chat_on
from support.scenarios import Numbered, Prompt

STORED = FOLDER / "conversations.json.xz"
THREAD = {"configurable": {"thread_id": "1"}}
WINDOW = 1600
MASKED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
OF_THE_MOMENT = {
    "left_checksum",
    "since",
    "seconds",
    "duration_seconds",
    "key",
    "log_level",
    "elapsed_seconds",
}
CHINESE = "河水流过磨坊，磨坊主的女儿数着船只。"  # noqa: RUF001
TOPICS = ("river", "mill", "boat", "lamp", "door", "invoice", "parser", "migration")


class Golden:
    """What a conversation left: its requests, its state, its events."""

    def __init__(self, requests, state, events):
        self._names = {}
        self.parts = {
            f"request {number}": self._text(one)
            for number, one in enumerate(requests, 1)
        }
        self.parts |= {"state": self._text(state), "events": self._text(events)}

    def _text(self, value):
        text = json.dumps(
            value, default=str, sort_keys=True, ensure_ascii=False, indent=1
        )
        return MASKED.sub(
            lambda found: self._names.setdefault(found[0], f"id-{len(self._names)}"),
            text,
        )


class Writer:
    """A summarizer that says how much it was given."""

    def summarize(self, messages, *, previous, max_tokens):
        return f"{previous} {len(messages)} more messages"[-max_tokens:].strip()


CallId = Annotated[str, InjectedToolCallId]


def result(text, call_id):
    return ToolMessage(text, tool_call_id=call_id, id=f"result of {call_id}")


@tool
def look(name: str, call_id: CallId) -> ToolMessage:
    """Look at something."""
    return result(prose(80, seed=name), call_id)


@tool
def rows(table: str, call_id: CallId) -> ToolMessage:
    """Read the rows of a table."""
    return result(table_of(table), call_id)


def table_of(name):
    rng = random.Random(name)  # noqa: S311  # not for secrets
    made = [
        {
            "id": f"#W{rng.randint(1000, 9999)}",
            "city": rng.choice(TOPICS),
            "sum": rng.randint(1, 999),
        }
        for _ in range(12)
    ]
    return json.dumps(made)


def prose(words, seed=0):
    """A text that mentions an identifier now and then."""
    rng = random.Random(str(seed))  # noqa: S311  # not for secrets
    said = (
        f"{rng.choice(TOPICS)}-{rng.randint(10, 99)}"
        if rng.random() < 0.2
        else rng.choice(TOPICS)
        for _ in range(words)
    )
    return " ".join(said)


def questions(count=14, words=50):
    """What a user asks; rules and names among it."""
    asked = [
        f"Question {number}: what of {prose(words, number)}?" for number in range(count)
    ]
    asked[1] = "Never ship to the old address. My name is Kim, my order is #W4821."
    asked[3] = f"{CHINESE * 4} 请用中文回答。"
    asked[5] = (
        f"Please look at /srv/data/report-{count}.csv, then at https://example.org/a?b=7."
    )
    return asked


def plain(message):
    return message.model_dump(
        include={
            "type",
            "content",
            "id",
            "tool_calls",
            "tool_call_id",
            "status",
            "artifact",
        }
    )


def talk(agent, model, asked, *, is_async=False):
    """Ask one question after the other and keep what was sent, left and logged."""
    with capture_logs() as logs:
        for number, question in enumerate(asked):
            message = (
                question
                if isinstance(question, HumanMessage)
                else HumanMessage(question, id=f"question {number}")
            )
            try:
                if is_async:
                    asyncio.run(agent.ainvoke({"messages": [message]}, THREAD))
                else:
                    agent.invoke({"messages": [message]}, THREAD)
            except Exception as error:  # noqa: BLE001  # a refusal is a result, too
                logs.append(
                    {"event": "raised", "error": f"{type(error).__name__}: {error}"}
                )
    values = agent.get_state(THREAD).values
    session = {
        key: value for key, value in values.items() if key.startswith("context_")
    }
    session["context_pending"] = without(session.get("context_pending") or {})
    sent = [
        [
            [
                (m.type, m.content, getattr(m, "tool_calls", None))
                for m in request.messages
            ],
            request.tools,
            request.refused,
        ]
        for request in model.requests
    ]
    return Golden(
        sent,
        [session, [plain(message) for message in values["messages"]]],
        [*map(without, logs)],
    )


def without(value):
    return {key: item for key, item in value.items() if key not in OF_THE_MOMENT}


def agent_on(
    adapter,
    model,
    tools,
    *,
    window=WINDOW,
    **options,
):
    """An agent with a summarizer on the nodes or in the middleware."""
    config = ContextConfig(output_reserve=0, **options)
    engine = ContextEngine(
        ModelLimits(context_window=window),
        summarizer=Writer(),
        config=config,
        jobs=Prompt(),
    )
    if adapter == "nodes":
        return chat_on(engine, model.bind_tools(tools) if tools else model, tools=tools)
    return create_agent(
        model,
        tools,
        system_prompt="You are a careful assistant.",
        middleware=[ContextWindowMiddleware(engine, recall=False)],
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )


def managed(
    asked=questions,
    *,
    steps=2,
    tools=(look,),
    **options,
):
    """A conversation under some settings."""
    is_async, limit = (
        options.pop("is_async", False),
        options.pop("limit", options.get("window", WINDOW)),
    )
    parallel, overflow = (
        options.pop("parallel", 1),
        options.pop("overflow", core_overflow),
    )

    def play(adapter):
        policy = {"policy": stepwise(steps, parallel)} if tools else {}
        model = Numbered(input_limit=limit, overflow=overflow, **policy)
        return talk(
            agent_on(adapter, model, [*tools], **options),
            model,
            asked(),
            is_async=is_async,
        )

    return play


def stepwise(steps, parallel):
    """Calls the first tool in so many steps of each turn, whatever the request still shows of them."""
    answered = itertools.count()

    def decide(messages, tools):
        turn, step = divmod(next(answered), steps + 1)
        if step == steps or not tools:
            return echo(messages, tools)
        function = tools[0]["function"]
        (argument,) = function["parameters"]["properties"]
        calls = [
            {
                "name": function["name"],
                "args": {argument: f"{turn}.{step}.{i}"},
                "id": f"c-{turn}-{step}-{i}",
            }
            for i in range(parallel)
        ]
        return AIMessage("", tool_calls=calls)

    return decide


def pinned():
    return [pin(HumanMessage("The budget is 700 EUR.", id="budget")), *questions(10)]


def huge():
    return [*questions(6), f"Read this: {prose(3000)}", *questions(6)]


def routed(adapter):
    """Two models, the tools chosen for each request."""
    policy = stepwise(1, 1)
    small, large = (
        Numbered(
            input_limit=limit,
            policy=policy,
            model_name=name,
            profile={
                "max_input_tokens": limit,
                "max_output_tokens": 200,
                "tool_calling": True,
            },
        )
        for name, limit in (("small", 1500), ("large", 4000))
    )
    large.requests = small.requests
    router = ModelRouter([small, large], config=RoutingConfig(when_full="move"))
    made = [tool_named(number) for number in range(12)]
    options = {
        "config": ContextConfig(output_reserve=100),
        "tool_selector": ToolSelector(made, max_tool_tokens=400),
    }
    agent = agents.agent_on(
        adapter,
        RoutedChatModel(router),
        made,
        system_prompt="You are careful.",
        jobs=Prompt(),
        **options,
    )
    return talk(agent, small, questions())


def tool_named(number):
    topic = TOPICS[number % len(TOPICS)]

    @tool(
        f"find_{topic}_{number}",
        description=f"Find every {topic} and what is known of it, by name or number.",
    )
    def find(name: str, call_id: CallId) -> ToolMessage:
        return result(prose(60, seed=name), call_id)

    return find


def driven(adapter):
    """The engine without a graph; `adapter` says whether a model summarizes."""
    rng, messages, session = random.Random(7), list[AnyMessage](), dict[str, Any]()  # noqa: S311
    engine = ContextEngine(
        ModelLimits(context_window=1200),
        summarizer=Writer() if adapter == "nodes" else None,
        config=ContextConfig(output_reserve=0, summarize="inline"),
    )
    sent, reports = list[Any](), list[Any]()
    for number in range(60):
        kind = rng.random()
        messages.append(
            HumanMessage(
                f"Question {number}: {prose(rng.randint(5, 60), number)}?",
                id=f"h{number}",
            )
        )
        if kind < 0.6:
            call = {"name": "rows", "args": {"table": str(number)}, "id": f"c{number}"}
            messages.append(AIMessage("", tool_calls=[call], id=f"a{number}"))
            messages.append(
                ToolMessage(
                    table_of(str(number)), tool_call_id=f"c{number}", id=f"t{number}"
                )
            )
        if kind < 0.1:
            messages.append(SystemMessage(f"Note {number}.", id=f"s{number}"))
        fitted = engine.fit(
            messages, session=session, system_prompt="You are careful.", tools=[rows]
        )
        session = fitted.session
        reports.append(dict(fitted.report))
        sent.append(
            [
                (m.type, m.content, getattr(m, "tool_calls", None))
                for m in fitted.request
            ]
        )
        messages.append(
            AIMessage(
                f"Answer {number}: {prose(rng.randint(5, 40), -number)}.",
                id=f"r{number}",
            )
        )
    session["context_counts"] = {}  # nothing was reported
    session["context_pending"] = without(session.get("context_pending") or {})
    return Golden(sent, session, reports)


PLAYS = {
    "background": managed(),
    "inline": managed(summarize="inline"),
    "off": managed(summarize="off"),
    "async": managed(is_async=True),
    "chat": managed(tools=()),
    "rows": managed(tools=(rows,), parallel=3, steps=3, window=3000),
    "one turn": managed(lambda: questions(6)[:2], steps=30),
    "huge question": managed(huge),
    "pins": managed(pinned, pin_first_user=False),
    "keep little": managed(keep=0.05, record_share=0.1),
    "keep much": managed(keep=0.7),
    "lean": managed(max_history_tokens=600),
    "by messages": managed(trigger_messages=20),
    "in the user message": managed(
        summary_placement="user", constraints=("Answer in one line.",)
    ),
    "cleared": managed(clear_tools=("look",)),
    "core overflow": managed(limit=900),
    "openai overflow": managed(limit=900, overflow=openai_overflow),
    "llama overflow": managed(limit=700, overflow=llama_overflow),
    "routed": routed,
    "driven": driven,
}
# One adapter plays what the next one does not: that both do the same is a property of its own.
CASES = [
    *zip(PLAYS, itertools.cycle(("nodes", "middleware")), strict=False),
    ("driven", "nodes"),
]


@functools.cache
def stored_conversations():
    return stored(STORED)


@pytest.mark.parametrize(("name", "adapter"), CASES)
def test_what_is_sent_left_and_logged_is_what_was_stored(name, adapter):
    case = f"{name}, {adapter}"
    difference_now = difference(
        case, stored_conversations()[case], PLAYS[name](adapter).parts
    )
    assert not difference_now, difference_now


def test_a_difference_names_case_and_part_and_is_shown_line_by_line():
    before, now = (
        {"request 1": "[]", "state": "[\n1,\n2\n]"},
        {"request 1": "[]", "state": "[\n1,\n3\n]"},
    )
    assert difference("pins, nodes", before, now) == (
        "pins, nodes: 1 of 2 parts differ (state)\n"
        "--- state, stored\n+++ state, now\n@@ -1,4 +1,4 @@\n [\n 1,\n-2\n+3\n ]"
    )


if __name__ == "__main__":
    store(
        STORED,
        {f"{name}, {adapter}": PLAYS[name](adapter).parts for name, adapter in CASES},
    )
