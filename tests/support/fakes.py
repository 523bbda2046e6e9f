"""A chat model that behaves as a policy says, and refuses what a strict provider would refuse."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from support.oracle import exact_count, message_tokens, pairing_problem

__all__ = [
    "InvalidRequestError",
    "ScriptedChatModel",
    "ScriptedRequest",
    "SdkError",
    "core_overflow",
    "digest",
    "echo",
    "exact_count",
    "llama_overflow",
    "openai_overflow",
    "pairing_problem",
    "script",
    "tool_loop",
]

STREAM_CHUNK_CHARS = 24  # several chunks even for a short answer
QUOTE_CHARS = 60  # enough of a text to recognise it

Tools = list[dict[str, Any]]
Policy = Callable[[list[BaseMessage], Tools], AIMessage]
Overflow = Callable[[int, int], Exception]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedRequest:
    """One request as the model saw it."""

    messages: tuple[BaseMessage, ...]
    tools: tuple[dict[str, Any], ...]
    tokens: int
    """Exact input tokens."""

    refused: bool
    """True when the request got an exception instead of an answer."""


class InvalidRequestError(Exception):
    """The request breaks a rule that strict providers enforce."""


class SdkError(Exception):
    """Has the shape of a provider SDK's status error: `status_code`, `code`, `type`, `body`."""

    def __init__(self, message: str, *, status_code: int, code: str | None = None, body: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status_code
        self.code = code
        self.body = body


def core_overflow(tokens: int, limit: int) -> Exception:
    """Build LangChain's own overflow error with Gemini's wording."""
    text = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
    return ContextOverflowError(text)


def openai_overflow(tokens: int, limit: int) -> Exception:
    """Build an overflow error that only `code` and the text identify, as the OpenAI SDK raises it."""
    text = f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."
    body = {"message": text, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return SdkError(f"Error code: 400 - {body}", status_code=400, code="context_length_exceeded", body=body)


def llama_overflow(tokens: int, limit: int) -> Exception:
    """Build an overflow error whose numbers stand in `body`, as llama.cpp replies."""
    text = f"request ({tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"
    body = {"message": text, "type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": limit}
    return SdkError(f"Error code: 400 - {body}", status_code=400, body=body)


def digest(text: str) -> str:
    """Return a short fingerprint of `text`, so that an answer can prove what it saw."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def echo(messages: list[BaseMessage], tools: Tools) -> AIMessage:
    """Answer with the fingerprint and the beginning of the last user message."""
    text = next((message.text for message in reversed(messages) if isinstance(message, HumanMessage)), "")
    return AIMessage(f"seen {digest(text)}: {text[:QUOTE_CHARS]}")


def script(*answers: AIMessage | str) -> Policy:
    """Play the answers in order, the last one for ever."""
    queue = list(answers)

    def play(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        return AIMessage(answer) if isinstance(answer, str) else answer

    return play


def tool_loop(*, steps: int, parallel: int = 1, args: dict[str, Any] | None = None) -> Policy:
    """Call the first tool in `steps` steps of each turn, `parallel` calls at a time, then echo the user message.

    It counts the steps that it can see since the last user message: a lost step is repeated.
    """

    def decide(messages: list[BaseMessage], tools: Tools) -> AIMessage:
        turn = _current_turn(messages)
        done = sum(isinstance(message, AIMessage) and bool(message.tool_calls) for message in turn)
        if done >= steps or not tools:
            return echo(messages, tools)
        name = tools[0]["function"]["name"]
        calls = [{"name": name, "args": args or {}, "id": f"call-{len(messages)}-{i}"} for i in range(parallel)]
        return AIMessage("", tool_calls=calls)

    return decide


class ScriptedChatModel(BaseChatModel):
    """A deterministic chat model with real limits, exact usage and strict rules; every request is recorded."""

    policy: Policy = echo
    input_limit: int | None = None
    """Largest input in tokens under `counter`; a larger one raises what `overflow` builds."""

    overflow: Overflow = core_overflow
    counter: Callable[..., int] = exact_count
    strict: bool = True
    """Refuse requests whose calls and results do not pair up."""

    faults: list[Exception] = Field(default_factory=list)
    """Raised one per request, first to last, before anything else is looked at."""

    requests: list[ScriptedRequest] = Field(default_factory=list)
    model_name: str = "scripted"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def largest_tokens(self) -> int:
        """Size of the largest request that was answered."""
        return max((request.tokens for request in self.requests if not request.refused), default=0)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tool definitions in the OpenAI form."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs.get("tools") or []))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for message in _chunks(self._answer(messages, kwargs.get("tools") or [])):
            chunk = ChatGenerationChunk(message=message)
            if run_manager and message.text:
                run_manager.on_llm_new_token(message.text, chunk=chunk)
            yield chunk

    def _answer(self, messages: list[BaseMessage], tools: Tools) -> AIMessage:
        tokens = self.counter(messages, tools=tools)
        problem = self._refusal(messages, tokens)
        seen = tuple(message.model_copy(deep=True) for message in messages)
        self.requests.append(
            ScriptedRequest(messages=seen, tools=tuple(tools), tokens=tokens, refused=problem is not None)
        )
        if problem is not None:
            raise problem
        return self._metered(self.policy(list(seen), tools), tokens)

    def _refusal(self, messages: list[BaseMessage], tokens: int) -> Exception | None:
        if self.faults:
            return self.faults.pop(0)
        if self.strict and (problem := pairing_problem(messages)):
            return InvalidRequestError(problem)
        if self.input_limit is not None and tokens > self.input_limit:
            return self.overflow(tokens, self.input_limit)
        return None

    def _metered(self, answer: AIMessage, tokens: int) -> AIMessage:
        output = max(1, message_tokens(answer))
        usage = UsageMetadata(input_tokens=tokens, output_tokens=output, total_tokens=tokens + output)
        fresh = {"id": None, "usage_metadata": usage, "response_metadata": {"model_name": self.model_name}}
        return answer.model_copy(deep=True, update=fresh)


def _current_turn(messages: list[BaseMessage]) -> list[BaseMessage]:
    start = max((i for i, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1)
    return messages[start + 1 :]


def _chunks(answer: AIMessage) -> Iterator[AIMessageChunk]:
    text = answer.content if isinstance(answer.content, str) else ""
    for start in range(0, len(text), STREAM_CHUNK_CHARS):
        yield AIMessageChunk(text[start : start + STREAM_CHUNK_CHARS])
    yield AIMessageChunk(
        content="" if text else answer.content,
        tool_calls=answer.tool_calls,
        invalid_tool_calls=answer.invalid_tool_calls,
        additional_kwargs=answer.additional_kwargs,
        usage_metadata=answer.usage_metadata,
        response_metadata=answer.response_metadata,
        chunk_position="last",
    )
