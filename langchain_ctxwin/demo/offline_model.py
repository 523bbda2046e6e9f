"""A chat model without a network: it decides from its input alone and refuses what exceeds its window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.demo import ruler
from langchain_ctxwin.demo.sight import EVIDENCE, Sight, digest, look, write_note
from langchain_ctxwin.demo.skills import Move, next_move

CHUNK_CHARS = 24
"""Characters of one streamed chunk: several even for a short answer."""


class RequestTooLargeError(Exception):
    """The refusal of a provider whose window a request exceeds."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.status_code = 400
        self.code = "context_length_exceeded"


class OfflineChatModel(BaseChatModel):
    """Explores a folder; deterministic, stateless, with a joint window that it enforces by its own count.

    Example:
        ```python
        model = OfflineChatModel(context_window=8192, max_tokens=1024).bind_tools(tools)
        ```
    """

    model: str = "offline-explorer"
    context_window: int
    """Tokens that input and output share."""

    max_tokens: int
    """Tokens asked for the answer; they must fit beside the input."""

    @property
    def limits(self) -> ModelLimits:
        """What the model states about itself."""
        return ModelLimits(self.context_window, max_output_tokens=self.max_tokens, source="profile")

    @property
    def _llm_type(self) -> str:
        return "offline-explorer"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tool definitions in the OpenAI form."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002  # the base class's signature
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002  # same
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._answer(messages, **kwargs)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002  # the base class's signature
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for message in _chunks(self._answer(messages, **kwargs)):
            chunk = ChatGenerationChunk(message=message)
            if run_manager and message.text:
                run_manager.on_llm_new_token(message.text, chunk=chunk)
            yield chunk

    def _answer(
        self, messages: Sequence[BaseMessage], *, tools: Any = (), max_tokens: int | None = None, **_: Any
    ) -> AIMessage:
        tokens, requested = ruler.request_tokens(messages, tools or ()), max_tokens or self.max_tokens
        if tokens + requested > self.context_window:
            raise RequestTooLargeError(
                f"This model's maximum context length is {self.context_window} tokens. However, you requested "
                f"{tokens + requested} tokens ({tokens} in the messages, {requested} in the completion). "
                "Please reduce the length of the messages or completion."
            )
        answer = self._message(messages)
        output = ruler.message_tokens(answer)
        answer.usage_metadata = UsageMetadata(input_tokens=tokens, output_tokens=output, total_tokens=tokens + output)
        return answer

    def _message(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Decide, and write the decision as a message; call ids follow from what was seen."""
        sight = look(messages)
        move = self._next_move(sight, messages)
        if not move.calls:
            return AIMessage(_answer_text(move, sight.question, sight.rule_word))
        seen = digest("\n".join([*(message.text for message in messages[-len(move.calls) :]), json.dumps(move.note)]))
        named = enumerate(move.calls)
        calls = [{"name": name, "args": args, "id": f"call-{seen}-{number}"} for number, (name, args) in named]
        return AIMessage(" ".join(filter(None, [move.text, write_note(move.note)])), tool_calls=calls)

    def _next_move(self, sight: Sight, messages: Sequence[BaseMessage]) -> Move:  # noqa: ARG002  # for other scenarios
        return next_move(sight)


def _answer_text(move: Move, question: str, rule_word: str) -> str:
    facts = {"question": digest(question) if question else None, **move.facts}
    lines = [move.text, EVIDENCE + json.dumps(facts, ensure_ascii=False)]
    return "\n".join([*lines, rule_word] if rule_word else [*lines, "(I see no rule about how answers end.)"])


def _chunks(answer: AIMessage) -> Iterator[AIMessageChunk]:
    for start in range(0, len(answer.text), CHUNK_CHARS):
        yield AIMessageChunk(content=answer.text[start : start + CHUNK_CHARS])
    yield AIMessageChunk(
        content="", tool_calls=answer.tool_calls, usage_metadata=answer.usage_metadata, chunk_position="last"
    )
