"""Is each of the providers' rules kept where a server that checks it would refuse what came in?"""

import base64
import json
from functools import partial

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ModelLimits, TokenEstimator, create_context_agent
from langchain_ctxwin.observe import MemorySink, NoticeEvent, StepEvent
from langchain_ctxwin.summarize import SummaryJobs
from support.anthropic_rules import BINDING_BETA
from support.anthropic_server import AnthropicServer
from support.gemini_server import GeminiServer
from support.loopback import RefusalError
from support.ollama_server import OllamaServer, looking
from support.openai_server import OpenAIServer
from support.provider_talks import (
    EDIT_BETAS,
    STATELESS,
    look,
    play,
    responding,
    speaking,
)

pytestmark = pytest.mark.enable_socket

THREAD = {"configurable": {"thread_id": "Ann"}}
SCREEN = base64.b64encode(b"png" * 4_000).decode()


def statuses(server):
    return [request.status for request in server.requests]


def agent_of(model, saver=None, *, window=6_000, tools=(look,), **options):
    """An agent that counts as the servers do."""
    limits = ModelLimits(context_window=window, max_output_tokens=256)
    options |= {"counter": TokenEstimator("openai"), "checkpointer": saver}
    return create_context_agent(model, list(tools), limits=limits, **options)


def invoked(model, history, *, saver=None, window=8_000, **options):
    options |= {"window": window, "system_prompt": "Be good."}
    agent = agent_of(model, saver, **options)
    return agent.invoke({"messages": history}, {**THREAD, "recursion_limit": 500})


def talk(agent, jobs, numbers):
    """Ask so many questions; summaries are waited for."""
    for number in numbers:
        words = f"Question {number}: " + "The river ran on. " * 12
        agent.invoke({"messages": [HumanMessage(words)]}, THREAD)
        jobs.drain(10)


@tool
def screenshot(place: str) -> list[dict]:
    """Take a picture of a place."""
    source = {"type": "base64", "media_type": "image/png", "data": SCREEN}
    return [{"type": "image", "source": source}, {"type": "text", "text": place}]


def taking(shots):
    def blocks(body):
        taken = str(body["messages"]).count("'tool_result'")
        if taken >= shots:
            return "That is all."
        call = {
            "type": "tool_use",
            "name": "screenshot",
            "input": {"place": f"p{taken}"},
        }
        return [call]

    return blocks


@pytest.mark.parametrize(
    "limits",
    [{"max_images": 10}, {"max_bytes": 160_000}],
    ids=["images", "bytes"],
)
def test_a_request_has_no_more_pictures_than_its_provider_takes(limits):
    """A limit below the documented one is learned from its refusal, 413 among them, and kept to."""
    with AnthropicServer(policy=taking(24), **limits) as server:
        state = invoked(
            server.chat_model(),
            [HumanMessage("Go on.")],
            window=200_000,
            tools=[screenshot],
        )
    assert state["messages"][-1].text == "That is all."
    assert 1 <= len(server.refused) <= 2


MADE_BY = {
    "anthropic": AnthropicServer,
    "openai": OpenAIServer,
    "gemini": GeminiServer,
}
CALL = {"name": "look", "args": {"place": "pier"}, "id": "call:1/2 of Ann's"}


def test_a_server_that_cuts_silently_is_noticed_and_its_window_learned():
    """It keeps half its window of a larger prompt, says nothing, and reports the size of what it kept."""
    with OllamaServer(num_ctx=4_096, policy=looking) as server:
        agent = agent_of(server.chat_model(), InMemorySaver(), window=32_000)
        for turn in range(24):
            asked = HumanMessage(f"{turn}? " + "River. " * 60)
            agent.invoke({"messages": [asked]}, THREAD)
    assert 0 < server.cut <= 5
    assert server.cut < 0.1 * len(server.requests)


def forged(value):
    """The same with other signatures and other encrypted content, as after a change of keys."""
    if isinstance(value, list):
        return [forged(each) for each in value]
    if not isinstance(value, dict):
        return value
    sealed = {"signature", "encrypted_content"}
    return {
        key: f"Zm9yZ2Vk{each[8:]}" if key in sealed and each else forged(each)
        for key, each in value.items()
    }


EDIT = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 2_000}}
THRESHOLD = {"type": "compaction", "compact_threshold": 2_000}
THINKS = {"policy": speaking(thinks=True)}
SEALED = {
    "bound thinking": (
        partial(AnthropicServer, binds=True, **THINKS),
        {},
        None,
    ),
    "a compaction by Anthropic": (
        partial(AnthropicServer, **THINKS),
        {"betas": EDIT_BETAS, "context_management": {"edits": [EDIT]}},
        None,
    ),
    "a compaction by Anthropic, on demand": (
        partial(AnthropicServer, binds=True, **THINKS),
        {},
        "native",
    ),
    "reasoning of OpenAI": (partial(OpenAIServer, policy=responding), STATELESS, None),
    "reasoning of OpenAI, in its older form": (
        partial(OpenAIServer, policy=responding),
        {**STATELESS, "output_version": "v0"},
        None,
    ),
    "a compaction by OpenAI": (
        partial(OpenAIServer, policy=responding),
        {**STATELESS, "context_management": [THRESHOLD]},
        None,
    ),
    "a compaction by OpenAI, on demand": (
        partial(OpenAIServer, policy=responding),
        STATELESS,
        "native",
    ),
}


@pytest.mark.parametrize("name", SEALED)
def test_what_its_provider_cannot_read_any_more_is_refused_once(name):
    """Signatures changed, or keys: the same turn goes on without what was signed, and so do all after it."""
    serve, options, summarizer = SEALED[name]
    turns = 28 if summarizer else 8
    with serve(context_window=6_000) as server:
        model = server.chat_model(**{"max_tokens": 256, **options})
        own = {"summarizer": summarizer, "jobs": (jobs := SummaryJobs())}
        agent = agent_of(model, InMemorySaver(), **own)
        talk(agent, jobs, range(turns))
        values = agent.get_state(THREAD).values
        assert ("block" in str(values.get("context_view"))) is bool(summarizer)
        said = [m for m in values["messages"] if isinstance(m, AIMessage)]
        changed = [
            m.model_copy(
                update={
                    "content": forged(m.content),
                    "additional_kwargs": forged(m.additional_kwargs),
                }
            )
            for m in said
        ]
        view = {"context_view": forged(values.get("context_view", {}))}
        agent.update_state(THREAD, view if summarizer else {"messages": changed})
        before = len(server.requests)
        talk(agent, jobs, range(turns, turns + 4))
    refused = [r for r in server.requests[before:] if r.status != 200]
    # by Anthropic once for the block, and once for the thinking that it stood before
    assert len(refused) == 1 + (name == "a compaction by Anthropic, on demand")


def test_a_signature_of_another_project_is_refused_once():
    """The call that waits for its result goes on at a Gemini that did not sign it."""
    saver = InMemorySaver()
    servers = [GeminiServer(model="gemini-3-test") for _ in range(2)]
    for number, server in enumerate(servers):
        with server:
            before = [] if number else ["tools"]
            agent = agent_of(server.chat_model(), saver, interrupt_before=before)
            asked = None if number else {"messages": [HumanMessage("Look!")]}
            agent.invoke(asked, THREAD)
    assert statuses(servers[0]) == [200]
    assert statuses(servers[1])[:2] == [400, 200]
    assert set(statuses(servers[1])[1:]) == {200}


def test_thinking_that_the_server_left_out_is_sent_no_more():
    """It says so where the request asked to drop it; our count is that of what the model saw, and an event says why."""
    sink, saver = MemorySink(), InMemorySaver()
    drop = {"prefix_mismatch_behavior": "drop_block"}
    with AnthropicServer(policy=speaking(thinks=True), binds=True) as server:
        model = server.chat_model(
            thinking={"type": "adaptive", "block_binding": drop}, betas=[BINDING_BETA]
        )
        own = {"system_prompt": "Be good.", "sinks": [sink]}
        agent = agent_of(model, saver, window=8_000, **own)
        for is_edited in (False, True):
            if is_edited:
                asked = agent.get_state(THREAD).values["messages"][0]
                edited = HumanMessage("What was there?", id=asked.id)
                agent.update_state(THREAD, {"messages": [edited]})
            for _ in range(3):
                agent.invoke({"messages": [HumanMessage("What is there?")]}, THREAD)
    assert set(statuses(server)) == {200}
    dropped = [len(r.reply["input_transformations"]) for r in server.requests]
    assert dropped == [0] * 6 + [6] + [0] * 5
    events = [e for e in sink.of(NoticeEvent) if e.notice == "reasoning_left_out"]
    assert [e.about for e in events] == [{"reason": "prefix_binding_mismatch"}]
    steps = sink.of(StepEvent)[7:]
    assert all(
        abs(step.estimated_tokens - step.reported_tokens) < 0.02 * step.reported_tokens
        for step in steps
    )


def told_in_between(*messages):
    """The history of a talk in which an application says something as system in between."""
    return [HumanMessage("Who?"), AIMessage("Ann."), *messages]


LOOKED = [
    HumanMessage("Look!"),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage("A boat.", tool_call_id=CALL["id"]),
]
IN_BETWEEN = {
    "behind the question": told_in_between(
        HumanMessage("And now?"), SystemMessage("Speak French.")
    ),
    "behind results": told_in_between(
        *LOOKED,
        SystemMessage("Speak French."),
    ),
    "before the user goes on": told_in_between(
        HumanMessage("And now?"), SystemMessage("Be good."), HumanMessage("Well?")
    ),
    "behind an answer": told_in_between(
        SystemMessage("Be good."), HumanMessage("And now?")
    ),
}


@pytest.mark.parametrize("name", IN_BETWEEN)
def test_system_messages_stay_where_a_model_takes_them(name):
    """The profile says so; elsewhere in the order of turns they are notes, and the prompt in front stays as it is."""
    system = {"profile": {"mid_conversation_system_messages": True}}
    with AnthropicServer(takes_system=True) as server:
        saver = InMemorySaver()
        for history in (IN_BETWEEN[name], [HumanMessage("And then?")]):
            invoked(server.chat_model(**system), history, saver=saver)
    first, second = (request.body for request in server.requests)
    assert set(statuses(server)) == {200}
    assert "Be good." in str(first["system"])
    assert "French" not in str(first["system"])
    sent = [message["role"] for message in first["messages"]]
    assert ("system" in sent) is (name in {"behind the question", "behind results"})
    assert [m["role"] for m in second["messages"]][: len(sent)] == sent


class Adding(OpenAIServer):
    """A gateway that adds what was cached to a size that has it already."""

    def answer(self, call):
        answer = super().answer(call)
        usage = answer.body["usage"]
        usage["input_tokens"] += usage["input_tokens_details"]["cached_tokens"]
        return answer


def test_a_size_that_counts_cached_tokens_twice_makes_nothing_leave():
    """The requests are those of a provider that counts them once."""
    sent = list[list[int]]()
    for serve in (OpenAIServer, Adding):
        with serve(context_window=6_000, policy=responding) as server:
            model = server.chat_model(max_tokens=256, **STATELESS)
            play(server, model, turns=24)
        sent.append([request.tokens for request in server.requests])
    assert sent[0] == sent[1]


@pytest.mark.parametrize("provider", MADE_BY)
@pytest.mark.parametrize("words", ["", "Bad Request", "Invalid request."])
def test_a_refusal_that_names_nothing_is_the_callers(provider, words):
    """Nothing is guessed from it: it is raised as it came, after one call, and the same turn can be asked again."""

    class Vague(MADE_BY[provider]):
        is_vague, vague = False, 0

        def answer(self, call):
            self.vague += self.is_vague
            if self.is_vague:
                raise RefusalError(words)
            return super().answer(call)

    saver = InMemorySaver()
    with Vague() as server:
        model = server.chat_model()
        invoked(model, [HumanMessage("Who?")], saver=saver)
        server.is_vague = True
        with pytest.raises(Exception, match="400") as raised:
            invoked(model, [HumanMessage("And now?")], saver=saver)
        assert "ctxwin" not in type(raised.value).__module__
        server.is_vague = False
        state = invoked(model, [], saver=saver)
    assert server.vague == 1
    assert state["messages"][-1].text
    assert "context_view" not in state


def test_thinking_behind_pictures_that_left_is_not_sent():
    """They leave in batches, within a turn: it was tied to them. What is thought behind the next ones stays."""
    shoots = taking(24)

    def thinking(body):
        answer = shoots(body)
        blocks = (
            [{"type": "text", "text": answer}] if answer == "That is all." else answer
        )
        return [{"type": "thinking", "thinking": "Hm."}, *blocks]

    with AnthropicServer(policy=thinking, binds=True, max_images=10) as server:
        limits = ModelLimits(200_000, max_output_tokens=256, max_images=10)
        agent = create_context_agent(server.chat_model(), [screenshot], limits=limits)
        agent.invoke({"messages": [HumanMessage("Go on.")]}, {"recursion_limit": 500})
    assert set(statuses(server)) == {200}
    thoughts = [str(request.body).count("'signature'") for request in server.requests]
    assert 0 < thoughts[-1] < max(thoughts) < 24


def test_a_model_that_thinks_each_time_takes_over_behind_calls_of_another():
    """It wants its own reasoning before a call that waits for its results: such a turn is closed, and begun anew."""
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    with AnthropicServer(policy=speaking(thinks=True)) as server:
        model = server.chat_model(thinking=thinking, max_tokens=1_280)
        invoked(model, LOOKED)
        invoked(model, [*LOOKED, HumanMessage("And now?")])
    assert set(statuses(server)) == {200}


def test_a_block_on_demand_is_text_where_the_server_is_to_compact():
    """The API takes no signed block beside a compaction edit; who comes back to the other model finds it."""
    with AnthropicServer(context_window=6_000, **THINKS) as server:
        jobs, saver = SummaryJobs(), InMemorySaver()
        plain = server.chat_model(max_tokens=256)
        later = {**EDIT, "trigger": {"type": "input_tokens", "value": 50_000}}
        own = {"betas": EDIT_BETAS, "context_management": {"edits": [later]}}
        compacting = server.chat_model(max_tokens=256, **own)
        blocks, talks = (
            [],
            [(plain, "native", 28), (compacting, None, 2), (plain, "native", 2)],
        )
        for model, summarizer, turns in talks:
            agent = agent_of(model, saver, summarizer=summarizer, jobs=jobs)
            talk(agent, jobs, range(turns))
            blocks.append('"compaction"' in json.dumps(server.requests[-1].body))
    assert set(statuses(server)) == {200}
    assert blocks == [True, False, True]
