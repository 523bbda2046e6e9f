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
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import exact
from arena_scenarios import KEY_SENTENCE, SHARE_OF_WINDOW, Scenario, Turn
from common import usage_of
from langchain_ctxwin.testing import ScriptedChatModel, request_faults

ASKED_TOKENS = re.compile(r"at most ([\d,]+) tokens")
KEY_SHARE = 0.8  # of the answer goes to key sentences at most
FILLED_SHARE = (
    0.6  # of the answer is used in any case: models write more than the facts
)
SENTENCE = re.compile(r"[^.\n。]{20,200}[.。]")
CACHE_BLOCK_TOKENS = 128  # OpenAI caches prefixes in steps of this size
CACHE_MIN_TOKENS = 1_024  # and from this size on
SUMMARY_ASKED = re.compile(r"\bsummary\b[\s\S]*at most [\d,]+ tokens")
SHOWN_CHARS = 2_000
"""A user message that alone is over the limit may be cut, but its beginning has to be there."""


class FakeModel(ScriptedChatModel):
    """The agent's model, or a summarizer of its own window whose answers are short."""

    desk: Any
    seconds: float
    is_summarizer: bool = False
    tokenizer_family: str = "openai"
    """What the class of a real OpenAI model would imply."""

    model_name: str = "arena"

    def _generate(
        self, messages: list[BaseMessage], *_: Any, **options: Any
    ) -> ChatResult:
        tools = options.get("tools") or []
        if self.is_summarizer or SUMMARY_ASKED.search(messages[-1].text):
            longest = self.window // SHARE_OF_WINDOW
            if self.is_summarizer:
                longest = min(longest, int(options.get("max_tokens", longest)))
            answer = self._summary(messages, tools, longest)
            time.sleep(self.seconds)
        else:
            with self.desk.provider():
                answer = self._answer(messages, tools)
                time.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _checked(
        self, note: Summary, faults: list[str], parts: Sequence[Part]
    ) -> Sequence[Part]:
        """Note the size of a request, unless it is invalid or too large."""
        note.is_invalid = bool(faults)
        if faults:
            raise ValueError(f"400 INVALID_ARGUMENT. {faults[0]}")
        tokens, limit = total_tokens(parts), self.window - self.max_tokens
        if tokens > limit:
            raise ContextOverflowError(
                f"400 INVALID_ARGUMENT. The input token count ({tokens}) exceeds the maximum number of tokens allowed "
                f"({limit})."
            )
        note.tokens = tokens
        note.cached_tokens = cached_tokens(self.desk, parts)
        return parts

    def _summary(
        self, messages: list[BaseMessage], tools: list[Any], longest_tokens: int
    ) -> AIMessage:
        """The script does not move on, also where the agent's model is its own summarizer."""
        summary = Summary()
        self.desk.summaries.append(summary)
        faults = [fault for fault in request_faults(messages) if "call" in fault]
        parts = self._checked(summary, faults, parts_of(messages, tools))
        text = summary_of(parts, longest_tokens)
        summary.output_tokens = exact.text_tokens(text)
        return AIMessage(text)

    def _answer(self, messages: list[BaseMessage], tools: list[Any]) -> AIMessage:
        desk: Desk = self.desk
        sent = Sent(turn=desk.turn, step=desk.step)
        desk.sent.append(sent)
        faults = request_faults(messages)
        if messages[-1].type == "ai":
            faults.append("the last message is ai")
        parts = self._checked(sent, faults, parts_of(messages, tools))
        _look(sent, desk, parts, self.window - self.max_tokens)
        answer = desk.answer()
        output = total_tokens(parts_of([answer], [])[1:]) - exact.MESSAGE_TOKENS
        sent.is_answered, sent.output_tokens = True, output
        if desk.previous:
            shared = common_tokens(desk.previous, parts)
            sent.stable = shared / total_tokens(desk.previous)
        desk.previous = parts
        usage = usage_of(sent.tokens, output)
        usage["input_token_details"] = {"cache_read": sent.cached_tokens}
        metadata = {
            # as LangChain names the provider of this class
            "model_provider": "fakemodel",
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


def _look(sent: Sent, desk: Desk, parts: Sequence[Part], limit: int) -> None:
    """Note what a request shows of the question, the rules and the facts so far."""
    text = "\n".join(part.text for part in parts)
    asked = parts_of([HumanMessage(desk.now.user)], [])[1]
    wanted = asked.text
    if asked.tokens >= limit - parts[0].tokens:
        wanted = wanted[:SHOWN_CHARS]
    sent.has_user = any(part.role == "human" and wanted in part.text for part in parts)
    if rules := desk.rules():
        sent.has_rules = all(rule in text for rule in rules)
    if codes := desk.stated_codes():
        sent.facts = sum(code in text for code in codes) / len(codes)


# ---- what the provider knows: the script's place, and every request with what it showed ----------------------------


@dataclass(slots=True, kw_only=True)
class Summary:
    """One call for a summary."""

    tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    is_invalid: bool = False


@dataclass(slots=True, kw_only=True)
class Sent(Summary):
    """One request."""

    turn: int
    step: int
    is_answered: bool = False
    stable: float | None = None
    """Share of the answered request before it that is a prefix of this one."""

    has_user: bool = True
    has_rules: bool | None = None
    """None while no rule was stated."""

    facts: float | None = None
    """Share of the facts stated so far that it shows."""


@dataclass(slots=True)
class Desk:
    """The place in the script is kept here, never read from what a manager shows."""

    scenario: Scenario
    turn: int = 0
    step: int = 0
    sent: list[Sent] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    previous: tuple[Part, ...] = ()
    provider_seconds: float = 0.0
    """Time that is not the manager's."""

    @contextmanager
    def provider(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.provider_seconds += time.perf_counter() - began

    @property
    def now(self) -> Turn:
        return self.scenario.turns[self.turn]

    def answer(self) -> AIMessage:
        """The next answer of the script; a turn that is over stays over."""
        if self.step >= len(self.now.steps):
            return AIMessage(self.now.answer)
        calls = self.now.steps[self.step]
        self.step += 1
        text = "" if self.step % 2 else "I will look that up."
        return AIMessage(text, tool_calls=[*map(dict, calls)])

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
