"""Our graphs under a LangGraph server: closed inputs, nothing that blocks its loop, summaries in the background.

The server is `langgraph dev`, which refuses calls that block; its client speaks HTTP as any client would.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from langgraph_sdk import get_client

from langchain_ctxwin.demo.stories import TOUR
from support import server_graphs

pytestmark = pytest.mark.enable_socket

ROOT = Path(__file__).parents[2]
GRAPHS = ("by_nodes", "ready", "by_middleware")
START_SECONDS, TURNS, FORGED_TURN = 60, 8, 2
FORGED = {
    "context_summary": server_graphs.FORGED,
    "context_record": {
        "lines": [["said", server_graphs.FORGED, "x", 1]],
        "left": {"messages": 1},
    },
    "context_view": {"start": {"id": "x", "index": 3}},
    "context_counts": {"limits": {"": {"context_window": 9}}},
    "llm_input_messages": [{"role": "user", "content": server_graphs.FORGED}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pytest.importorskip("langgraph_api", reason="langgraph-cli[inmem] is not installed")
    folder = tmp_path_factory.mktemp("server")
    shipped = json.loads((ROOT / "langgraph.json").read_text())["graphs"]
    graphs = {name: f"{server_graphs.__file__}:{name}" for name in GRAPHS}
    graphs |= {name: str(ROOT / place) for name, place in shipped.items()}
    (folder / "langgraph.json").write_text(
        json.dumps({"dependencies": ["."], "graphs": graphs})
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    langgraph = str(Path(sys.executable).parent / "langgraph")
    command = [langgraph, "dev", "--no-browser", "--no-reload", "--port", str(port)]
    tests = str(Path(__file__).parents[1])
    settings = {**os.environ, "PYTHONPATH": tests, "LANGSMITH_TRACING": "false"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=settings, stdout=log, stderr=log
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/ok", process, folder / "log")
            yield f"http://127.0.0.1:{port}", folder / "log"
        finally:
            process.terminate()
            process.wait(20)


def wait_for(url, process, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start: {log.read_text()[-2_000:]}")


@pytest.fixture
async def client(server):
    async with get_client(url=server[0]) as found:
        yield found


@pytest.mark.parametrize("name", GRAPHS)
async def test_a_client_sets_and_gets_messages_alone(client, server, name):
    assistants = {
        assistant["graph_id"]: assistant["assistant_id"]
        for assistant in await client.assistants.search()
    }
    schemas = await client.assistants.get_schemas(assistants[name])
    assert set(schemas["input_schema"]["properties"]) == {"messages"}
    assert not [
        key
        for key in schemas["output_schema"]["properties"]
        if key.startswith(("context_", "llm_"))
    ]

    thread = (await client.threads.create())["thread_id"]
    answers = []
    for turn in range(TURNS):
        asked = {
            "messages": [
                {"role": "user", "content": f"Question {turn}. {'words of mine ' * 40}"}
            ]
        }
        output = await client.runs.wait(
            thread, name, input=asked | (FORGED if turn == FORGED_TURN else {})
        )
        assert set(output) <= {"messages", "structured_response"}
        answers.append(output["messages"][-1]["content"])
    assert not [answer for answer in answers if server_graphs.FORGED in answer]
    # One event loop runs it all: what blocks it is an error of the server, and a summary is written between two turns.
    assert server_graphs.SUMMARY in answers[-1]
    assert answers[-1].split()[0] != str(TURNS)
    assert "Blocking" not in server[1].read_text()


async def test_the_shipped_graph_streams_its_gauge(client):
    """Each request says how full its window is, each compaction what it freed, and the client draws it."""
    thread = (await client.threads.create())["thread_id"]
    told = []
    for last, term in ((60, "import"), (180, "model")):
        question = TOUR.format(file="stories.py", last=last, page=20, term=term)
        asked = {"messages": [{"role": "user", "content": question}]}
        async for part in client.runs.stream(
            thread, "explorer", input=asked, stream_mode="custom"
        ):
            assert part.event != "error", part.data
            told += [part.data] if part.event == "custom" else []
    steps = [event for event in told if event["type"] == "context.step"]
    assert len(steps) >= 4
    assert all(0 < one["reported_tokens"] <= one["input_limit"] for one in steps)
    assert [event for event in told if event["type"] == "context.compacted"]
