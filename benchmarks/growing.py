"""What growing conversations cost over three models, beside the cheapest plan there is for each of them.

A conversation is replayed as it was recorded, through the nodes with a router over a small, a middle and a large
window. The cheapest plan is computed from the same steps: before each call it may compact to what the settings keep,
move to another model, or do nothing, at any time and with all of the conversation before its eyes.

    python benchmarks/growing.py --data DIR [--half b] [--prices 0.1 0.3 1.75]
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import mean
from typing import Any

import structlog
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import exact
from langchain_ctxwin import (
    ContextConfig,
    ContextNodes,
    ModelInfo,
    ModelLimits,
    ModelRouter,
    RoutedChatModel,
    RoutingConfig,
)
from langchain_ctxwin.observe import Usage
from replay import Replay, common_tokens
from spending import size_of
from transcripts import Transcript, load

WINDOWS = (8_192, 32_768, 131_072)
RESERVE = 0.25
PRICES = ("0.1", "0.3", "1.75")  # USD per million tokens of input: the dearest is 17 times the cheapest
OUTPUT_FACTOR, CACHED_FACTOR = 4, Decimal("0.1")  # published price lists: 4 to 8 times, and a tenth
SETTINGS = ("compact", "move")
GOAL = 1.2  # times the cheapest plan


def info_of(window: int, price: str) -> ModelInfo:
    usd = Decimal(price)
    return ModelInfo(
        name=f"window-{window}",
        context_window=window,
        input_price=usd,
        output_price=OUTPUT_FACTOR * usd,
        cache_read_price=CACHED_FACTOR * usd,
        tokenizer_family="openai",
    )


class Recorded(BaseChatModel):
    """Answers as it was recorded."""

    window: int
    heard: Any = None
    """The replay, which bills the request."""

    @property
    def _llm_type(self) -> str:
        return "recorded"

    @property
    def limits(self) -> ModelLimits:
        return ModelLimits(self.window, requested_output_tokens=int(self.window * RESERVE))

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=list(tools), **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.heard.answer_as(self.window, messages))])


class RoutedReplay(Replay):
    """A replay over three models that keeps the books."""

    def __init__(self, transcript: Transcript, infos: Sequence[ModelInfo], when_full: str) -> None:
        super().__init__(transcript, WINDOWS[-1], {}, "openai", RESERVE)
        self.infos = {info.context_window: info for info in infos}
        registry = type("Known", (), {"lookup": lambda _, model: self.infos[model.window]})()
        models = {info.name: Recorded(window=info.context_window, heard=self) for info in infos}
        config = RoutingConfig(complexity="low", when_full=when_full)  # what a candidate is worth is another question
        router = ModelRouter(models, registry, config)
        engine = self.nodes.engine
        self.nodes = ContextNodes(engine, tools=transcript.tools, router=router)
        self.model = self.nodes.model_node(RoutedChatModel(router))
        self.last: dict[int, tuple[list[Any], int]] = {}
        self.cost, self.moves, self.called = Decimal(0), 0, 0

    def answer_as(self, window: int, request: list[Any]) -> AIMessage:
        before, known = self.sent, self.last.get(window)
        self.limit = window - int(window * RESERVE)
        self.sent, self.sent_tokens = known or (None, 0)
        answer = self.answer(request)
        cached = common_tokens(known[0], request, self.transcript.tools) if known else 0
        usage = Usage(input_tokens=self.sent_tokens, cached_tokens=cached, output_tokens=self.written)
        self.cost += usage.cost(self.infos[window]) or 0
        self.moves += bool(before) and window != self.called
        self.called, self.last[window] = window, (request, self.sent_tokens)
        return answer

    @property
    def written(self) -> int:
        return exact.message_tokens(self.reply) if self.reply else 0


@dataclass(frozen=True, slots=True)
class Played:
    """One conversation under one setting."""

    cost: Decimal
    cheapest: Decimal
    moves: int
    compactions: int
    refused: int
    requests: int

    @property
    def ratio(self) -> float:
        return float(self.cost / self.cheapest)


def cheapest_plan(transcript: Transcript, infos: Sequence[ModelInfo]) -> Decimal:
    """The least that the calls of a conversation can cost: over the plans that keep what the settings keep.

    A compaction leaves the share of the room that the settings keep and give the record, or, if that is more, the first
    question and what is new. A state is a model and the size of the history that it was left with, so that of two plans
    in one state only the cheaper one goes on.
    """
    config = ContextConfig()
    keep, fixed = config.keep + config.record_share, exact.tools_tokens(transcript.tools) + exact.REPLY_TOKENS
    pinned = 0
    states: dict[tuple[int, int], Decimal] | None = None
    added, asked = 0, False
    for message in transcript.messages:
        size = exact.message_tokens(message)
        if not (isinstance(message, AIMessage) and asked):
            if message.type == "system":
                fixed += size
            else:
                pinned += 0 if asked or not isinstance(message, HumanMessage) else size
                added += size
                asked = asked or isinstance(message, HumanMessage)
            continue
        sizes = {"fixed": fixed, "added": added, "pinned": pinned, "output": size}
        states = _after_call(states, infos, keep=keep, **sizes)
        added = size
    return min((states or {(0, 0): Decimal(0)}).values())


def _after_call(
    states: dict[tuple[int, int], Decimal] | None,
    infos: Sequence[ModelInfo],
    *,
    keep: float,
    fixed: int,
    added: int,
    pinned: int,
    output: int,
) -> dict[tuple[int, int], Decimal]:
    """The states after one call, by model and size of the history, and what each has cost at least."""
    after: dict[tuple[int, int], Decimal] = {}
    for (model, history), spent in (states or {(-1, 0): Decimal(0)}).items():
        for number, info in enumerate(infos):
            room = info.context_window - int(info.context_window * RESERVE) - fixed
            # What is new may be larger than the room: it is shortened then, as the package does.
            whole, low = history + added, min(room, max(added + pinned, int(keep * room)))
            for size in {whole, min(whole, low)}:
                if size > room or room <= 0:
                    continue
                is_same = number == model
                cached = (fixed + history if size == whole else fixed) if is_same else 0
                usage = Usage(input_tokens=fixed + size, cached_tokens=cached, output_tokens=output)
                cost = spent + (usage.cost(info) or 0)
                key = (number, size)
                if key not in after or cost < after[key]:
                    after[key] = cost
    return after or dict(states or {})  # what fits nowhere is clamped: it is left out on both sides


def play(job: tuple[Transcript, Sequence[ModelInfo], str]) -> Played:
    transcript, infos, when_full = job
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    replay = RoutedReplay(transcript, infos, when_full)
    state = replay.run()
    return Played(
        replay.cost,
        cheapest_plan(transcript, infos),
        replay.moves,
        int((state.get("context_guard") or {}).get("compactions", 0)),
        replay.found["over_first"] + replay.found["over_later"] + replay.found["refusals"] + replay.found["gave_up"],
        replay.found["requests"],
    )


def report(title: str, played: Sequence[Played]) -> None:
    ratios = sorted(one.ratio for one in played)
    over = sum(ratio > GOAL for ratio in ratios)
    total, cheapest = sum(one.cost for one in played), sum(one.cheapest for one in played)
    print(
        f"{title:10}{float(total):>10.3f}{float(total / cheapest):>10.2f}{mean(ratios):>8.2f}{ratios[-1]:>8.2f}"
        f"{over:>7} of {len(ratios):<4}{sum(one.moves for one in played):>7}"
        f"{sum(one.compactions for one in played):>10}{sum(one.refused for one in played):>9}"
        f"{sum(one.requests for one in played):>10,}",
        flush=True,
    )


def sessions(data: Path | None, half: str, most: int) -> list[Transcript]:
    """Conversations that outgrow the small window, every second one, evenly by size."""
    long = sorted((t for t in load(data) if size_of(t) > WINDOWS[0]), key=size_of)
    chosen = long["ab".index(half) :: 2] if half in {"a", "b"} else long
    return chosen[:: max(1, len(chosen) // most)][:most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with transcripts/*.jsonl.gz; generated ones without it")
    parser.add_argument("--half", choices=("a", "b", "all"), default="b", help="every second conversation")
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--prices", nargs=3, default=PRICES, help="USD per million input tokens of the three windows")
    options = parser.parse_args()
    drill(options.data, half=options.half, most=options.sessions, prices=options.prices)


def drill(data: Path | None, *, half: str = "b", most: int = 40, prices: Sequence[str] = PRICES) -> None:
    """Print what each setting costs beside the cheapest plan."""
    infos = list(map(info_of, WINDOWS, prices))
    chosen = sessions(data, half, most)
    print(f"{len(chosen)} conversations over windows {WINDOWS}, {', '.join(prices)} USD per million tokens")
    print(
        f"{'when_full':10}{'USD':>10}{'cheapest':>10}{'mean':>8}{'worst':>8}{f'over {GOAL}':>12}{'moves':>10}"
        f"{'compact.':>10}{'refused':>9}{'requests':>10}"
    )
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for setting in SETTINGS:
            jobs = [(transcript, infos, setting) for transcript in chosen]
            report(setting, [one for one in pool.map(play, jobs, chunksize=1) if one.requests])


if __name__ == "__main__":
    main()
