"""A strict provider: exact sizes, an output reserve, pairing rules, cached prefixes; it answers from the script."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

import exact
from arena_parts.desk import Desk, Sent, Summary
from arena_parts.extract import summary_of
from arena_parts.sizes import Part, common_tokens, is_empty, parts_of, total_tokens

CACHE_BLOCK_TOKENS = 128  # OpenAI caches prefixes in steps of this size
CACHE_MIN_TOKENS = 1_024  # and from this size on
SHARE_OF_WINDOW = 16  # the longest summary is a sixteenth of the window, for every manager
SUMMARY_ASKED = re.compile(r"\bsummary\b[\s\S]*at most [\d,]+ tokens")
SHOWN_CHARS = 2_000
"""A user message that alone is over the limit may be cut, but its beginning has to be there."""

MEDIA_INPUTS = dict.fromkeys(("image_inputs", "pdf_inputs", "image_tool_message", "pdf_tool_message"), True)


class RefusedError(Exception):
    """The provider refused the request."""


class TooLargeError(RefusedError, ContextOverflowError):
    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"400 INVALID_ARGUMENT. The input token count ({tokens}) exceeds the maximum number of tokens allowed "
            f"({limit})."
        )


class InvalidRequestError(RefusedError):
    """The order or pairing of the messages is refused."""


class FakeProvider(BaseChatModel):
    desk: Any
    window: int
    max_tokens: int
    seconds: float = 0.0
    tokenizer_family: str = "openai"  # what the class of a real OpenAI model would imply
    model_name: str = "arena"

    def __init__(self, desk: Desk, *, window: int, max_tokens: int, seconds: float) -> None:
        profile = {"max_input_tokens": window, "max_output_tokens": max_tokens, "tool_calling": True, **MEDIA_INPUTS}
        super().__init__(desk=desk, window=window, max_tokens=max_tokens, seconds=seconds, profile=profile)

    @property
    def _llm_type(self) -> str:
        return "arena"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_provider": "arena"}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        kwargs.pop("tool_choice", None)
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002  # the base class passes it
        run_manager: Any = None,  # noqa: ARG002  # same
        **kwargs: Any,
    ) -> ChatResult:
        tools = kwargs.get("tools") or []
        if SUMMARY_ASKED.search(messages[-1].text):
            with self.desk.summarizer.spent():
                answer = self._summary(messages, tools)
            time.sleep(self.seconds)
            return ChatResult(generations=[ChatGeneration(message=answer)])
        with self.desk.provider.spent():
            answer = self._answer(messages, tools)
            self.desk.books.answered(messages, kwargs, answer)
            time.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _summary(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        """The answer of the agent's model as its own summarizer; the script does not move on."""
        parts = parts_of(messages, tools)
        tokens, limit = total_tokens(parts), self.window - self.max_tokens
        if tokens > limit:
            self.desk.summaries.append(Summary(tokens=0, output_tokens=0, fault="overflow"))
            raise TooLargeError(tokens, limit)
        cached, text = cached_tokens(self.desk, parts), summary_of(parts, self.window // SHARE_OF_WINDOW)
        output = exact.text_tokens(text)
        self.desk.summaries.append(Summary(tokens=tokens, output_tokens=output, cached_tokens=cached))
        return AIMessage(text)

    def _answer(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        desk: Desk = self.desk
        at = {"turn": desk.turn, "step": desk.step}
        if fault := fault_of(messages):
            desk.sent.append(Sent(**at, outcome="invalid", fault=fault))
            raise InvalidRequestError(f"400 INVALID_ARGUMENT. {fault}")
        parts = parts_of(messages, tools)
        tokens, limit = total_tokens(parts), self.window - self.max_tokens
        if tokens > limit:
            desk.sent.append(Sent(**at, outcome="overflow", tokens=tokens))
            raise TooLargeError(tokens, limit)
        shared = common_tokens(desk.previous, parts)
        cached = cached_tokens(desk, parts)
        stable = shared / total_tokens(desk.previous) if desk.previous else None
        seen = _seen(desk, parts, limit)
        answer = desk.answer()
        output = total_tokens(parts_of([answer], [])[1:]) - exact.MESSAGE_TOKENS
        desk.sent.append(
            Sent(
                **at,
                outcome="answered",
                tokens=tokens,
                cached_tokens=cached,
                output_tokens=output,
                stable=stable,
                **seen,
            )
        )
        desk.previous = parts
        usage = {
            "input_tokens": tokens, "output_tokens": output, "total_tokens": tokens + output,
            "input_token_details": {"cache_read": cached},
        }  # fmt: skip
        metadata = {"model_provider": "arena", "model_name": self.model_name, "finish_reason": "stop"}
        return answer.model_copy(update={"usage_metadata": usage, "response_metadata": metadata})


def cached_tokens(desk: Desk, parts: Sequence[Part]) -> int:
    """The part of a request that is read from the cache of the last answered one."""
    shared = common_tokens(desk.previous, parts)
    return shared // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS if shared >= CACHE_MIN_TOKENS else 0


def _seen(desk: Desk, parts: Sequence[Part], limit: int) -> dict[str, Any]:
    text = "\n".join(part.text for part in parts)
    codes, rules = desk.stated_codes(), desk.rules()
    asked = parts_of([_user(desk)], [])[1]
    wanted = asked.text if asked.tokens < limit - parts[0].tokens else asked.text[:SHOWN_CHARS]
    return {
        "has_user": any(part.role == "human" and wanted in part.text for part in parts),
        "has_rules": all(rule in text for rule in rules) if rules else None,
        "facts": sum(code in text for code in codes) / len(codes) if codes else None,
    }


def _user(desk: Desk) -> BaseMessage:
    return SystemMessage(desk.now.user)


def fault_of(messages: Sequence[BaseMessage]) -> str:
    """Why a strict provider refuses the order of the messages; empty when it does not."""
    body = list(messages)
    while body and isinstance(body[0], SystemMessage):
        body.pop(0)
    if not body:
        return "there is no message besides system messages"
    if body[0].type != "human":
        return f"the first message is {body[0].type}, not human"
    if body[-1].type == "ai":
        return "the last message is ai"
    for message in body:
        if message.type == "system" or (is_empty(message) and not isinstance(message, ToolMessage)):
            return f"a {message.type} message is {'late' if message.type == 'system' else 'empty'}"
    return pairing_fault(body)


def pairing_fault(body: Sequence[BaseMessage]) -> str:
    """Each calling message is followed at once by one result per call; there is no other result."""
    open_ids: set[str] = set()
    for message in body:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_ids:
                return f"result {message.tool_call_id} answers no call before it"
            open_ids.discard(message.tool_call_id)
            continue
        if open_ids:
            return f"calls {sorted(open_ids)} have no result"
        if isinstance(message, AIMessage):
            open_ids = {str(call["id"]) for call in message.tool_calls}
    return f"calls {sorted(open_ids)} have no result" if open_ids else ""
