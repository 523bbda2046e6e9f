"""Clients that hold conversations with the fleet, and outlive the worker they happen to talk to."""

from __future__ import annotations

import asyncio
import random
import time
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import httpx

from fleet import script
from fleet.check import Turn
from fleet.services import GRAPH, Fleet
from langchain_ctxwin.core.turns import PIN_KEY

CLIENT_SECONDS = 600.0
"""Longest wait for a turn: many times what a dead worker's lease and the reaper of stuck runs take."""

READ_SECONDS = 30.0  # the server sends a sign of life each five seconds
RETRY_SECONDS = 0.5
OVER = {"success", "error", "timeout", "interrupted"}


async def held(fleet: Fleet, options: Namespace) -> list[Turn]:
    """Each thread asks as soon as it was answered, while one worker after the other is killed."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
    timeout = httpx.Timeout(READ_SECONDS, pool=None)
    async with httpx.AsyncClient(limits=limits, timeout=timeout) as http:
        people = Clients(http, [worker.url for worker in fleet.workers])
        trouble = asyncio.create_task(_killing(fleet, options))
        try:
            talks = (
                people.talk(script.thread_id(number), options.turns)
                for number in range(options.threads)
            )
            return sum(await asyncio.gather(*talks), list[Turn]())
        finally:
            trouble.cancel()
            if trouble.done() and not trouble.cancelled():
                trouble.result()  # a worker that could not be started again is an error of the run


async def _killing(fleet: Fleet, options: Namespace) -> None:
    for number in range(options.kills):
        await asyncio.sleep(options.every)
        await asyncio.to_thread(fleet.kill, number)


@dataclass(frozen=True, slots=True)
class Clients:
    """People who talk to any worker."""

    http: httpx.AsyncClient
    urls: list[str]

    async def talk(self, thread: str, turns: int) -> list[Turn]:
        return [await self.ask(thread, number) for number in range(turns)]

    async def ask(self, thread: str, number: int) -> Turn:
        """One turn: begin a run, and wait for its end at whichever worker answers."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                run = await self._begin(thread, number)
                status, error = await self._wait(f"/threads/{thread}/runs/{run}")
        except TimeoutError:
            status, error = "timeout", f"no end within {CLIENT_SECONDS:g} seconds"
        seconds = time.monotonic() - began
        return Turn(
            thread=thread, number=number, seconds=seconds, status=status, error=error
        )

    async def _begin(self, thread: str, number: int) -> str:
        """Return the id of the turn's run. One that was begun although the answer got lost is not begun again."""
        new = {"thread_id": thread, "if_exists": "do_nothing"}
        await self._answered("POST", "/threads", json=new)
        asked, runs = script.message_id(thread, number), f"/threads/{thread}/runs"
        text = script.question(thread, number)
        message: dict[str, Any] = {"type": "human", "content": text, "id": asked}
        if text.startswith(script.PIN_WORD):
            message["additional_kwargs"] = {PIN_KEY: True}
        order = {
            "assistant_id": GRAPH,
            "input": {"messages": [message]},
            "stream_mode": "updates",
        }
        while True:
            run = await self._tried("POST", runs, json=order)
            if run is None:
                newest = await self._answered("GET", runs, params={"limit": 1})
                run = next(iter(newest), None)
                if run and run["input"]["messages"][0]["id"] != asked:
                    run = None
            if run is not None:
                return str(run["run_id"])
            await asyncio.sleep(RETRY_SECONDS)

    async def _wait(self, run: str) -> tuple[str, str]:
        """Join the run until it is over; a worker that dies meanwhile cuts us off, and another one goes on."""
        while True:
            await self._tried("GET", f"{run}/join")
            found = await self._tried("GET", run)
            if found and found["status"] in OVER:
                return found["status"], found["error_message"] or ""
            await asyncio.sleep(RETRY_SECONDS)

    async def _answered(self, method: str, path: str, **what: Any) -> Any:
        while (reply := await self._tried(method, path, **what)) is None:  # noqa: ASYNC110  # others decide
            await asyncio.sleep(RETRY_SECONDS)
        return reply

    async def _tried(self, method: str, path: str, **what: Any) -> Any:
        """What some worker answers; None when it is gone, or answers that it is not well."""
        url = random.choice(self.urls)  # noqa: S311  # no secret
        try:
            reply = await self.http.request(method, f"{url}{path}", **what)
        except httpx.TransportError:
            return None
        if reply.is_server_error:
            return None
        return reply.raise_for_status().json()
