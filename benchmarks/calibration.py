"""How far off is the count of the next request, of the first, and of the one after a compaction or a model switch?

The truth is what providers reported for recorded requests (without data: an exact tokenizer and a constant that nobody
sees).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

from langchain_core.messages.utils import count_tokens_approximately

import large_tool_sets
from fit_framing import OWN_CLASS
from langchain_ctxwin import ContextEngine, ModelLimits, TokenEstimator
from usage_replay import APPROX, OURS, PLAIN, RATIO, SCALED, WINDOW, Sighting, replayed
from usage_requests import Recorded
from usage_requests import load as load_requests
from usage_sizes import WHOLE, load

AFTER = (2, 3, 5, 10)
GOALS = {"next": (1.0, 3.0), "compacted": (2.0, 5.0)}  # mean and p95 of the error in %


def tables(found: list[Sighting]) -> None:
    sources = list(dict.fromkeys(sighting.source for sighting in found))
    print("Mean / p95 of the error in %, of the next request by number of responses so far, and after a compaction")
    goals = " / ".join(f"{goal} %" for goal in GOALS["next"]), " / ".join(f"{goal} %" for goal in GOALS["compacted"])
    print(f"goals: next request after one response or more {goals[0]}, after a compaction {goals[1]}")
    for source in sources:
        errors(source, [sighting for sighting in found if sighting.source == source])
    if len(sources) > 1:
        errors("all agent transcripts", found)
    print("\nBounds: share of requests above the upper and below the lower bound, mean width of the upper one, in %")
    for source in sources:
        bounds(source, [sighting for sighting in found if sighting.source == source])
    bounds("all", found)
    print("\nModel switch after at least one response, mean / p95 of the error in %")
    stranger = [sighting for sighting in found if sighting.kind == "other"]
    back = [sighting for sighting in found if sighting.kind == "back"]
    print(f"a model never seen, from the plain estimate of its own counter: {spread(stranger, OURS)}")
    print(f"back to the first model after one answer of the other: {spread(back, OURS)} (plain {spread(back, PLAIN)})")


def errors(title: str, found: list[Sighting]) -> None:
    following = [sighting for sighting in found if sighting.kind == "next"]
    columns = {
        "1 response": [s for s in following if s.responses == 1],
        ">= 1": [s for s in following if s.responses >= 1],
        **{f"{n}": [s for s in following if s.responses == n] for n in AFTER},
        "compacted": [s for s in found if s.kind == "compacted"],
    }
    if title in WHOLE:
        columns = {"first": [s for s in following if s.responses == 0], **columns}
    print(f"\n{title:22}" + "".join(f"{name:>16}" for name in columns))
    print(f"{'  requests':22}" + "".join(f"{len(rows):>16,}" for rows in columns.values()))
    for method in (OURS, PLAIN, RATIO, APPROX, SCALED):
        print(f"  {method:20}" + "".join(f"{spread(rows, method):>16}" for rows in columns.values()))


def bounds(title: str, found: list[Sighting]) -> None:
    parts = []
    for kind in GOALS:
        rows = [s for s in found if s.kind == kind and s.responses]
        above, below = (percent([s.true > s.upper for s in rows]), percent([s.true < s.lower for s in rows]))
        width = mean(s.upper / s.counts[OURS] - 1 for s in rows) * 100
        parts.append(f"{kind} {above:5.1f} above {below:5.1f} below, width {width:4.1f}")
    print(f"  {title:20}" + "   ".join(parts))


def spread(rows: list[Sighting], method: str) -> str:
    return in_words([sighting.error(method) for sighting in rows])


def in_words(shares: list[float]) -> str:
    if not shares:
        return "-"
    return f"{mean(shares):.2f} / {sorted(shares)[ceil(0.95 * len(shares)) - 1]:.2f}"


def percent(hits: list[bool]) -> float:
    return mean(hits) * 100


def first_requests(data: Path) -> None:
    """Recorded requests of many models: each is the first one that a new conversation would send."""
    recorded, left_out = load_requests(data)
    print(f"\nFirst requests: {len(recorded)} recorded ones, {sum(left_out.values())} left out; most are very short")
    columns = ("rows", "mean / p95 %", "tokens", "approximately", "above upper %", "below lower %")
    print(f"{'':26}" + "".join(f"{name:>17}" for name in columns))
    groups = {family: [(r, family) for r in recorded if r.family == family] for family in {r.family for r in recorded}}
    groups["all"] = [(row, row.family) for row in recorded]
    groups["all, by class"] = [(row, row.family if row.provider in OWN_CLASS else "generic") for row in recorded]
    for title, found in sorted(groups.items(), key=lambda item: (item[0].startswith("all"), item[0])):
        for has_tools in (False, True):
            if rows := [row for row in found if bool(row[0].tools) is has_tools]:
                shown = "".join(f"{value:>17}" for value in first_errors(rows))
                print(f"  {title:14}{'tools' if has_tools else 'no tools':10}{shown}")


def first_errors(rows: list[tuple[Recorded, str]]) -> list[str]:
    """Number of rows, our error in % and in tokens, the peer's in %, and how often each bound failed."""
    ours, tokens, peer, above, below = [], [], [], [], []
    for row, family in rows:
        tools: list[Any] = list(row.tools)
        engine = ContextEngine(ModelLimits(WINDOW), counter=TokenEstimator(family))
        window = engine.measure(row.messages, tools=tools)
        tokens.append(abs(window.total_tokens - row.tokens))
        ours.append(tokens[-1] / row.tokens * 100)
        peer.append(abs(count_tokens_approximately(row.messages, tools=tools) / row.tokens - 1) * 100)
        above.append(row.tokens > window.upper_tokens)
        below.append(row.tokens < window.lower_tokens)
    shares = (f"{percent(above):.1f}", f"{percent(below):.1f}")
    return [str(len(rows)), in_words(ours), f"{mean(tokens):.0f}", in_words(peer), *shares]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with transcripts/, usage_truth/ and tool_selection/")
    parser.add_argument("--every", type=int, default=1, help="look at each so manieth conversation only")
    options = parser.parse_args()
    began = time.perf_counter()
    talks = sorted(load(options.data), key=lambda talk: -len(talk.points))[:: options.every]
    truth = "sizes reported by providers" if options.data else "generated, an exact tokenizer and a hidden constant"
    print(f"{len(talks)} conversations, {sum(len(talk.points) for talk in talks):,} requests ({truth})")
    with multiprocessing.Pool(os.cpu_count()) as pool:
        tables([sighting for found in pool.imap(replayed, talks, chunksize=1) for sighting in found])
    if options.data:
        first_requests(options.data)
    large_tool_sets.report(options.data)
    print(f"{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
