"""Do the example programs run, against the doubles of their providers?"""

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from langchain_ctxwin import ContextConfig
from langchain_ctxwin.demo.stories import TOUR
from support.anthropic_server import AnthropicServer
from support.fakes import ScriptedChatModel, script
from support.gemini_server import GeminiServer
from support.openai_server import OpenAIServer

pytestmark = pytest.mark.enable_socket

PLACE = Path(__file__).parents[2] / "examples"
NOTES = [f"Note {number}: " + "we build boats. " * 150 for number in range(16)]


def example(name):
    """Import one program."""
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", PLACE / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calling(name, **args):
    return AIMessage(
        "", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}]
    )


def test_every_example_is_run_here_and_listed():
    listed = (PLACE / "README.md").read_text(encoding="utf-8")
    names = [path.stem for path in PLACE.glob("*.py")]
    assert [name for name in names if f"`{name}.py`" not in listed] == []
    here = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in names if f'example("{name}")' not in here] == []


def test_gemini(capsys):
    with GeminiServer(input_limit=8_192) as server:
        report = example("gemini_agent").run(
            server.chat_model(profile={"max_input_tokens": 8_192}), ["Bolts?", "Nuts?"]
        )
    sizes = [request.tokens for request in server.generated]
    assert max(sizes) <= report["total_tokens"] < report["input_limit"]
    assert len(capsys.readouterr().out.splitlines()) >= 2


def test_openai():
    with OpenAIServer(context_window=32_000) as server:
        state = example("openai_agent").run(
            server.chat_model(profile={"max_input_tokens": 32_000}), NOTES
        )
    assert state["context_report"]["compactions"] >= 1
    assert state["context_report"]["history_tokens"] <= 8_000
    assert server.refused == []


def test_anthropic(capsys):
    config = ContextConfig(constraints="Never promise a refund.", max_thread_tokens=200)
    with AnthropicServer() as server:
        model = server.chat_model(profile={"max_input_tokens": 200_000})
        answers = example("anthropic_agent").run(
            model, ["Where is my parcel?"] * 9, config
        )
    assert 0 < len(answers) < 9
    assert "spent" in capsys.readouterr().out


def test_ollama():
    model = ScriptedChatModel(
        input_limit=4_096 - 512, policy=script(*["Noted."] * len(NOTES))
    )
    state = example("ollama_agent").run(model, NOTES, num_ctx=4_096)
    assert state["context_report"]["compactions"] >= 1
    assert not any(request.refused for request in model.requests)


def test_mcp():
    pytest.importorskip("mcp")
    model = ScriptedChatModel(
        profile={"max_input_tokens": 8_192},
        input_limit=8_192,
        policy=script(calling("parts"), "On shelf 31."),
    )
    messages = asyncio.run(
        example("mcp_agent").run(model, "On which shelf is part-4711?")
    )
    (page,) = [message for message in messages if isinstance(message, ToolMessage)]
    assert "5,000 rows" in json.dumps(page.content)
    assert messages[-1].text == "On shelf 31."


def test_supervisor():
    models = [
        ScriptedChatModel(profile={"max_input_tokens": 8_192}, policy=policy)
        for policy in (
            script(
                calling("research", task="Trieste"),
                calling("write", task="Facts"),
                "A port. It is old.",
            ),
            script("It is a port."),
            script("A port."),
        )
    ]
    assert example("supervisor").run(*models, "About Trieste.") == "A port. It is old."
    assert [len(model.requests) for model in models] == [3, 1, 1]


def test_fastapi(tmp_path):
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    from fastapi.testclient import TestClient

    model = ScriptedChatModel(
        profile={"max_input_tokens": 8_192},
        policy=script("Good morning.", "Good night."),
    )
    with TestClient(
        example("fastapi_service").service(model, str(tmp_path / "threads.sqlite"))
    ) as client:
        assert client.get("/chat/1", params={"text": "Hello"}).text == "Good morning."
        assert client.get("/chat/1", params={"text": "Bye"}).text == "Good night."
    assert len(model.requests[-1].messages) == 3


def test_explorer():
    question = TOUR.format(file="stories.py", last=20, page=20, term="demo")
    state = example("explorer").graph.invoke({"messages": [("user", question)]})
    assert state["messages"][-1].text.endswith("of them do.")
