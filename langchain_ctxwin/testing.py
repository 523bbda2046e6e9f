"""A strict chat model for tests: it answers by a script, and refuses what a provider would refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

__all__ = [
    "ScriptedChatModel",
    "ScriptedRequest",
    "count_tokens",
    "request_faults",
]

# role and separators around each message, and what wraps a tool's definition
FRAME_TOKENS = 4
CHUNK_CHARS = 24  # of a streamed answer: several chunks even for a short one

PIECE = re.compile(
    r"[^\x00-\u024f]|\s?[A-Za-z\u00c0-\u024f]{1,6}|\d{1,3}|\n\s*|[^\w\s]{1,2}|_|\s{1,8}"
)
"""About what byte-pair encodings make of text: short words whole, long words in parts, numbers in threes."""

Overflow = Callable[[int, int], Exception]


class InvalidRequestError(ValueError):
    """The refusal of a provider whose rules about the order of messages a request breaks."""

    status_code = 400


class RequestTooLargeError(ContextOverflowError):
    """The refusal of a provider whose window a request exceeds, with the status, code and body of OpenAI's."""

    status_code = 400
    code = "context_length_exceeded"

    def __init__(self, text: str) -> None:
        self.body = {
            "message": text,
            "type": "invalid_request_error",
            "code": self.code,
        }
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedRequest:
    """One request as the model saw it."""

    messages: tuple[BaseMessage, ...]
    """Copies: what is changed later does not change the record."""

    tools: tuple[dict[str, Any], ...]
    """In OpenAI's form."""

    tokens: int
    """Input tokens as the model counts them."""

    refusal: Exception | None = None
    """What was raised instead of an answer."""

    @property
    def refused(self) -> bool:
        """True when the request got an exception instead of an answer."""
        return self.refusal is not None


class ScriptedChatModel(BaseChatModel):
    """A chat model without a network: it answers by a script, counts, and is as strict as a provider.

    It refuses a request that its window does not hold, and one whose calls and results do not pair up; it reports
    what a request took as `usage_metadata`; it keeps every request. Sync, async and streamed calls do the same.

    Instantiate:
        ```python
        from langchain_ctxwin.testing import ScriptedChatModel

        model = ScriptedChatModel(window=8192, script=["Hello!", "Goodbye!"])
        ```

    Use:
        ```python
        model.invoke("Hi").text  # "Hello!"
        model.requests[0].tokens  # 5
        ```

    Examples:
        >>> model = ScriptedChatModel(window=20, script="Hello!")
        >>> model.invoke("Hi").usage_metadata["input_tokens"]
        5
        >>> model.invoke("a long question " * 10)
        Traceback (most recent call last):
        ...
        langchain_ctxwin.testing.RequestTooLargeError: This model's maximum context length is 20 tokens. ...
    """

    model_config = ConfigDict(extra="forbid")

    window: int | None = None
    """Tokens that the model holds, input and output together; a larger request is refused. None holds anything."""

    max_tokens: int | None = None
    """Tokens asked for the answer: they must fit beside the input."""

    script: Any = "Done."
    """What is answered: a text, an `AIMessage`, an exception to raise, or a function of the messages and the tools (in
    OpenAI's form) that returns one of these; or a list of them, of which each request takes one, the last for ever.
    """

    counter: Callable[..., int] = Field(default_factory=lambda: count_tokens)
    """How the model counts: `counter(messages, tools=tools)`."""

    overflow: Overflow | None = None
    """Builds the error for a request that is too large from its tokens and the limit: another provider's, say."""

    strict: bool = True
    """False takes messages in any order."""

    model_name: str = "scripted"
    requests: list[ScriptedRequest] = Field(default_factory=list)
    """Every request, in order, the refused ones too."""

    _played: int = PrivateAttr(default=0)

    @model_validator(mode="after")
    def _state_limits(self) -> ScriptedChatModel:
        """State the window in the profile, as integrations do, unless a profile was passed."""
        if self.profile is None and self.window is not None:
            self.profile = {
                "max_input_tokens": self.window,
                "max_output_tokens": self.max_tokens or self.window,
            }
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def answered(self) -> list[ScriptedRequest]:
        """The requests that were answered."""
        return [request for request in self.requests if not request.refused]

    @property
    def refusals(self) -> list[str]:
        """The errors that answered the refused requests."""
        return [str(request.refusal) for request in self.requests if request.refused]

    @property
    def largest_tokens(self) -> int:
        """Size of the largest request that was answered."""
        return max((request.tokens for request in self.answered), default=0)

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tool definitions in OpenAI's form."""
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs
        )

    def _generate(
        self, messages: list[BaseMessage], *_: Any, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(
            generations=[ChatGeneration(message=self._answered(messages, kwargs))]
        )

    def _stream(
        self, messages: list[BaseMessage], *_: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answered(messages, kwargs)
        text = answer.content if isinstance(answer.content, str) else ""
        for start in range(0, len(text), CHUNK_CHARS):
            yield ChatGenerationChunk(
                message=AIMessageChunk(content=text[start : start + CHUNK_CHARS])
            )
        last = AIMessageChunk(
            content="" if text else answer.content,
            tool_calls=answer.tool_calls,
            invalid_tool_calls=answer.invalid_tool_calls,
            additional_kwargs=answer.additional_kwargs,
            usage_metadata=answer.usage_metadata,
            response_metadata=answer.response_metadata,
            chunk_position="last",
        )
        yield ChatGenerationChunk(message=last)

    def _answered(
        self, messages: list[BaseMessage], options: dict[str, Any]
    ) -> AIMessage:
        tools = list(options.get("tools") or ())
        tokens = self.counter(messages, tools=tools)
        seen = [message.model_copy(deep=True) for message in messages]
        answer: Any = self._refusal(messages, tokens, options) or self._next(
            seen, tools
        )
        request = ScriptedRequest(
            messages=tuple(seen), tools=tuple(tools), tokens=tokens
        )
        if isinstance(answer, Exception):
            self.requests.append(replace(request, refusal=answer))
            raise answer
        self.requests.append(request)
        return self._metered(
            AIMessage(answer) if isinstance(answer, str) else answer, tokens
        )

    def _metered(self, answer: AIMessage, tokens: int) -> AIMessage:
        """A message of its own, with what the request and the answer took."""
        message = answer.model_copy(deep=True)
        output = max(1, self.counter([message]) - self.counter([AIMessage("")]))
        usage = UsageMetadata(
            input_tokens=tokens, output_tokens=output, total_tokens=tokens + output
        )
        message.id = None
        message.usage_metadata = message.usage_metadata or usage
        message.response_metadata = {
            "model_name": self.model_name,
            **message.response_metadata,
        }
        return message

    def _refusal(
        self, messages: list[BaseMessage], tokens: int, options: dict[str, Any]
    ) -> Exception | None:
        """The refusal of a request that is invalid, or too large together with the requested output."""
        if self.strict and (faults := request_faults(messages)):
            return InvalidRequestError("; ".join(faults))
        requested = options.get("max_tokens") or self.max_tokens or 0
        if self.window is None or tokens + requested <= self.window:
            return None
        if self.overflow is not None:
            return self.overflow(tokens, self.window - requested)
        return RequestTooLargeError(
            f"This model's maximum context length is {self.window} tokens. However, you requested "
            f"{tokens + requested} tokens ({tokens} in the messages, {requested} in the completion). Please reduce the "
            "length of the messages or completion."
        )

    def _next(self, messages: list[BaseMessage], tools: list[Any]) -> Any:
        """Take the next part of the script, and play it."""
        part = self.script
        if isinstance(part, list | tuple):
            part = part[min(self._played, len(part) - 1)]
            self._played += 1
        if isinstance(part, Exception):
            return copy(part)  # a traceback grows at each raise
        part = part(messages, tools) if callable(part) else part
        if isinstance(part, str | AIMessage | Exception):
            return part
        kinds = "a text, an AIMessage, an exception, a function that returns one of these, or a list of them"
        raise TypeError(f"script={self.script!r:.80}: pass {kinds}")


def count_tokens(
    messages: Sequence[BaseMessage], tools: Sequence[Any] | None = None
) -> int:
    """Return the input tokens of a request, as about a byte-pair encoding counts them; this package counts otherwise.

    Texts, calls and definitions of tools count, pictures and other blocks do not.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> count_tokens([HumanMessage("What is in the harbour?")])
        11
    """
    texts = [json.dumps(convert_to_openai_tool(tool)) for tool in tools or ()]
    for message in messages:
        calls = [
            call["name"] + json.dumps(call["args"])
            for call in getattr(message, "tool_calls", ())
        ]
        texts.append(
            "".join([message.text, *calls, getattr(message, "tool_call_id", "")])
        )
    return sum(FRAME_TOKENS + _text_tokens(text) for text in texts)


def request_faults(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the faults in the order of messages that strict providers refuse; empty without any.

    System messages come first, then a user message. Each message with calls is followed at once by one result for each
    of them; there are no other results, and no empty messages.

    Examples:
        >>> request_faults([AIMessage("hello")])
        ['the first message after the system prompt is ai, not human']
    """
    body = list(messages)
    while body and isinstance(body[0], SystemMessage):
        body.pop(0)
    if not body:
        return ["there is no message beside the system prompt"]
    is_wrong = body[0].type != "human"
    faults = (
        [f"the first message after the system prompt is {body[0].type}, not human"]
        if is_wrong
        else []
    )
    waiting: list[str] = []
    for index, message in enumerate(body):
        if isinstance(message, ToolMessage):
            if message.tool_call_id in waiting:
                waiting.remove(message.tool_call_id)
            else:
                faults.append(f"tool result {message.tool_call_id!r} answers no call")
            continue
        faults += [f"calls {waiting} are not answered"] if waiting else []
        calls = (
            [*message.tool_calls, *message.invalid_tool_calls]
            if isinstance(message, AIMessage)
            else []
        )
        waiting = [str(call["id"]) for call in calls]
        if isinstance(message, SystemMessage):
            faults.append(f"message {index} is a late system message")
        elif not waiting and _is_empty(message):
            faults.append(f"message {index} is empty")
    return [*faults, f"calls {waiting} are not answered"] if waiting else faults


def _is_empty(message: BaseMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else []
    is_text = all(
        isinstance(block, str) or block.get("type") == "text" for block in blocks
    )
    return (
        is_text
        and not message.text.strip()
        and not message.additional_kwargs.get("audio")
    )


@lru_cache(maxsize=4_096)
def _text_tokens(text: str) -> int:
    return sum(1 for _ in PIECE.finditer(text))
