"""Does `summarizer="native"` have the provider write blocks that begin later requests, and nothing lost by it?"""

import asyncio
import json

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import (
    ContextEngine,
    ModelLimits,
    TokenEstimator,
    compact,
    undo,
)
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe import MemorySink, SummaryEvent
from langchain_ctxwin.summarize import SummaryJobs
from support.agents import agent_on
from support.anthropic_rules import DEMAND_BETA
from support.anthropic_server import SUMMARY, AnthropicServer
from support.openai_server import OpenAIServer
from support.provider_talks import look, responding, speaking

pytestmark = pytest.mark.enable_socket

WINDOW = 6_000
TURNS = 24  # the window is full once, and what follows the block again for a while
THREAD = {"configurable": {"thread_id": "Ann"}}
STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}
RULE = "Never book before 9:00."


def anthropic(make=AnthropicServer, **options):
    """A server whose models tie thinking to what precedes it, and the settings of its client."""
    speaks = {"policy": speaking(thinks=True), "binds": True}
    return make(context_window=WINDOW, **speaks | options), {"max_tokens": 1_280}


def openai(**options):
    server = OpenAIServer(context_window=WINDOW, policy=responding, **options)
    return server, {"max_tokens": 256, **STATELESS}


def agent_of(model, adapter="nodes", **options):
    """An agent on that window, and its jobs, which are waited for after each turn."""
    jobs = SummaryJobs()
    limits = ModelLimits(context_window=WINDOW, max_output_tokens=model.max_tokens)
    options = {"summarizer": "native", "system_prompt": "Be good.", **options}
    counter = TokenEstimator("openai")
    options |= {"limits": limits, "counter": counter, "jobs": jobs}
    return agent_on(adapter, model, [look], **options), jobs


def question(number):
    words = f"Question {number}: what is to be seen? " + "The river ran on. " * 10
    return {"messages": [HumanMessage(f"{RULE if not number else ''} {words}")]}


def talk(agent, jobs, turns=range(TURNS), *, is_async=False):
    for number in turns:
        if is_async:
            asyncio.run(agent.ainvoke(question(number), THREAD))
        else:
            agent.invoke(question(number), THREAD)
        jobs.drain(10)


def compactions(server):
    """The requests that asked for a block, and their places among all."""
    return [
        place
        for place, request in enumerate(server.requests)
        if "compaction" in request.body or request.path.endswith("/compact")
    ]


def parts_of(request):
    """The blocks and items of a request, in order."""
    items = request.body.get("messages") or request.body["input"]
    return [
        block
        for item in items
        for block in (
            item["content"]
            if isinstance(item.get("content"), list)
            else [{"type": "text", "text": item["content"], **item}]
            if isinstance(item.get("content"), str)
            else [item]
        )
    ]


def thoughts(request):
    return [block["thinking"] for block in parts_of(request) if block.get("thinking")]


def swapped(server):
    """The place of the first request that a block begins."""
    return next(
        place
        for place, request in enumerate(server.requests)
        if any(
            block["type"] == "compaction"
            for block in parts_of(request)
            if "type" in block
        )
    )


@pytest.mark.parametrize("adapter", ["nodes", "middleware"])
@pytest.mark.parametrize("serve", [anthropic, openai])
def test_a_block_of_the_provider_begins_the_requests_that_follow(serve, adapter):
    """It is asked for beside the turn, about a request as it was sent; the record stands beside it, rules and all."""
    server, options = serve()
    with server:
        agent, jobs = agent_of(server.chat_model(**options), adapter)
        talk(agent, jobs, is_async=adapter == "middleware")
    assert server.refused == []
    asked, first = compactions(server)[0], swapped(server)
    earlier = server.requests[:asked]
    sent = json.dumps(parts_of(server.requests[asked])[-1])
    assert any(
        len(parts_of(request)) > len(parts_of(server.requests[asked]))
        and sent[:200] in json.dumps(parts_of(request))
        for request in earlier
    )
    parts = [
        part
        for part in parts_of(server.requests[first])
        if part.get("role") not in {"system", "developer"}
    ]
    assert parts[0]["type"] == "compaction"
    text = json.dumps(parts)
    assert RULE in text
    assert "<record>" in text
    assert SUMMARY not in text.partition("<record>")[2]


def test_thinking_that_is_kept_behind_the_block_stays_and_is_taken():
    """All that follows what was summed up, through several compactions; pins and record come behind it."""
    server, options = anthropic()
    with server:
        agent, jobs = agent_of(server.chat_model(**options))
        talk(agent, jobs, range(44))
    first = swapped(server)
    before, after = server.requests[first - 1 : first + 1]
    kept = thoughts(after)
    assert len(kept) > 3
    assert kept == thoughts(before)[-len(kept) :]
    assert server.refused == []
    assert len(server.stands_for) >= 3
    texts = [str(part.get("text", part["type"])) for part in parts_of(after)]
    record = next(place for place, text in enumerate(texts) if "<record>" in text)
    assert texts.index("thinking") < record
    assert all("thinking" not in text for text in texts[record:])
    assert DEMAND_BETA in server.betas[-1]


def test_thinking_that_would_be_stale_behind_a_block_is_left_out():
    """Here the integration cuts blanks at the end of the last answer: what was summed up is not what was sent."""
    policy = speaking(thinks=True)

    def blank(body):
        return [
            {**block, "text": block["text"] + " "} if block["type"] == "text" else block
            for block in policy(body)
        ]

    server, options = anthropic(policy=blank)
    with server:
        agent, jobs = agent_of(server.chat_model(**options))
        talk(agent, jobs)
    first = swapped(server)
    assert server.refused == []
    assert thoughts(server.requests[first]) == []


@pytest.mark.parametrize("serve", [anthropic, openai])
def test_another_process_takes_up_the_block(serve):
    """One that is finished in the state, or that only the store has: it is not asked for again."""
    server, options = serve()
    store, saver = InMemoryStore(), InMemorySaver()
    kept = {"store": store, "checkpointer": saver}
    with server:
        agent, jobs = agent_of(server.chat_model(**options), **kept)
        number = 0
        while not compactions(server):
            talk(agent, jobs, [number])
            number += 1
        asked = len(compactions(server))
        again, jobs = agent_of(server.chat_model(**options), **kept)
        talk(again, jobs, range(number, number + 12))
        assert swapped(server)
        count = len(compactions(server)) - asked
        view = again.get_state(THREAD).values["context_view"]
    assert count <= 1
    assert view["block"]["type"] == "compaction"
    assert server.refused == []


def test_a_block_is_taken_back_with_its_compaction():
    """As any summary: the view before is shown again."""
    server, options = anthropic()
    with server:
        agent, jobs = agent_of(server.chat_model(**options))
        talk(agent, jobs, range(12))
        done = compact(agent, THREAD)
        assert "covered" in str(agent.get_state(THREAD).values["context_view"])
        assert done.summary == SUMMARY
        undo(agent, THREAD)
        assert agent.get_state(THREAD).values["context_view"] == {}
        talk(agent, jobs, [12])
    assert all(part["type"] != "compaction" for part in parts_of(server.requests[-1]))
    assert server.refused == []


class Refusing(AnthropicServer):
    """Refuses every request to compact."""

    def answer(self, call):
        if "compaction" in call.body:
            call.body["messages"].append(
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "x", "name": "look", "input": {}}
                    ],
                }
            )
        return super().answer(call)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Refusing, {}),
        (AnthropicServer, {"summary": None}),
        (AnthropicServer, {"summary": "All is well. " * 4_000}),
    ],
    ids=["failing", "empty", "larger than what it is of"],
)
def test_a_bad_block_changes_nothing(make, options):
    """What leaves is in the record, and each turn is answered."""
    sink = MemorySink()
    server, client = anthropic(make, **options)
    with server:
        agent, jobs = agent_of(server.chat_model(**client), sinks=[sink])
        talk(agent, jobs)
    values = agent.get_state(THREAD).values
    assert sum(not m.tool_calls for m in values["messages"] if m.type == "ai") == TURNS
    assert "block" not in str(values["context_view"])
    assert "failed" in {event.status for event in sink.of(SummaryEvent)}
    assert RULE in json.dumps(parts_of(server.requests[-1]))


def test_another_provider_reads_the_text_of_a_block():
    """Beside the record, and without anything that only its maker reads; who comes back finds its block."""
    server, options = anthropic()
    other = OpenAIServer(context_window=WINDOW, policy=responding)
    saver = InMemorySaver()
    with server, other:
        agent, jobs = agent_of(server.chat_model(**options), checkpointer=saver)
        talk(agent, jobs)
        moved, jobs = agent_of(other.chat_model(max_tokens=256), checkpointer=saver)
        talk(moved, jobs, [TURNS])
        agent, jobs = agent_of(server.chat_model(**options), checkpointer=saver)
        talk(agent, jobs, [TURNS + 1])
    text = json.dumps(other.requests[0].body)
    assert SUMMARY in text.partition("<record>")[2]
    assert "signature" not in text
    assert parts_of(server.requests[-1])[0]["content"] == SUMMARY
    statuses = {request.status for request in (*server.requests, *other.requests)}
    assert statuses == {200}


def test_what_only_shapes_an_answer_is_not_sent_along():
    """A block would be cut where the answer is to stop."""
    server, options = anthropic()
    with server:
        model = server.chat_model(**options, stop=["\n\nHuman:"])
        agent, jobs = agent_of(model)
        talk(agent, jobs, range(16))
    asked = server.requests[compactions(server)[0]].body
    assert "stop_sequences" not in asked
    assert all("stop_sequences" in r.body for r in server.requests if r.body != asked)


def test_a_call_without_a_graph_asks_the_model_of_the_limits():
    """`fit` writes inline; without a model there is nobody to ask, which changes nothing."""
    history = [
        message
        for n in range(22)
        for message in (
            HumanMessage(f"Question {n}? " + "The river ran on. " * 20, id=f"q{n}"),
            AIMessage(f"Answer {n}.", id=f"a{n}"),
        )
    ] + [HumanMessage("And now?", id="now")]
    server, options = anthropic()
    with server:
        profile = {"max_input_tokens": 4_720, "max_output_tokens": 1_280}
        model = server.chat_model(**options, profile=profile)
        fitted = ContextEngine(limits=model, summarizer="native").fit(history)
        assert fitted.request[0].content[0]["content"] == SUMMARY
        nobody = ContextEngine(limits=ModelLimits(4_000, 1_000), summarizer="native")
        assert "block" not in str(nobody.fit(history).session["context_view"])


KEYS = {
    "api_key": "none",
    "profile": {"max_input_tokens": 8_000, "max_output_tokens": 1_000},
}
EDITS = {"edits": [{"type": "compact_20260112"}]}


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda: ChatGoogleGenerativeAI(model="g", **KEYS), "ChatAnthropic can"),
        (lambda: ChatOpenAI(model="gpt-4o", **KEYS), "use_responses_api=True"),
        (
            lambda: ChatAnthropic(model="c", context_management=EDITS, **KEYS),
            "leave out one of both",
        ),
    ],
    ids=["no such API", "no way to send a block back", "the server compacts already"],
)
def test_a_model_without_one_is_told_at_construction(model, told):
    """By the value, what is possible, and what to do."""
    with pytest.raises(ConfigError, match=told) as error:
        ContextEngine(limits=model(), summarizer="native")
    assert str(error.value).startswith("summarizer='native': ")


def test_more_than_a_window_of_what_left_is_not_sent_at_once():
    """A conversation that another model held: what of it the request shows is summed up."""
    server, options = anthropic()
    other = OpenAIServer(context_window=WINDOW, policy=responding)
    saver = InMemorySaver()
    with server, other:
        made = {"checkpointer": saver, "summarizer": None}
        agent, jobs = agent_of(other.chat_model(max_tokens=256), **made)
        talk(agent, jobs, range(40))
        agent, jobs = agent_of(server.chat_model(**options), checkpointer=saver)
        talk(agent, jobs, range(40, 60))
        assert compactions(server)
        assert swapped(server)
    assert {request.status for request in server.requests} == {200}
