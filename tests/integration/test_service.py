"""An agent in an async service: a real server, many requests at a time, summaries in the background, a shutdown."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from langchain_ctxwin import (
    ContextConfig,
    ModelLimits,
    SummaryJobs,
    create_context_agent,
)
from support.fakes import ScriptedChatModel

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

TURNS, THREADS = 14, 5
SUMMARY = "The user wants many things."


class Service:
    """What the README's recipe makes, on the framework below FastAPI."""

    def __init__(self, path, gate):
        self.path, self.gate, self.loops, self.left, self.stored = (
            path,
            gate,
            set(),
            None,
            {},
        )

    async def summarize(self, messages):
        async with self.gate:
            self.loops.add(asyncio.get_running_loop())
            await asyncio.sleep(0.01)
        return SUMMARY

    @asynccontextmanager
    async def lifespan(self, app):
        async with AsyncSqliteSaver.from_conn_string(str(self.path)) as saver:
            jobs = SummaryJobs()
            app.state.agent = create_context_agent(
                ScriptedChatModel(policy=lambda messages, tools: AIMessage("Noted.")),
                [],
                limits=ModelLimits(context_window=1000, max_output_tokens=100),
                summarizer=self.summarize,
                config=ContextConfig(prepare=0.4),
                jobs=jobs,
                checkpointer=saver,
            )
            yield
            self.left = await jobs.adrain(20)
            for number in range(THREADS):
                state = await app.state.agent.aget_state(
                    {"configurable": {"thread_id": str(number)}}
                )
                self.stored[number] = state.values

    async def chat(self, request):
        config = {"configurable": {"thread_id": request.path_params["thread"]}}
        text = (await request.body()).decode()
        answer = await request.app.state.agent.ainvoke(
            {"messages": [("user", text)]}, config
        )
        return PlainTextResponse(answer["messages"][-1].text)


async def test_a_service_answers_summarizes_and_shuts_down_in_peace(tmp_path):
    """Every turn is answered, summaries are written on the service's own loop, and none is lost at the end."""
    service = Service(tmp_path / "chats.sqlite", asyncio.Semaphore(1))
    routes = [Route("/chat/{thread}", service.chat, methods=["POST"])]
    app = Starlette(routes=routes, lifespan=service.lifespan)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical")
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # the server tells it by this alone
        await asyncio.sleep(0.01)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=30
    ) as client:

        async def talk(thread):
            return [
                (
                    await client.post(
                        f"/chat/{thread}", content=f"Question {number}: {'word ' * 60}"
                    )
                ).text
                for number in range(TURNS)
            ]

        answers = await asyncio.gather(*map(talk, range(THREADS)))
    server.should_exit = True
    await serving
    assert answers == [["Noted."] * TURNS] * THREADS
    assert service.left == 0
    assert service.loops == {asyncio.get_running_loop()}
    assert all(
        len(values["messages"]) == 2 * TURNS for values in service.stored.values()
    )
    assert all(
        values["context_summary"] == SUMMARY for values in service.stored.values()
    )
