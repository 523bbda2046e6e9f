"""Clients that hold conversations with the fleet, and outlive the worker they happen to talk to."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx

from fleet import script
from fleet.check import Turn
from fleet.services import GRAPH, Fleet

CLIENT_SECONDS = 600.0
"""Longest wait for a turn: many times what a dead worker's lease and the reaper of stuck runs take."""

READ_SECONDS = 30.0  # the server sends a sign of life each five seconds
RETRY_SECONDS = 0.5
OVER = {"success", "error", "timeout", "interrupted"}

Clients = list[httpx.AsyncClient]


@asynccontextmanager
async def connected(urls: list[str]) -> AsyncIterator[Clients]:
    """One client for each worker, closed whatever happens."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
    timeout = httpx.Timeout(READ_SECONDS, pool=None)
    async with AsyncExitStack() as stack:
        opened = [
            httpx.AsyncClient(base_url=url, limits=limits, timeout=timeout)
            for url in urls
        ]
        yield [await stack.enter_async_context(client) for client in opened]


async def closed_loop(clients: Clients, *, threads: int, turns: int) -> list[Turn]:
    """Each thread asks as soon as it was answered."""
    done: list[Turn] = []

    async def hold(thread: str) -> None:
        done.extend([await ask(clients, thread, number) for number in range(turns)])

    async with asyncio.TaskGroup() as group:
        for number in range(threads):
            group.create_task(hold(script.thread_id(number)))
    return done


async def open_loop(
    clients: Clients, *, threads: int, rate: float, seconds: float
) -> list[Turn]:
    """Turns come at a rate, whatever becomes of those before; the threads take turns."""
    done: list[Turn] = []
    counts = dict.fromkeys(map(script.thread_id, range(threads)), 0)
    idle = list(counts)
    began = time.monotonic()

    async def one(thread: str) -> None:
        done.append(await ask(clients, thread, counts[thread]))
        counts[thread] += 1
        idle.append(thread)

    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            if idle:
                group.create_task(one(idle.pop(0)))
    return done


async def killing(fleet: Fleet, *, kills: int, every_seconds: float) -> None:
    """End one worker after the other."""
    for number in range(kills):
        await asyncio.sleep(every_seconds)
        await asyncio.to_thread(fleet.kill, number)


async def ask(clients: Clients, thread: str, number: int) -> Turn:
    """One turn: begin a run, and wait for its end at whichever worker answers."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(CLIENT_SECONDS):
            status, error = await _wait(
                clients, thread, await _begin(clients, thread, number)
            )
    except TimeoutError:
        status, error = "timeout", f"no end within {CLIENT_SECONDS:g} seconds"
    return Turn(
        thread=thread,
        number=number,
        seconds=time.monotonic() - began,
        status=status,
        error=error,
    )


async def _begin(clients: Clients, thread: str, number: int) -> str:
    """Return the id of the turn's run. One that was begun although the answer got lost is not begun again."""
    new = {"thread_id": thread, "if_exists": "do_nothing"}
    await _answered(clients, "POST", "/threads", json=new)
    asked = script.message_id(thread, number)
    message = {"type": "human", "content": script.question(thread, number), "id": asked}
    order = {
        "assistant_id": GRAPH,
        "input": {"messages": [message]},
        "stream_mode": "updates",
    }
    while True:
        reply = await _tried(clients, "POST", f"/threads/{thread}/runs", json=order)
        if reply is None:
            newest = await _answered(
                clients, "GET", f"/threads/{thread}/runs", params={"limit": 1}
            )
            reply = (
                newest[0]
                if newest and newest[0]["input"]["messages"][0]["id"] == asked
                else None
            )
        if reply is not None:
            run: str = reply["run_id"]
            return run
        await asyncio.sleep(RETRY_SECONDS)


async def _wait(clients: Clients, thread: str, run: str) -> tuple[str, str]:
    """Join the run until it is over; a worker that dies meanwhile cuts us off, and another one goes on."""
    path = f"/threads/{thread}/runs/{run}"
    while True:
        await _tried(clients, "GET", f"{path}/join")
        found = await _tried(clients, "GET", path)
        if found and found["status"] in OVER:
            return found["status"], found["error_message"] or ""
        await asyncio.sleep(RETRY_SECONDS)


async def _answered(clients: Clients, method: str, path: str, **what: Any) -> Any:
    while True:
        reply = await _tried(clients, method, path, **what)
        if reply is not None:
            return reply
        await asyncio.sleep(RETRY_SECONDS)


async def _tried(clients: Clients, method: str, path: str, **what: Any) -> Any:
    """What some worker answers; None when it is gone, or answers that it is not well."""
    try:
        reply = await random.choice(clients).request(method, path, **what)  # noqa: S311  # no secret
    except httpx.TransportError:
        return None
    if reply.is_server_error:
        return None
    return reply.raise_for_status().json()
