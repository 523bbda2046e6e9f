"""Replays: the requests of recorded conversations under a policy, and what they show of what was needed; no model runs.

recorded answer  --history before it-->  policy  --request-->  counted, billed, searched for what the answer needed
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from langchain_ctxwin.agent.nodes import ContextNodes
from langchain_ctxwin.config import PRESETS, ContextConfig
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.provider_blocks import text_of
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.counting import VocabularyCounter
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import BudgetExceededError, ConfigError
from langchain_ctxwin.replay.reading import Conversation, Tell, short
from langchain_ctxwin.util.log import NAME

CACHED_PRICE = 0.1
"""What a token costs that the provider has in its cache, beside one that it has not (Anthropic, OpenAI, Gemini)."""

RESERVE_SHARE = 0.25  # of the window, for the answer, where nothing else is said: as everywhere in this package
# sufficiency that may be given up for a lower bill: one value in a hundred
TOLERATED_LOSS = 0.01

VOCABULARY, FAMILY = "o200k_base", "openai"
"""What requests are counted with: exactly with the extra `exact`, else by the estimator of the same family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """Sums over the requests of some conversations under one policy; results can be added."""

    policy: str
    window: int
    conversations: int = 0
    requests: int = 0
    sent: int = 0
    """Requests that fit, and were sent; the others are neither billed nor show what their calls needed."""

    over_limit: int = 0
    """Requests that would have been refused as too large; by ours they are sent again smaller."""

    compactions: int = 0
    """Requests that did not begin with the whole one before, and cost what is cached behind the first change."""

    needed: int = 0
    shown: int = 0
    """Values in the arguments of calls that had been seen before, once something has to leave; and those of them that
    the request still shows. A request that could not be sent shows none."""

    billed_tokens: float = 0.0
    """What the input costs in uncached tokens when the prefix shared with the request before is cached."""

    def __add__(self, other: ReplayResult) -> ReplayResult:
        """Return the sums of both."""
        sums: dict[str, Any] = {
            one.name: getattr(self, one.name) + getattr(other, one.name)
            for one in fields(self)
            if one.name not in {"policy", "window"}
        }
        return replace(self, **sums)

    @property
    def sufficiency(self) -> float | None:
        """Share of what the next call needed that its request shows; None when nothing ever had to leave."""
        return self.shown / self.needed if self.needed else None

    @property
    def unsent(self) -> int:
        """Requests of which nothing that fits was left: the agent stops there."""
        return self.requests - self.sent

    @property
    def billed_per_request(self) -> float:
        """Input tokens that a request that was sent costs on average."""
        return self.billed_tokens / max(1, self.sent)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values."""
        derived = ("unsent", "sufficiency", "billed_per_request")
        return asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request of a replay, as it is sent, or as it was when nothing could make it fit."""

    request: list[AnyMessage]
    """Empty when not even the smallest one could be built."""

    fits: bool
    """False when it is larger than the input limit, and was not sent."""

    is_extended: bool
    """True when it begins with the whole request before it, so that no cached token is lost."""

    history: int
    """Messages of the conversation, after its leading system messages, that there were."""

    tokens: int
    cached_tokens: int
    """Its size, and the part at its beginning that the request before had too."""

    tries: int
    """Requests that were built; all but one that fits were refused as too large."""

    needed: int
    """How many values the recorded answer needed that had been seen before, once something has to leave."""

    missing: tuple[str, ...]
    """Those of them that are not in the request."""

    report: Mapping[str, Any]
    guard: Mapping[str, Any]
    """The `context_report` and `context_guard` of ours; empty for a plain policy."""


def replay(
    conversation: Conversation,
    policy: Policy,
    window: int,
    *,
    heard: Callable[[Sent], None] | None = None,
) -> ReplayResult:
    """Return what the requests of one conversation would have been.

    Args:
        conversation: the recording.
        policy: what decides about each request.
        window: context window in tokens; a quarter of it is kept for the answer.
        heard: is called with each request, also with those that could not be sent.

    Raises:
        ConfigError: the window leaves no room for input.
    """
    sums: Any = Counter(conversations=1)
    for sent in _Play(conversation, policy, window).requests():
        sums.update(
            requests=1,
            over_limit=sent.tries - sent.fits,
            needed=sent.needed,
            shown=sent.needed - len(sent.missing),
        )
        if sent.fits:
            cached = (1 - CACHED_PRICE) * sent.cached_tokens
            sums.update(
                sent=1,
                compactions=not sent.is_extended,
                billed_tokens=sent.tokens - cached,
            )
        if heard:
            heard(sent)
    return ReplayResult(policy=policy.name, window=window, **sums)


def compare(
    conversations: Iterable[Conversation],
    policies: Sequence[Policy],
    window: int,
    *,
    tell: Tell = lambda _: None,
) -> list[ReplayResult]:
    """Return the sums of all conversations, one result per policy.

    Args:
        conversations: the recordings; they are read as they are needed.
        policies: what is compared.
        window: context window in tokens.
        tell: is called with each conversation that cannot be replayed; it is left out of all results.

    Raises:
        ConfigError: the window leaves no room for input, or there are no policies.
    """
    if not policies:
        raise ConfigError("0 policies to compare: name at least one")
    for policy in policies:
        input_limit(window, policy)
    totals = [ReplayResult(policy=policy.name, window=window) for policy in policies]
    for conversation in conversations:
        try:
            played = [replay(conversation, policy, window) for policy in policies]
        except Exception as error:  # noqa: BLE001  # one odd recording must not end a comparison of thousands
            tell(failure(conversation, error))
        else:
            totals = [total + one for total, one in zip(totals, played, strict=True)]
    return totals


def recommended(results: Sequence[ReplayResult]) -> ReplayResult:
    """Return the cheapest of the results that leave no more requests unsent, and show nearly as much, as the best.

    Raises:
        ConfigError: nothing had to leave, or nothing that was needed had been seen before: all settings are as good.
    """
    fewest = min((result.unsent for result in results), default=0)
    telling = [
        result
        for result in results
        if result.unsent == fewest and result.sent and result.needed
    ]
    if not telling:
        raise ConfigError(
            "nothing to recommend by: no call needed what had to leave before it; give longer "
            "conversations or a smaller --window"
        )
    best = max(result.shown / result.needed for result in telling)
    good = [
        result
        for result in telling
        if result.shown / result.needed >= best - TOLERATED_LOSS
    ]
    return min(good, key=lambda result: result.billed_per_request)


def quiet() -> None:
    """Log nothing below errors in this process: a replay of a year would log each compaction."""
    logging.getLogger(NAME).setLevel(logging.ERROR)


def failure(conversation: Conversation, error: Exception) -> str:
    """Return the report of a conversation whose replay failed, with its place."""
    place = f"{conversation.place}: " if conversation.place else ""
    return f"{place}left out {conversation.name}: its replay failed ({type(error).__name__}: {short(error)})"


def input_limit(window: int, policy: Policy) -> int:
    """Return the tokens that a request may have in a window under a policy."""
    reserve = policy.config.output_reserve if policy.config else None
    return _limits(window).room(reserve)


def _limits(window: int) -> ModelLimits:
    return ModelLimits(
        context_window=window,
        requested_output_tokens=max(1, int(RESERVE_SHARE * window)),
    )


class _Play:
    """One conversation under one policy, whose requests are counted as their provider does."""

    def __init__(self, conversation: Conversation, policy: Policy, window: int) -> None:
        self.tools = list(conversation.tools) or None
        try:
            self.count: Callable[..., int] = VocabularyCounter(VOCABULARY)
        except ConfigError:  # the extra is not installed
            self.count = TokenEstimator(FAMILY)
        self.limit = input_limit(window, policy)
        messages, first = conversation.messages, conversation.begins
        self.system, self.rest = list(messages[:first]), list(messages[first:])
        self.sizes: dict[tuple[str | None, str], int] = {}
        self.room = self.limit - self.count(self.system, tools=self.tools)
        self.state: dict[str, Any] = {"messages": []}
        self.reply = AIMessage("")
        self.before = list[AnyMessage]()
        """The request that was sent last."""
        self.tried = list[tuple[list[AnyMessage], int]]()
        """The requests that were built for one answer, with their tokens."""
        self.plain = policy.make(max(0, self.room), self.size) if policy.make else None
        if self.plain is None:
            engine = ContextEngine(
                _limits(window), counter=TokenEstimator(FAMILY), config=policy.config
            )
            prompt = "\n\n".join(text_of(message.content) for message in self.system)
            self.nodes = ContextNodes(
                engine, system_prompt=prompt, tools=list(conversation.tools)
            )
            self.model = self.nodes.model_node(self._answer)

    def size(self, message: AnyMessage) -> int:
        key = (message.id, message.text)
        if key not in self.sizes:
            self.sizes[key] = self.count([message]) - self.count([])
        return self.sizes[key]

    def requests(self) -> Iterator[Sent]:
        """Yield the request of each answer to a user."""
        history, texts, is_asked = list[AnyMessage](), list[str](), False
        for message in self.rest:
            is_last = False
            if isinstance(message, AIMessage) and is_asked:
                has_to_leave = sum(map(self.size, history)) > self.room
                needs = needed_values(message, texts) if has_to_leave else []
                self._build(message, history)
                yield self._sent(needs)
                # of its turn
                is_last = not (message.tool_calls or message.invalid_tool_calls)
            is_asked = is_asked or isinstance(message, HumanMessage)
            history.append(message)
            texts.append(_text(message))
            self.state["messages"] = list(history)
            if is_last and self.plain is None:
                self.state |= self.nodes.maybe_summarize.invoke(self.state)

    def _build(self, reply: AIMessage, history: Sequence[AnyMessage]) -> None:
        """Build the request for an answer, again and smaller where ours is refused."""
        self.reply, self.tried = reply, []
        if self.plain:
            view = self.plain(history)
            self._count([*self.system, *view] if view else [])
            return
        state = dict(self.state)
        try:
            for node in ("budget_check", "maybe_summarize", "force_compress"):
                if node == "budget_check" or self.nodes.route_on_budget(state) == node:
                    state |= getattr(self.nodes, node).invoke(state)
            state |= self.nodes.build_messages.invoke(state)
            state |= self.model.invoke(state)
        except (BudgetExceededError, ContextOverflowError):
            pass  # nothing smaller is possible
        own = {key: state[key] for key in state if key != "llm_input_messages"}
        self.state = own | {"messages": self.state["messages"]}

    def _answer(self, request: list[AnyMessage]) -> AIMessage:
        """Answer as recorded; refuse what is too large, as a provider does."""
        tokens = self._count(request)
        if tokens > self.limit:
            raise ContextOverflowError(
                f"prompt is too long: {tokens} tokens > {self.limit} maximum"
            )
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        return self.reply.model_copy(update={"usage_metadata": usage})

    def _count(self, request: list[AnyMessage]) -> int:
        tokens = self.count(request, tools=self.tools)
        self.tried.append((request, tokens))
        return tokens

    def _sent(self, needs: Sequence[str]) -> Sent:
        """The request that was built last, beside the one that was sent before it."""
        request, tokens = self.tried[-1] if self.tried else ([], 0)
        fits = bool(request) and tokens <= self.limit
        pairs = zip(self.before, request, strict=False) if fits else ()
        same = takewhile(
            lambda pair: _cached_parts(pair[0]) == _cached_parts(pair[1]), pairs
        )
        shared = len(list(same))
        cached = self.count(request[:shared], tools=self.tools) if shared else 0
        is_extended = shared == len(self.before)
        text = "\n".join(map(_text, request)) if fits else ""
        self.before = request if fits else self.before
        return Sent(
            request=request,
            fits=fits,
            is_extended=is_extended,
            history=len(self.state["messages"]),
            tokens=tokens,
            cached_tokens=cached,
            tries=len(self.tried),
            needed=len(needs),
            missing=tuple(value for value in needs if value not in text),
            report=self.state.get("context_report") or {},
            guard=self.state.get("context_guard") or {},
        )


def _text(message: AnyMessage) -> str:
    calls = (
        [*message.tool_calls, *message.invalid_tool_calls]
        if isinstance(message, AIMessage)
        else []
    )
    return " ".join(
        [
            text_of(message.content),
            *(f"{call['name']} {call['args']}" for call in calls),
        ]
    )


def _cached_parts(message: AnyMessage) -> tuple[Any, ...]:
    """The parts of a message that a prompt cache compares."""
    return message.type, message.content, getattr(message, "tool_calls", None)


MIN_CHARS = 5  # shorter words stand in any text by chance
MIN_NUMBER_CHARS = 4  # the same of numbers: 17 is everywhere, 1724 is not

WORD = re.compile(r"[\w./#@:+-]+", re.ASCII)
EDGES = ".:,-+/"
TELLING = re.compile(r"[\d/_.@#]")
FENCED = re.compile(r"```[^`\n]*\n(.*?)```", re.DOTALL)
OPENING = re.compile(r"^[ \t]*<([A-Za-z][\w-]*)(?:[=\s][^<>]*)?>", re.MULTILINE)
CLOSING = re.compile(r"</([A-Za-z][\w-]*)>")
THINKING = re.compile(r"think|thought|reason|analysis|reflect|plan", re.IGNORECASE)
"""Tags of what an agent says to itself."""


def needed_values(reply: AIMessage, history: Sequence[str]) -> list[str]:
    """Return the values in the calls of a reply that the messages before it hold.

    An agent without tool calls writes its command into a fenced block or between tags.
    """
    named = set[str]()
    for call in reply.tool_calls:
        named |= {*_in_arguments(call["args"])}
    for broken in reply.invalid_tool_calls:
        named |= {*identifiers(broken["args"] or "")}
    if not reply.tool_calls and not reply.invalid_tool_calls:
        for block in commands(text_of(reply.content)):
            named |= {*identifiers(block)}
    everything = "\n".join(history)
    return [value for value in sorted(named) if value in everything]


def identifiers(text: str) -> Iterator[str]:
    """Yield the words of a text that name one thing: identifiers, paths, addresses, numbers."""
    for match in WORD.finditer(text):
        word = match[0].strip(EDGES) if len(match[0]) >= MIN_CHARS else ""
        if len(word) >= MIN_CHARS and TELLING.search(word):
            yield word


def commands(text: str) -> list[str]:
    """Return what an agent without tool calls wrote into fenced blocks and between tags."""
    return [*FENCED.findall(text), *_tagged(text)]


def _tagged(text: str) -> Iterator[str]:
    """Yield what stands in elements whose opening tag begins a line, whatever its name: `<command>ls src</command>`."""
    closed = {match[1]: match.start() for match in CLOSING.finditer(text)}
    end = 0
    for opening in OPENING.finditer(text):
        name = opening[1]
        if end <= opening.start() < closed.get(name, 0):
            end = text.index(f"</{name}>", opening.end())
            if not THINKING.search(name):
                yield text[opening.end() : end]


def _in_arguments(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _in_arguments(item)
    elif isinstance(value, str):
        yield from identifiers(value)
    elif (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and len(str(value)) >= MIN_NUMBER_CHARS
    ):
        yield str(value)


# ---- policies: ours by their settings, and what everybody can write in twenty lines ----------------------------------

KEEPS, RECORD_SHARES = (0.1, 0.3, 0.45, 0.6), (0.3, 0.65)
"""What a recommendation tries: how much a compaction leaves, and how much of the room the record may take."""

Sizes = Callable[[AnyMessage], int]
"""Tokens of a message."""


Show = Callable[[Sequence[AnyMessage]], list[AnyMessage]]
"""A policy that knows the messages and what they cost, and nothing else: what of a history the next request shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One row of a comparison."""

    name: str
    config: ContextConfig | None = None
    """The settings of ours; None for a plain one."""

    make: Callable[[int, Sizes], Show] | None = None
    """Makes a plain policy for one conversation, by the tokens that its messages may have."""

    @classmethod
    def named(cls, text: str) -> Policy:
        """Return a preset, a plain policy, or the one that a settings file describes.

        Raises:
            ConfigError: there is none of this name, or the file is not valid.

        Examples:
            >>> Policy.named("drop-to-half").name
            'drop-to-half'
        """
        if text in PRESETS:
            return cls(name=text, config=ContextConfig.preset(text))  # type: ignore[arg-type]  # it is one of them
        if text in PLAIN:
            return cls(name=text, make=PLAIN[text])
        if Path(text).is_file():
            return cls(name=text, config=ContextConfig.from_file(text))
        names = ", ".join((*PRESETS, *PLAIN))
        raise ConfigError(
            f"--policy {text}: give one of {names}, or a file with settings of ContextConfig"
        )


def candidates() -> list[Policy]:
    """Return the settings that a recommendation chooses from, each named by the TOML that sets it."""
    tried = [
        ContextConfig(keep=keep, record_share=share)
        for keep in KEEPS
        for share in RECORD_SHARES
    ]
    # where several are as good, the default stands first
    tried.sort(key=lambda one: one != ContextConfig())
    return [
        Policy(name=f"keep = {one.keep}\nrecord_share = {one.record_share}", config=one)
        for one in tried
    ]


def keep_last(room: int, size: Sizes) -> Show:
    """As many of the newest messages as fit: the start moves with every step."""

    def show(history: Sequence[AnyMessage]) -> list[AnyMessage]:
        start, used = len(history), 0
        while start and used + size(history[start - 1]) <= room:
            start -= 1
            used += size(history[start])
        return list(history[_first_whole(history, start) :])

    return show


def drop_to_half(room: int, size: Sizes) -> Show:
    """The tail, whose start moves only when the room is full, then to half of it."""
    start = 0

    def show(history: Sequence[AnyMessage]) -> list[AnyMessage]:
        nonlocal start
        held = sum(map(size, history[start:]))
        if held > room:
            while start < len(history) - 1 and held > room / 2:
                held -= size(history[start])
                start += 1
            start = _first_whole(history, start)
        return list(history[start:])

    return show


def _first_whole(history: Sequence[AnyMessage], start: int) -> int:
    """The next position that is no result: its call would be missing."""
    while start < len(history) and isinstance(history[start], ToolMessage):
        start += 1
    return start


PLAIN: dict[str, Callable[[int, Sizes], Show]] = {
    "keep-last": keep_last,
    "drop-to-half": drop_to_half,
}
"""Policies by name."""
