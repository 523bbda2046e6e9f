"""Which `trigger` and `keep` cost least under cached-prefix pricing, and how much history they keep."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import structlog
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

import exact
import order_size
import provider_bills
from langchain_ctxwin import ContextConfig
from langchain_ctxwin.core import plan as planning
from replay import Replay
from spending import PRICES, BilledSummarizer, Ledger, never_compacted, size_of
from transcripts import Transcript, load

KEEPS = (0.2, 0.35, 0.5, 0.65, 0.8)
TRIGGERS = (0.75, 0.85, 0.95, 0.98)
DROP_KEEPS = (0.2, 0.5, 0.8)
WINDOWS = (8_192, 32_768, 131_072)
CAPS_TOKENS = (16_000, 32_000, 64_000, 128_000, 256_000)
CAPPED_WINDOW = 100_000
HUGE_WINDOW = 500_000
"""Windows from here on are also, or only, measured with `max_history_tokens`."""

MAX_RESERVE_TOKENS = 16_384
"""Room for the answer: a quarter of a small window, and a long answer in a large one."""

LENGTH_IN_WINDOWS = 3
MOST_JOINED_TOKENS = 1_200_000
"""Where too few recorded sessions are that long, several are joined until they fill the window this often."""

KEEP = ContextConfig().keep
PREPARES = (0.5, 0.6, 0.7, 0.8, 0.9)
STEPS_AHEAD = (1, 3, 5, 10)
"""Model calls that may go by while a summary is written in the background."""

Policy = dict[str, Any]
Job = tuple[int, Transcript, int, Policy, str]


class BilledReplay(Replay):
    """A replay that keeps the books."""

    def __init__(self, transcript: Transcript, window: int, settings: Policy, family: str) -> None:
        self.ledger = Ledger()
        reserve = min(0.25, MAX_RESERVE_TOKENS / window)
        super().__init__(
            transcript, window, settings, family, reserve, summarizer=BilledSummarizer(self.ledger, family)
        )
        self.asked = ""
        self.history_tokens = self.counted = 0

    def note(self, request: list[AnyMessage], tokens: int, common: int) -> None:
        asked = next((m.id or "" for m in reversed(request) if isinstance(m, HumanMessage)), "")
        self.ledger.record(tokens, common, starts_turn=asked != self.asked, previous=self.sent_tokens)
        self.asked = asked
        shown = sum(exact.message_tokens(m) for m in request if not isinstance(m, SystemMessage))
        self.ledger.kept_tokens += shown
        self.ledger.kept_share += min(1.0, shown / self.history_tokens) if self.history_tokens else 1.0

    def step(self, state: dict[str, Any], reply: Any) -> dict[str, Any]:
        messages = state["messages"]
        new = messages[self.counted :]
        self.history_tokens += sum(exact.message_tokens(m) for m in new if not isinstance(m, SystemMessage))
        self.counted = len(messages)
        return super().step(state, reply)


def bill(job: Job) -> tuple[int, Ledger]:
    number, transcript, window, policy, family = job
    settings = {name: value for name, value in policy.items() if name != "clear"}
    tiers = planning.TIERS["over"]  # no setting takes one out
    if not policy.get("clear", True):
        planning.TIERS["over"] = tiers[1:]
    try:
        replay = BilledReplay(transcript, window, settings, family)
        state = replay.run()
    finally:
        planning.TIERS["over"] = tiers
    replay.ledger.compactions = int((state.get("context_guard") or {}).get("compactions", 0))
    replay.ledger.forced = replay.found["force_compress"]
    replay.ledger.refused = replay.found["refusals"] + replay.found["gave_up"]
    return number, replay.ledger


def policies(window: int) -> list[Policy]:
    """The grid: inline summaries; receipts only, with and without clearing; capped where the window is large."""
    capped = [{"trigger": 0.95, "keep": 0.5, "max_history_tokens": cap} for cap in (*CAPS_TOKENS, window)]
    if window >= HUGE_WINDOW:
        return capped
    grid: list[Policy] = [{"trigger": t, "keep": k} for k, t in product(KEEPS, TRIGGERS) if k < t]
    grid += [{"summarize": "off", "keep": k, "clear": clear} for k, clear in product(DROP_KEEPS, (True, False))]
    return grid + [p for p in capped if p["max_history_tokens"] < window] if window >= CAPPED_WINDOW else grid


def sessions(found: list[Transcript], window: int, most: int) -> list[Transcript]:
    """The sessions that fill the window, evenly by size; joined ones where there are none that long."""
    sized = sorted(((size_of(t), n) for n, t in enumerate(found)), reverse=True)
    long = [found[n] for tokens, n in sized if tokens >= min(TRIGGERS) * window]
    if len(long) >= most:
        return long[:: max(1, len(long) // most)][:most]
    return joined([found[n] for _, n in sized], min(LENGTH_IN_WINDOWS * window, MOST_JOINED_TOKENS))


def joined(parts: Sequence[Transcript], tokens: int) -> list[Transcript]:
    """Two sessions of `tokens` each: the longest recorded ones, dealt in turn, under the first one's prompt."""
    results = []
    for hand in (parts[0::2], parts[1::2]):
        messages, total = list(hand[0].messages), size_of(hand[0])
        for part in hand[1:]:
            if total >= tokens:
                break
            rest = [m for m in part.messages if not isinstance(m, SystemMessage)]
            messages += rest
            total += sum(map(exact.message_tokens, rest))
        results.append(Transcript(name=hand[0].name, source="joined", tools=hand[0].tools, messages=messages))
    return results


def report(window: int, chosen: list[Transcript], rows: list[tuple[Policy, Ledger]]) -> None:
    whole = Ledger()
    for transcript in chosen:
        whole.add(never_compacted(transcript))
    tokens = sum(map(size_of, chosen))
    print(
        f"\nwindow {window:,}: {len(chosen)} sessions ({', '.join(sorted({t.source for t in chosen}))}), {tokens:,} "
        f"tokens, {whole.requests:,} requests; cost relative to never compacting"
    )
    names = "".join(f"{price.name:>13}" for price in PRICES)
    print(f"{'policy':38}{names}{'compact.':>10}{'forced':>8}{'stable':>8}{'kept':>8}{'share':>7}{'refused':>8}")
    for policy, ledger in rows:
        costs = "".join(f"{ledger.cost(price) / whole.cost(price):>13.3f}" for price in PRICES)
        n = max(1, ledger.requests)
        print(
            f"{settings_text(policy):38}{costs}{ledger.compactions:>10,}"
            f"{ledger.forced:>8,}{ledger.stable / n:>8.3f}"
            f"{ledger.kept_tokens / n:>8,.0f}{ledger.kept_share / n:>7.2f}{ledger.refused:>8}"
        )
    frontier(rows, whole)


def frontier(rows: list[tuple[Policy, Ledger]], whole: Ledger) -> None:
    """Print the policies with summaries that no other one beats in both cost and history kept, and what more costs."""
    price = PRICES[0]
    points = sorted(
        (ledger.cost(price) / whole.cost(price), ledger.kept_tokens / max(1, ledger.requests), settings_text(policy))
        for policy, ledger in rows
        if policy.get("summarize") != "off"
    )
    print(f"cost against history kept, at {price.name}; the last column is what 1 % more history costs on that step")
    before: tuple[float, float] | None = None
    for cost, kept, name in points:
        if before and kept <= before[1]:
            continue
        step = f"{(cost / before[0] - 1) / (kept / before[1] - 1):>8.2f} %" if before else ""
        print(f"  {name:36}{cost:>8.3f}{kept:>10,.0f}{step}")
        before = cost, kept


def settings_text(policy: Policy) -> str:
    return " ".join(f"{name.removesuffix('_tokens')} {value}" for name, value in policy.items())


def analyse(window: int, chosen: list[Transcript], rows: list[tuple[Policy, Ledger]], price_index: int = 0) -> None:
    """Compare with the closed form, at the same growth, room and summary size."""
    summed = [(policy, ledger) for policy, ledger in rows if set(policy) == {"trigger", "keep"}]
    if not summed:
        return
    flow = order_size.flow_of(chosen, window - min(window // 4, MAX_RESERVE_TOKENS), [ledger for _, ledger in summed])
    order_size.compare(flow, PRICES[price_index], summed, (KEEPS, TRIGGERS))
    order_size.headroom(chosen, flow.room_tokens, STEPS_AHEAD)
    order_size.unused(chosen, flow.room_tokens, KEEP, PREPARES)


def run(jobs: list[Job], pool: Any) -> Iterator[tuple[int, Ledger]]:
    yield from pool.imap_unordered(bill, jobs, chunksize=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with transcripts/*.jsonl.gz; generated ones without it")
    parser.add_argument("--windows", type=int, nargs="+", help="tokens")
    parser.add_argument("--sessions", type=int, default=40, help="recorded sessions per window")
    parser.add_argument("--per-file", type=int, default=20, help="recorded sessions per file, with --providers")
    parser.add_argument("--limit", type=int, help="recorded sessions that are read of each file; all without it")
    parser.add_argument("--family", default="openai")
    help_text = "only what each provider bills, beside langchain's summarizer and a plain tail, see provider_bills.py"
    parser.add_argument("--providers", action="store_true", help=help_text)
    options = parser.parse_args()
    if options.providers:
        windows = options.windows or provider_bills.WINDOWS
        provider_bills.compare(options.data, windows, per_file=options.per_file)
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = list(load(options.data, limit=options.limit))
    print(f"{'recorded' if options.data else 'generated'} sessions, tokenizer {exact.ENCODING}")
    for window in options.windows or WINDOWS:
        began = time.perf_counter()
        chosen, grid = sessions(found, window, options.sessions), policies(window)
        jobs = [(n, t, window, policy, options.family) for n, policy in enumerate(grid) for t in chosen]
        ledgers = [Ledger() for _ in grid]
        with multiprocessing.Pool(os.cpu_count()) as pool:
            for number, ledger in run(jobs, pool):
                ledgers[number].add(ledger)
        rows = list(zip(grid, ledgers, strict=True))
        report(window, chosen, rows)
        analyse(window, chosen, rows)
        print(f"{time.perf_counter() - began:.0f} seconds", flush=True)


if __name__ == "__main__":
    main()
