"""A service: `GET /chat/{thread}?text=...` streams an answer, and threads are kept in SQLite.

uvicorn fastapi_service:app
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langchain_ctxwin import SummaryJobs, create_context_agent

CHECKPOINTS = "threads.sqlite"
SHUTDOWN_SECONDS = 10.0


def service(model: Any, checkpoints: str = CHECKPOINTS) -> FastAPI:
    """Return the app of an agent with this model, a chat model or its name."""
    jobs, agents = SummaryJobs(), {}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncSqliteSaver.from_conn_string(checkpoints) as saver:
            agents["chat"] = create_context_agent(
                model, [], jobs=jobs, checkpointer=saver
            )
            yield
            # summaries on their way are kept
            await asyncio.to_thread(jobs.drain, SHUTDOWN_SECONDS)

    app = FastAPI(lifespan=lifespan)

    @app.get("/chat/{thread}")
    async def chat(thread: str, text: str) -> StreamingResponse:
        config: Any = {"configurable": {"thread_id": thread}}

        async def words() -> AsyncIterator[str]:
            asked = {"messages": [("user", text)]}
            async for chunk, _ in agents["chat"].astream(
                asked, config, stream_mode="messages"
            ):
                if chunk.type == "AIMessageChunk":
                    yield chunk.text

        return StreamingResponse(words(), media_type="text/plain")

    return app


def __getattr__(name: str) -> Any:
    if name == "app":  # made when a server asks for it
        return service("google_genai:gemini-3.5-flash")
    raise AttributeError(name)
