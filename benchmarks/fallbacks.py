"""How many conversations finish while one of three routed models fails, and does every chosen route fit?

Each conversation is replayed request by request through a `RoutedChatModel` over windows of 8k, 32k and 128k tokens;
where nothing fits any more, the history is compacted and asked again, as nodes and middleware do. The candidates count
with a real tokenizer and refuse what is over their limit. A violation is a request that a working candidate, whose
window was stated truly, had to refuse.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from exact import request_tokens
from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import NoModelFitsError
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from transcripts import Transcript, load

WINDOWS = {"small": 8_192, "medium": 32_768, "large": 131_072}
PRICES = {"small": "0.10", "medium": "0.60", "large": "3.00"}  # USD per million input tokens
OUTPUT_PRICE_RATIO = 4
ANSWER_SHARE = 0.25  # of each window, kept for the answer
MILLION = 1_000_000
WRONG_FACTOR = 4  # a window that is stated four times too large, as catalogs do
FAMILY = "openai"
LARGEST = ModelLimits(max(WINDOWS.values()))
GOAL, LEAST = 1.0, 0.95


class StatusError(Exception):
    """What SDKs raise: a text and an HTTP status."""

    def __init__(self, text: str, status_code: int) -> None:
        super().__init__(text)
        self.status_code = status_code


class Provider(BaseChatModel):
    """A model with a true window that answers with the recorded message, or fails in one way."""

    model_name: str
    true_limit: int
    failure: str = ""
    refused_tokens: list[int] = Field(default_factory=list)
    answer: AIMessage = AIMessage("")

    @property
    def _llm_type(self) -> str:
        return "provider"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=list(tools), **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> Any:
        tokens = request_tokens(messages, kwargs.get("tools") or [])
        if self.failure in FAILURES:
            error = FAILURES[self.failure]()
            raise error
        if tokens > self.true_limit:
            self.refused_tokens.append(tokens)
            raise _overflow(tokens, self.true_limit)
        usage = UsageMetadata(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
        fresh = {"id": None, "usage_metadata": usage, "response_metadata": {"model_name": self.model_name}}
        return ChatResult(generations=[ChatGeneration(message=self.answer.model_copy(update=fresh))])


def _overflow(tokens: int, limit: int) -> Exception:
    text = f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."
    return StatusError(f"Error code: 400 - {text}", 400)


FAILURES: dict[str, Callable[[], Exception]] = {
    "overflow": lambda: StatusError("Error code: 400 - the prompt is too long for this model", 400),
    "429": lambda: StatusError("Error code: 429 - rate limit reached for requests per minute", 429),
    "503": lambda: StatusError("Error code: 503 - the server is overloaded", 503),
    "timeout": lambda: TimeoutError("the request timed out"),
}
WRONG_LIMIT = "wrong limit"


@dataclass(slots=True)
class Drill:
    """What happened while one candidate failed in one way."""

    finished: int = 0
    conversations: int = 0
    requests: int = 0
    violations: int = 0
    fallbacks: int = 0
    refused_wrong: int = 0
    compactions: int = 0
    cost: Decimal = Decimal(0)
    answered: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class Play:
    """One conversation on its way."""

    transcript: Transcript
    model: RoutedChatModel
    engine: ContextEngine
    session: dict[str, Any] = field(default_factory=dict)


class Table:
    """States the facts of the three models; one of them may be wrong."""

    def __init__(self, infos: dict[str, ModelInfo]) -> None:
        self._infos = infos

    def lookup(self, model: Any) -> ModelInfo:
        return self._infos[model.model_name]

    def learn(self, name: Any, said: Any) -> None:
        """The router's own memory is what is measured here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with transcripts; without it generated conversations")
    parser.add_argument("--limit", type=int, default=5, help="conversations per file")
    parser.add_argument("--family", default=FAMILY, help="tokenizer family that the router is told")
    options = parser.parse_args()
    conversations = list(load(options.data, limit=options.limit))
    print(f"{len(conversations)} conversations, windows {', '.join(f'{w:,}' for w in WINDOWS.values())}\n")
    print(f"{'failing':22} finished  requests  violations  fallbacks  compactions  USD      small/medium/large")
    for failing, failure in _drills():
        began = time.perf_counter()
        drill = Drill()
        for transcript in conversations:
            _play(transcript, drill, failing, failure, options.family)
        _show(failing, failure, drill, time.perf_counter() - began)


def _drills() -> Iterator[tuple[str, str]]:
    yield "", ""
    for failure in (*FAILURES, WRONG_LIMIT):
        yield from ((name, failure) for name in WINDOWS)


def _play(transcript: Transcript, drill: Drill, failing: str, failure: str, family: str) -> None:
    providers = {
        name: Provider(
            model_name=name,
            true_limit=_limit(window),
            failure=failure if name == failing and failure != WRONG_LIMIT else "",
        )
        for name, window in _true_windows(failing, failure).items()
    }
    play = Play(
        transcript=transcript,
        model=RoutedChatModel(_router(providers, family)),
        engine=ContextEngine(limits=LARGEST, counter=TokenEstimator(family)),
    )
    drill.conversations += 1
    try:
        for history, answer in _steps(transcript):
            for provider in providers.values():
                provider.answer = answer
            _exchange(play, history, drill)
        drill.finished += 1
    except Exception as error:  # noqa: BLE001  # whatever ends a conversation is what is measured
        drill.errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1
    for name, provider in providers.items():
        refused = len(provider.refused_tokens)
        if name == failing:
            drill.refused_wrong += refused
        else:
            drill.violations += refused


def _true_windows(failing: str, failure: str) -> dict[str, int]:
    """What the models really take; the registry states `WINDOWS`."""
    wrong = failing if failure == WRONG_LIMIT else ""
    return {name: window // WRONG_FACTOR if name == wrong else window for name, window in WINDOWS.items()}


def _limit(window: int) -> int:
    return int(window * (1 - ANSWER_SHARE))


def _router(providers: dict[str, Provider], family: str) -> ModelRouter:
    infos = {
        name: ModelInfo(
            name=name,
            context_window=WINDOWS[name],
            input_price=Decimal(PRICES[name]),
            output_price=OUTPUT_PRICE_RATIO * Decimal(PRICES[name]),
            cache_read_price=Decimal(PRICES[name]) / 10,
            tokenizer_family=family,
        )
        for name in providers
    }
    return ModelRouter(list(providers.values()), Table(infos), RoutingConfig(complexity="low"))


def _steps(transcript: Transcript) -> Iterator[tuple[list[AnyMessage], AIMessage]]:
    """Each model call of a conversation: what came before it, and the recorded answer."""
    for index, message in enumerate(transcript.messages):
        before = transcript.messages[:index]
        if isinstance(message, AIMessage) and any(not isinstance(m, SystemMessage) for m in before):
            yield before, message


def _exchange(play: Play, history: list[AnyMessage], drill: Drill) -> None:
    """One model call: the conversation as it is; where nothing fits, compacted for the next smaller window."""
    tools = play.transcript.tools
    targets = sorted((_limit(window) for window in _windows_of(play.model)), reverse=True)
    for target in targets:
        window = play.engine.measure(history, tools=tools, session=play.session)
        compaction = play.engine.emergency(window, target_tokens=target)
        if compaction is not None:
            play.session |= play.engine.apply(compaction, window)
            window = play.engine.measure(history, tools=tools, session=play.session)
            drill.compactions += 1
        try:
            answer = _asked(play, play.engine.build(window), window.upper_tokens)
        except Exception as error:
            if target == targets[-1] or not (isinstance(error, NoModelFitsError) or classify_overflow(error)):
                raise
            continue
        _note(answer, drill)
        return


def _windows_of(model: RoutedChatModel) -> list[int]:
    return [one.limits.context_window or 0 for one in model.router.candidates]


def _asked(play: Play, request: list[AnyMessage], upper_tokens: int) -> AIMessage:
    bound = play.model.bind_tools(play.transcript.tools) if play.transcript.tools else play.model
    return bound.invoke(request, conversation=play.transcript.name, estimated_tokens=upper_tokens)


def _note(answer: AIMessage, drill: Drill) -> None:
    route = answer.response_metadata["route"]
    drill.requests += 1
    drill.fallbacks += len(route["fallbacks"])
    drill.answered[route["model"]] += 1
    usage = answer.usage_metadata or {"input_tokens": 0}
    drill.cost += usage["input_tokens"] * Decimal(PRICES[route["model"]]) / MILLION


def _show(failing: str, failure: str, drill: Drill, seconds: float) -> None:
    label = f"{failing} {failure}" if failing else "none"
    share = drill.finished / drill.conversations
    shares = "/".join(f"{drill.answered[name]:,}" for name in WINDOWS)
    mark = "" if share >= GOAL else "  below 100 %" if share >= LEAST else "  BELOW 95 %"
    print(
        f"{label:22} {share:7.1%}  {drill.requests:8,}  {drill.violations:10,}  {drill.fallbacks:9,}  "
        f"{drill.compactions:11,}  {drill.cost:7.3f}  {shares}  ({seconds:.0f} s){mark}",
        flush=True,
    )
    for error, times in drill.errors.most_common(3):
        print(f"    {times} x {error}")


if __name__ == "__main__":
    main()
