"""A summarizer that is good and the same for everybody: it keeps the key sentences, as many as its answer can hold."""

from __future__ import annotations

import time
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import exact
from arena_parts.desk import Desk, Summary
from arena_parts.extract import summary_of
from arena_parts.provider import MEDIA_INPUTS, SHARE_OF_WINDOW, InvalidRequestError, TooLargeError, pairing_fault
from arena_parts.sizes import parts_of, total_tokens


class FakeSummarizer(BaseChatModel):
    desk: Any
    window: int
    max_tokens: int
    seconds: float = 0.0
    tokenizer_family: str = "openai"
    model_name: str = "arena-summarizer"

    def __init__(self, desk: Desk, *, window: int, seconds: float) -> None:
        longest = window // SHARE_OF_WINDOW
        profile = {"max_input_tokens": window, "max_output_tokens": longest, **MEDIA_INPUTS}
        super().__init__(desk=desk, window=window, max_tokens=longest, seconds=seconds, profile=profile)

    @property
    def _llm_type(self) -> str:
        return "arena-summarizer"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002  # the base class passes it
        run_manager: Any = None,  # noqa: ARG002  # same
        **kwargs: Any,
    ) -> ChatResult:
        with self.desk.summarizer.spent():
            text = self._summary(messages, kwargs)
        time.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    def _summary(self, messages: list[BaseMessage], options: dict[str, Any]) -> str:
        parts = parts_of(messages, [])
        tokens, limit = total_tokens(parts), self.window - self.max_tokens
        fault = pairing_fault([m for m in messages if m.type != "system"])
        if fault or tokens > limit:
            self.desk.summaries.append(Summary(tokens=0, output_tokens=0, fault=fault or "overflow"))
            raise InvalidRequestError(f"400 INVALID_ARGUMENT. {fault}") if fault else TooLargeError(tokens, limit)
        summary = summary_of(parts, min(self.max_tokens, int(options.get("max_tokens", self.max_tokens))))
        self.desk.summaries.append(Summary(tokens=tokens, output_tokens=exact.text_tokens(summary)))
        return summary
