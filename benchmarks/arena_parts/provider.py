"""A strict provider: exact sizes, an output reserve, pairing rules, cached prefixes; it answers from the script.

Its summarizer is good and the same for everybody: it keeps the key sentences, as many as its answer can hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

import exact
from arena_parts.script import KEY_SENTENCE, Scenario, Turn

ASKED_TOKENS = re.compile(r"at most ([\d,]+) tokens")
KEY_SHARE = 0.8  # of the answer goes to key sentences at most
FILLED_SHARE = (
    0.6  # of the answer is used in any case: models write more than the facts
)
SENTENCE = re.compile(r"[^.\n。]{20,200}[.。]")
CACHE_BLOCK_TOKENS = 128  # OpenAI caches prefixes in steps of this size
CACHE_MIN_TOKENS = 1_024  # and from this size on
SHARE_OF_WINDOW = (
    16  # the longest summary is a sixteenth of the window, for every manager
)
SUMMARY_ASKED = re.compile(r"\bsummary\b[\s\S]*at most [\d,]+ tokens")
SHOWN_CHARS = 2_000
"""A user message that alone is over the limit may be cut, but its beginning has to be there."""

MEDIA_INPUTS = dict.fromkeys(
    ("image_inputs", "pdf_inputs", "image_tool_message", "pdf_tool_message"), True
)


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
    tokenizer_family: str = (
        "openai"  # what the class of a real OpenAI model would imply
    )
    model_name: str = "arena"

    def __init__(
        self, desk: Desk, *, window: int, max_tokens: int, seconds: float
    ) -> None:
        profile = {
            "max_input_tokens": window,
            "max_output_tokens": max_tokens,
            "tool_calling": True,
            **MEDIA_INPUTS,
        }
        super().__init__(
            desk=desk,
            window=window,
            max_tokens=max_tokens,
            seconds=seconds,
            profile=profile,
        )

    @property
    def _llm_type(self) -> str:
        return "arena"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_provider": "arena"}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        kwargs.pop("tool_choice", None)
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs
        )

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
            time.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _summary(
        self, messages: list[BaseMessage], tools: list[dict[str, Any]]
    ) -> AIMessage:
        """The answer of the agent's model as its own summarizer; the script does not move on."""
        parts = parts_of(messages, tools)
        tokens, limit = total_tokens(parts), self.window - self.max_tokens
        if tokens > limit:
            self.desk.summaries.append(
                Summary(tokens=0, output_tokens=0, fault="overflow")
            )
            raise TooLargeError(tokens, limit)
        cached, text = (
            cached_tokens(self.desk, parts),
            summary_of(parts, self.window // SHARE_OF_WINDOW),
        )
        output = exact.text_tokens(text)
        self.desk.summaries.append(
            Summary(tokens=tokens, output_tokens=output, cached_tokens=cached)
        )
        return AIMessage(text)

    def _answer(
        self, messages: list[BaseMessage], tools: list[dict[str, Any]]
    ) -> AIMessage:
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
        metadata = {
            "model_provider": "arena",
            "model_name": self.model_name,
            "finish_reason": "stop",
        }
        return answer.model_copy(
            update={"usage_metadata": usage, "response_metadata": metadata}
        )


def cached_tokens(desk: Desk, parts: Sequence[Part]) -> int:
    """The part of a request that is read from the cache of the last answered one."""
    shared = common_tokens(desk.previous, parts)
    return (
        shared // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS
        if shared >= CACHE_MIN_TOKENS
        else 0
    )


def _seen(desk: Desk, parts: Sequence[Part], limit: int) -> dict[str, Any]:
    text = "\n".join(part.text for part in parts)
    codes, rules = desk.stated_codes(), desk.rules()
    asked = parts_of([_user(desk)], [])[1]
    wanted = (
        asked.text
        if asked.tokens < limit - parts[0].tokens
        else asked.text[:SHOWN_CHARS]
    )
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
        if message.type == "system" or (
            is_empty(message) and not isinstance(message, ToolMessage)
        ):
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


# ---- what the provider knows: the script's place, and every request with what it showed ----------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request."""

    turn: int
    step: int
    outcome: str
    """answered, overflow or invalid"""

    fault: str = ""
    tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    stable: float | None = None
    """Share of the answered request before it that is a prefix of this one."""

    has_user: bool = True
    has_rules: bool | None = None
    """None while no rule was stated."""

    facts: float | None = None
    """Share of the facts stated so far that it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One call of the summarizer."""

    tokens: int
    output_tokens: int
    cached_tokens: int = 0
    fault: str = ""


@dataclass(slots=True)
class Outside:
    """Time that is not the manager's: the provider, the tools and the summarizer's own work."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def spent(self) -> Iterator[None]:
        began, cpu_began = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.cpu_seconds += time.thread_time() - cpu_began


@dataclass(slots=True)
class Desk:
    """The place in the script is kept here, never read from what a manager shows."""

    scenario: Scenario
    turn: int = 0
    step: int = 0
    sent: list[Sent] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    previous: tuple[Part, ...] = ()
    provider: Outside = field(default_factory=Outside)
    summarizer: Outside = field(default_factory=Outside)

    @property
    def now(self) -> Turn:
        return self.scenario.turns[self.turn]

    def begin(self, turn: int) -> None:
        self.turn, self.step = turn, 0

    def answer(self) -> AIMessage:
        """The next answer of the script; a turn that is over stays over."""
        if self.step >= len(self.now.steps):
            return AIMessage(self.now.answer)
        calls = [call.made() for call in self.now.steps[self.step]]
        self.step += 1
        return AIMessage(
            "" if self.step % 2 else "I will look that up.", tool_calls=calls
        )

    def rules(self) -> list[str]:
        return [turn.rule for turn in self.scenario.turns[: self.turn + 1] if turn.rule]

    def stated_codes(self) -> list[str]:
        return [
            fact.code
            for fact in self.scenario.facts
            if (fact.turn, fact.step) < (self.turn, self.step)
        ]


# ---- sizes, and what two requests share --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A message, or the tools: what is compared with the same part of another request."""

    role: str
    text: str
    tokens: int


def parts_of(
    messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]
) -> tuple[Part, ...]:
    """The request in the order in which providers read it: tools first."""
    definitions = json.dumps(list(tools), ensure_ascii=False)
    first = Part("tools", definitions, exact.tools_tokens(tools) + exact.REPLY_TOKENS)
    return (first, *map(_part, messages))


def total_tokens(parts: Sequence[Part]) -> int:
    return sum(part.tokens for part in parts)


def common_tokens(old: Sequence[Part], new: Sequence[Part]) -> int:
    """Tokens of the common prefix: what a prompt cache can reuse."""
    tokens = 0
    for before, after in zip(old, new, strict=False):
        if before.role != after.role or (
            before.role == "tools" and before.text != after.text
        ):
            return tokens
        if before.text != after.text:
            shared = os.path.commonprefix([before.text, after.text])  # noqa: RUF071  # by character is meant
            return tokens + min(exact.text_tokens(shared), before.tokens)
        tokens += before.tokens
    return tokens


def is_empty(message: BaseMessage) -> bool:
    calls = isinstance(message, AIMessage) and message.tool_calls
    return not calls and not any(
        block[0].strip() or block[1] for block in exact.content_blocks(message.content)
    )


def _part(message: BaseMessage) -> Part:
    blocks = list(exact.content_blocks(message.content))
    text = "\n".join(text for text, _ in blocks)
    if isinstance(message, AIMessage) and message.tool_calls:
        text += json.dumps(
            [[c["name"], c["args"], c["id"]] for c in message.tool_calls],
            ensure_ascii=False,
        )
    if isinstance(message, ToolMessage):
        text = f"{message.tool_call_id}\n{text}"
    media = sum(tokens for _, tokens in blocks)
    return Part(
        message.type, text, exact.text_tokens(text) + media + exact.MESSAGE_TOKENS
    )


# ---- the summarizer ------------------------------------------------------------------------------------------------


class FakeSummarizer(BaseChatModel):
    desk: Any
    window: int
    max_tokens: int
    seconds: float = 0.0
    tokenizer_family: str = "openai"
    model_name: str = "arena-summarizer"

    def __init__(self, desk: Desk, *, window: int, seconds: float) -> None:
        longest = window // SHARE_OF_WINDOW
        profile = {
            "max_input_tokens": window,
            "max_output_tokens": longest,
            **MEDIA_INPUTS,
        }
        super().__init__(
            desk=desk,
            window=window,
            max_tokens=longest,
            seconds=seconds,
            profile=profile,
        )

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
            self.desk.summaries.append(
                Summary(tokens=0, output_tokens=0, fault=fault or "overflow")
            )
            raise (
                InvalidRequestError(f"400 INVALID_ARGUMENT. {fault}")
                if fault
                else TooLargeError(tokens, limit)
            )
        summary = summary_of(
            parts, min(self.max_tokens, int(options.get("max_tokens", self.max_tokens)))
        )
        self.desk.summaries.append(
            Summary(tokens=tokens, output_tokens=exact.text_tokens(summary))
        )
        return summary


def summary_of(parts: Sequence[Part], longest_tokens: int) -> str:
    """The summary of a request, as long as it asks for."""
    text = "\n".join(part.text for part in parts[1:])
    asked = [int(found.replace(",", "")) for found in ASKED_TOKENS.findall(text)]
    return extract(text, min([longest_tokens, *asked]))


def extract(text: str, max_tokens: int) -> str:
    """Key sentences, chosen by their digest where they do not all fit so that no place is favoured, then others."""
    keys = list(dict.fromkeys(KEY_SENTENCE.findall(text)))
    kept, used = set(), 0
    for sentence in sorted(
        keys,
        key=lambda s: (
            not s.startswith("Standing"),
            hashlib.sha256(s.encode()).digest(),
        ),
    ):
        used += exact.text_tokens(sentence) + 1
        if used > KEY_SHARE * max_tokens:
            break
        kept.add(sentence)
    lines = [sentence for sentence in keys if sentence in kept]
    used = sum(exact.text_tokens(line) + 1 for line in lines)
    for found in SENTENCE.finditer(text):
        size = exact.text_tokens(found.group()) + 1
        if used + size > FILLED_SHARE * max_tokens:
            break
        if not KEY_SENTENCE.search(found.group()):
            lines.append(found.group().strip())
            used += size
    return "\n".join(lines) or "Nothing of note."
