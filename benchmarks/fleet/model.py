"""A provider without a network: it answers by script, counts for itself, and refuses what is too large or unpaired."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import ensure_config
from langchain_core.utils.function_calling import convert_to_openai_tool

from fleet import script
from fleet.diary import Diary
from langchain_ctxwin.counting import VocabularyCounter

COUNT = VocabularyCounter("o200k_base")
"""The provider's own count; the agent has an estimator."""


class ProviderError(Exception):
    """Has the shape of a provider SDK's status error."""

    def __init__(self, text: str, code: str) -> None:
        self.status_code, self.code = 400, code
        self.body = {"message": text, "type": "invalid_request_error", "code": code}
        super().__init__(f"Error code: 400 - {self.body}")


class FleetModel(BaseChatModel):
    """Calls tools as the script of the thread says, and notes every request in the diary."""

    diary: Any
    input_limit: int
    seconds: float
    """How long it takes to answer."""

    @property
    def _llm_type(self) -> str:
        return "fleet"

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs
        )

    def _generate(
        self, messages: list[BaseMessage], *_: Any, **kwargs: Any
    ) -> ChatResult:
        return self._answered(messages, kwargs.get("tools") or [])

    async def _agenerate(
        self, messages: list[BaseMessage], *_: Any, **kwargs: Any
    ) -> ChatResult:
        await asyncio.sleep(self.seconds)
        return self._answered(messages, kwargs.get("tools") or [])

    def _answered(self, messages: list[BaseMessage], tools: list[Any]) -> ChatResult:
        tokens = COUNT(messages, tools=tools)
        thread = ensure_config().get("configurable", {}).get("thread_id", "")
        seen = seen_in(messages, thread)
        self.diary.note(
            "request", thread=thread, tokens=tokens, limit=self.input_limit, **seen
        )
        if tokens > self.input_limit:
            text = f"This model's maximum context length is {self.input_limit} tokens. However, your messages resulted"
            raise ProviderError(
                f"{text} in {tokens} tokens.", "context_length_exceeded"
            )
        if seen["orphans"]:
            raise ProviderError(
                f"calls and results do not match: {seen['orphans']}", "invalid_request"
            )
        answer = decide(messages)
        written = COUNT.count_text(answer.text)
        answer.usage_metadata = {
            "input_tokens": tokens,
            "output_tokens": written,
            "total_tokens": tokens + written,
        }
        return ChatResult(generations=[ChatGeneration(message=answer)])


class Summarizer:
    """Writes a short summary after a while; the diary knows which ones were begun, and which were finished."""

    def __init__(self, diary: Diary, seconds: float) -> None:
        self._diary, self._seconds = diary, seconds

    async def __call__(self, messages: list[BaseMessage]) -> str:
        text = "\n".join(message.text for message in messages)
        turns, rows = script.ABOUT.findall(text), script.ROW.findall(text)
        thread = turns[-1][1] if turns else rows[-1][0] if rows else ""
        of = {"thread": thread, "snapshot": script.code(text, "snapshot")}
        self._diary.note("summary begun", **of)
        await asyncio.sleep(self._seconds)
        self._diary.note("summary written", **of)
        last = max((int(turn) for turn, _ in turns), default=0)
        return f"Until turn {last} the user asked for the stock of depots, and was told how far each list was read."


def seen_in(messages: Sequence[BaseMessage], thread: str) -> dict[str, Any]:
    """What a request shows, and what it should and does not."""
    start, turn = newest_question(messages)
    text = "\n".join(message.text for message in messages)
    return {
        "turn": turn,
        "orphans": orphans(messages),
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


def orphans(messages: Sequence[BaseMessage]) -> list[str]:
    """Calls without a result right behind them, and results without such a call."""
    found: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in waiting:
            waiting.remove(message.tool_call_id)
            continue
        found += waiting
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        waiting = [call["id"] or "" for call in calls]
        if isinstance(message, ToolMessage):
            found.append(message.tool_call_id)
    return [*found, *waiting]


def decide(messages: Sequence[BaseMessage]) -> AIMessage:
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
