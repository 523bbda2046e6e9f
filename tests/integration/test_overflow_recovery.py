"""Does the model node learn from a real refusal once, for every later request, and from an answer that was cut off?"""

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import BaseCallbackHandler

from langchain_ctxwin.models.sources import LearnedSource
from support.anthropic_rules import prompt_tokens
from support.anthropic_server import AnthropicServer
from support.desk import ask, state_of
from support.gemini_policy import answer
from support.gemini_server import GeminiServer
from support.graphs import chat_on, engine_for
from support.model_sources import wait_for_writers

pytestmark = pytest.mark.enable_socket

WINDOW = 2048
CLAIMED = 4 * WINDOW
STORY = (
    "The river ran past the mill, and the miller's daughter counted the boats. " * 24
)
BABBLE_TOKENS = 8
TURNS = 6  # the conversation is refused in the fifth
# at temperature 0 random weights say nothing but line breaks
WORDY = {"temperature": 1.0, "seed": 1}


@pytest.fixture
def model(request):
    """Return a real client of the provider that the test names; its server takes `WINDOW` tokens."""
    if request.param == "gemini":
        with GeminiServer(
            input_limit=WINDOW, policy=answer("Noted."), model="tiny"
        ) as server:
            yield server.chat_model()
        return
    server = request.getfixturevalue("start_llama")(WINDOW)
    if request.param == "openai":
        yield server.chat_model(stream_usage=True, **WORDY)
        return
    url = server.url.removesuffix("/v1")
    yield ChatAnthropic(
        model="tiny", api_key="x", base_url=url, max_retries=0, max_tokens=BABBLE_TOKENS
    )


class Calls(BaseCallbackHandler):
    """Records what a chat model answered and raised; pass it as a callback of the run."""

    def __init__(self):
        self.errors, self.usages = [], []

    def on_llm_end(self, response, **_):
        message = response.generations[0][0].message
        self.usages.append(message.usage_metadata["input_tokens"])

    def on_llm_error(self, error, **_):
        self.errors.append(error)


def thread(name, calls):
    """Return the config of a thread whose model calls are recorded."""
    return {"configurable": {"thread_id": name}, "callbacks": [calls]}


def refused(calls):
    """Return the errors, each one once although a bound model reports it at every level."""
    return list({id(error): error for error in calls.errors}.values())


async def talk(agent, config, *, way="invoke", turns=TURNS):
    """Hold a conversation that is larger than the window."""
    for number in range(turns):
        given = ask(f"Part {number}. {STORY} What then?")
        if way == "ainvoke":
            await agent.ainvoke(given, config)
        elif way == "stream":
            _ = list(agent.stream(given, config, stream_mode="messages"))
        else:
            agent.invoke(given, config)


@pytest.mark.parametrize(
    ("model", "way"),
    [
        ("openai", "stream"),
        ("anthropic", "invoke"),
        ("anthropic", "stream"),
        ("anthropic", "ainvoke"),
        ("gemini", "ainvoke"),
    ],
    indirect=["model"],
)
async def test_what_a_thread_was_refused_for_holds_for_that_thread(model, way):
    """What a conversation heard may be quoted from a text: others hear of it through `learned=` only."""
    calls, names = Calls(), ("first", "second", "third")
    agent = chat_on(engine_for("tiny", CLAIMED), model)
    for number, name in enumerate(names, 1):
        await talk(agent, thread(name, calls), way=way)
        assert len(refused(calls)) == number
    assert len(calls.usages) == 3 * TURNS
    states = [state_of(agent, thread(name, calls)) for name in names]
    assert states[0]["context_counts"]["limits"] == {"tiny": WINDOW}
    assert [state["context_report"]["context_window"] for state in states] == [
        WINDOW
    ] * 3
    assert [len(state["messages"]) for state in states] == [2 * TURNS] * 3


@pytest.mark.parametrize(
    ("model", "how"),
    [("openai", "restarted"), ("anthropic", "file")],
    indirect=["model"],
)
async def test_a_refusal_is_known_elsewhere(model, how, open_sqlite, tmp_path):
    """After a restart over the same file; to a later engine through a file."""
    calls, path = Calls(), tmp_path / "learned.json"
    for name in ("first", "second"):
        if how == "restarted":
            agent = chat_on(
                engine_for("tiny", CLAIMED),
                model,
                checkpointer=open_sqlite(strict=True),
            )
        else:
            agent = chat_on(
                engine_for("tiny", CLAIMED, learned=LearnedSource(path)),
                model,
            )
        await talk(agent, thread("first" if how == "restarted" else name, calls))
        wait_for_writers()
    assert len(refused(calls)) == 1
    assert len(calls.usages) == 2 * TURNS
    assert how != "file" or LearnedSource(path).recall("tiny") == {
        "context_window": WINDOW
    }


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("max_tokens", [1000, 200])
async def test_input_and_output_together_too_large_are_cured_by_less_output_or_by_a_compaction(
    way, max_tokens
):
    """The same messages go again with the `max_tokens` that is left; an answer of a few tokens would help nobody."""
    with AnthropicServer(context_window=4096) as server:
        agent = chat_on(
            engine_for("claude-test", 4 * 4096),
            server.chat_model(max_tokens=max_tokens),
        )
        await talk(agent, thread("t", Calls()), way=way, turns=12)
    (refusal,), bodies = server.refused, [request.body for request in server.requests]
    assert len(bodies) == 12 + 1
    again = bodies[bodies.index(refusal) + 1]
    if max_tokens == 1000:
        room = server.context_window - prompt_tokens(again)
        assert again == {**refusal, "max_tokens": again["max_tokens"]}
        assert 0.9 * room < again["max_tokens"] <= room < 1000
    else:
        assert {body["max_tokens"] for body in bodies} == {200}
        assert "<record>" in str(again["messages"])
        question = refusal["messages"][-1]["content"]
        assert question in str(again["messages"][-1]["content"])
        assert prompt_tokens(again) < prompt_tokens(refusal)
    limits = state_of(agent, thread("t", Calls()))["context_counts"]["limits"]
    assert limits == {"claude-test": 4096}
