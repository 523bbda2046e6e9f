"""The strict chat model that the conformance suite plays with: a window, rules, real usage, and no tolerance."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

Count = Callable[..., int]
Answer = Callable[[Sequence[BaseMessage]], AIMessage]

SLOW_SECONDS = 0.2  # what a slow summarizer takes: enough to be noticed, little enough to wait for
SUMMARY_MARK = "SUMMARY-MARK"  # begins every summary, so that one is known wherever it turns up
LYING_WORDS = 4_000  # of a summary that is longer than what it is made of


class InvalidRequestError(ValueError):
    """What a provider says to a request that breaks its rules."""


class StrictChatModel(BaseChatModel):
    """Answers by a function, refuses what a provider refuses, and keeps every request.

    It counts as `count_tokens_approximately` of LangChain does, so that middleware which counts by it is exact.

    Examples:
        >>> model = StrictChatModel(context_window=1_000, max_tokens=100)
        >>> model.invoke("Hi").text
        'Done.'
    """

    context_window: int
    """Tokens that a request and the answer it asks for may have together."""

    max_tokens: int = 100
    """Tokens that each answer asks for."""

    answer: Answer = lambda _: AIMessage("Done.")
    count: Count = count_tokens_approximately
    requests: list[list[BaseMessage]] = Field(default_factory=list)
    """Every request that was answered."""

    refusals: list[str] = Field(default_factory=list)
    """What was said to every other one."""

    @property
    def _llm_type(self) -> str:
        return "strict"

    @property
    def input_limit(self) -> int:
        """Largest request, in tokens."""
        return self.context_window - self.max_tokens

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Bind tools in OpenAI's form."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answered(messages, kwargs.get("tools")))])

    def _stream(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        whole = self._answered(messages, kwargs.get("tools"))
        calls = [{**call, "args": json.dumps(call["args"]), "index": n} for n, call in enumerate(whole.tool_calls)]
        fields = {"content": whole.content, "usage_metadata": whole.usage_metadata, "tool_call_chunks": calls}
        kept = {"additional_kwargs": whole.additional_kwargs, "response_metadata": whole.response_metadata}
        yield ChatGenerationChunk(message=AIMessageChunk(**fields, **kept))

    def _answered(self, messages: list[BaseMessage], tools: list[Any] | None) -> AIMessage:
        tokens = self.count(messages, tools=tools)
        if problem := problem_of(messages):
            self.refusals.append(problem)
            raise InvalidRequestError(problem)
        if tokens > self.input_limit:
            text = f"prompt is too long: {tokens} tokens > {self.input_limit} maximum"
            self.refusals.append(text)
            raise ContextOverflowError(text)
        self.requests.append([message.model_copy(deep=True) for message in messages])
        reply = self.answer(messages)
        output = max(1, self.count([reply]))
        usage = UsageMetadata(input_tokens=tokens, output_tokens=output, total_tokens=tokens + output)
        return reply.model_copy(deep=True, update={"id": None, "usage_metadata": usage})


def problem_of(messages: Sequence[BaseMessage]) -> str:
    """Return which rule of most providers a request breaks; empty when it breaks none.

    Examples:
        >>> problem_of([HumanMessage("Hi"), ToolMessage("7", tool_call_id="a")])
        "the result of 'a' follows no call"
    """
    body = [message for message in messages if not isinstance(message, SystemMessage)]
    if not body:
        return "there is no message beside the system prompt"
    if not isinstance(body[0], HumanMessage):
        return f"the first message is of the {body[0].type}, not of the user"
    waiting: list[str] = []
    for message in body:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return f"the result of {message.tool_call_id!r} follows no call"
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return f"the calls {waiting} have no results"
        if isinstance(message, AIMessage):
            waiting = [str(call["id"]) for call in message.tool_calls]
        elif not message.content:
            return "a user message is empty"
    return f"the calls {waiting} have no results" if waiting else ""


class Summaries(BaseChatModel):
    """A summarizer: a good one keeps every sentence with a rule, the others fail in one way each."""

    KINDS: ClassVar[tuple[str, ...]] = ("good", "failing", "empty", "slow", "lying")

    kind: str = "good"
    calls: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return f"summaries-{self.kind}"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls.append(messages)
        if self.kind == "failing":
            raise ConnectionError("the summarizer is down")
        if self.kind == "slow":
            time.sleep(SLOW_SECONDS)
        text = {"empty": "", "lying": f"{SUMMARY_MARK} " + "All is well. " * LYING_WORDS}.get(self.kind)
        said = " ".join(message.text for message in messages).replace("\n", ". ").split(". ")
        rules = dict.fromkeys(sentence.strip() for sentence in said if "must" in sentence)
        kept = f"{SUMMARY_MARK} " + ". ".join(rules) if text is None else text
        return ChatResult(generations=[ChatGeneration(message=AIMessage(kept))])
