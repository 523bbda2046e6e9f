"""A provider without a network: it answers by script, counts for itself, and refuses what is too large or unpaired.

What it sees stands in a diary, also when its worker is killed a moment later.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables.config import ensure_config

from fleet import script
from langchain_ctxwin.counting import VocabularyCounter
from langchain_ctxwin.testing import ScriptedChatModel, request_faults

SUMMARY_SECONDS = 1.0
COUNT = VocabularyCounter("o200k_base")
"""The provider's own count; the agent has an estimator."""


class Diary:
    """Appends lines of JSON to a file; several processes may share it."""

    def __init__(self, path: Path, worker: str) -> None:
        self._worker = worker
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, **fields: Any) -> None:
        line = {
            "kind": kind,
            "worker": self._worker,
            "pid": os.getpid(),
            **fields,
        }
        # one call, so that no two lines mix
        os.write(self._file, f"{json.dumps(line)}\n".encode())


class FleetModel(ScriptedChatModel):
    """Calls tools as the script of the thread says, and notes every request in the diary."""

    diary: Any
    seconds: float
    """How long it takes to answer."""

    def _generate(
        self, messages: list[BaseMessage], *_: Any, **kwargs: Any
    ) -> ChatResult:
        thread = ensure_config().get("configurable", {}).get("thread_id", "")
        self.diary.note(
            "request",
            thread=thread,
            tokens=COUNT(messages, tools=kwargs.get("tools") or []),
            limit=(self.window or 0) - (self.max_tokens or 0),
            **seen_in(messages, thread),
        )
        time.sleep(self.seconds)
        try:
            return super()._generate(messages, **kwargs)
        finally:
            self.requests.clear()  # the diary has them


class Summarizer:
    """Writes a short summary after a while; the diary knows which ones were begun, and which were finished."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary

    async def __call__(self, messages: list[BaseMessage]) -> str:
        text = "\n".join(message.text for message in messages)
        turns, rows = script.ABOUT.findall(text), script.ROW.findall(text)
        thread = turns[-1][1] if turns else rows[-1][0] if rows else ""
        of = {"thread": thread, "snapshot": script.code(text, "snapshot")}
        self._diary.note("summary begun", **of)
        await asyncio.sleep(SUMMARY_SECONDS)
        self._diary.note("summary written", **of)
        last = max((int(turn) for turn, _ in turns), default=0)
        return f"Until turn {last} the user asked for the stock of depots, and was told how far each list was read."


def seen_in(messages: Sequence[BaseMessage], thread: str) -> dict[str, Any]:
    """What a request shows, and what it should and does not."""
    start, turn = newest_question(messages)
    text = "\n".join(message.text for message in messages)
    return {
        "turn": turn,
        "orphans": request_faults(messages),
        "missing": [
            name
            for name, value in script.told(thread, turn).items()
            if value not in text
        ],
        "earlier": [message.id for message in messages[:start] if message.id],
    }


def newest_question(messages: Sequence[BaseMessage]) -> tuple[int, int]:
    """Position and turn of the question to be answered."""
    for index in reversed(range(len(messages))):
        about = script.ABOUT.search(messages[index].text)
        if isinstance(messages[index], HumanMessage) and about:
            return index, int(about[1])
    return 0, -1


def decide(messages: Sequence[BaseMessage], _: Any = ()) -> AIMessage:
    """The next call of the turn, or its answer."""
    start, turn = newest_question(messages)
    about = script.ABOUT.search(messages[start].text)
    thread = about[2] if about else ""
    calls = [
        call
        for message in messages[start:]
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    # earlier steps of the turn may have left
    done = 1 + int(calls[-1]["id"].rpartition("-")[2]) if calls else 0
    if done == script.CALLS:
        rows = script.ROW.findall(messages[-1].text)
        reached = int(rows[-1][2]) + 1 if rows else 0
        return AIMessage(
            f"Turn {turn} of {thread}: I read {reached} rows. "
            + "The list goes on as expected. " * 6
        )
    # the record has one, too
    cursors = script.CURSOR.findall("\n".join(message.text for message in messages))
    is_new = not done and turn % script.RESULT_EVERY == 0
    if cursors and not is_new:
        call = {"name": "read_more", "args": {"cursor": cursors[-1]}}
    else:
        call = {"name": "list_stock", "args": {"depot": script.topic(thread, turn)}}
    return AIMessage(
        "", tool_calls=[{**call, "id": f"call-{turn}-{done}", "type": "tool_call"}]
    )
