"""Does an agent keep going, and keep what it was told, under each way to manage its context?

Scripted agents against a strict provider. Added seconds come from the scenario `clock`, played in real time (a model
call takes one second, a summary two); the others run fifty times faster. CPU is what manager and LangGraph use per
answered call. Prices are relative: input 1, cached prefix 0.1, output 4, the summarizer the same.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from arena_parts.managers import MANAGERS
from arena_parts.play import Job, Outcome, play
from arena_parts.script import CLOCK, SCENARIOS

WAITING_SHARE = 3  # processes per core: about two thirds of a fast scenario is spent waiting for the provider
# relative units per million tokens
INPUT_PRICE, CACHED_PRICE, OUTPUT_PRICE = (1.00, 0.10, 4.00)
MILLION = 1_000_000
LARGE_WINDOW = 32_768
LEAST_STABLE = {8_192: 0.84, LARGE_WINDOW: 0.92}
"""About .95 of what a view reaches whose start moves only when the next request does not fit (.89 and .97)."""

CALLS_PER_SUMMARY = 8
ADDED_SECONDS = 0.2
FACTS_TOLERANCE = 0.005  # less than one fact of the longest scenario
COLUMNS = (
    "failed turns", "invalid requests", "current question shown", "rules shown", "planted facts shown at the end",
    "prefix stability", "summaries per call", "CPU ms per call", "added seconds per call", "million tokens sent",
    "cost",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What outcomes of one manager add up to."""

    failed: int
    invalid: int
    false_refusals: int
    user: float
    rules: float
    facts_at_end: float
    stable: float
    summaries: float
    """Summarizer calls per answered model call."""

    cpu_ms: float
    added_seconds: float | None
    sent_tokens: int
    cost: float

    def cells(self) -> list[str]:
        shares = (
            f"{share:.2f}"
            for share in (
                self.user,
                self.rules,
                self.facts_at_end,
                self.stable,
                self.summaries,
            )
        )
        added = "" if self.added_seconds is None else f"{self.added_seconds:.2f}"
        numbers = (
            f"{self.cpu_ms:.0f}",
            added,
            f"{self.sent_tokens / MILLION:.2f}",
            f"{self.cost:.2f}",
        )
        return [str(self.failed), str(self.invalid), *shares, *numbers]


def row_of(outcomes: Sequence[Outcome]) -> Row:
    sent = [one for outcome in outcomes for one in outcome.sent]
    answered = [one for one in sent if one.outcome == "answered"]
    summaries = [one for outcome in outcomes for one in outcome.summaries]
    timed = [outcome for outcome in outcomes if outcome.job.scenario == CLOCK]
    timed_calls = sum(
        one.outcome == "answered" for outcome in timed for one in outcome.sent
    )
    return Row(
        failed=sum(outcome.failed for outcome in outcomes),
        invalid=sum(one.outcome == "invalid" for one in sent)
        + sum("result" in one.fault for one in summaries),
        false_refusals=sum(outcome.false_refusals for outcome in outcomes),
        user=_mean(one.has_user for one in answered),
        rules=_mean(one.has_rules for one in answered if one.has_rules is not None),
        facts_at_end=_mean(outcome.facts_at_end for outcome in outcomes),
        stable=_mean(one.stable for one in answered if one.stable is not None),
        summaries=len(summaries) / max(1, len(answered)),
        cpu_ms=1_000
        * sum(outcome.cpu_seconds for outcome in outcomes)
        / max(1, len(answered)),
        added_seconds=sum(sum(o.added_seconds) for o in timed) / max(1, timed_calls)
        if timed
        else None,
        sent_tokens=sum(one.tokens for one in answered),
        cost=sum(map(cost, outcomes)),
    )


def cost(outcome: Outcome) -> float:
    """Price of what was answered; refusals cost nothing."""
    billed = [
        *(one for one in outcome.sent if one.outcome == "answered"),
        *outcome.summaries,
    ]
    cached = sum(one.cached_tokens for one in billed)
    fresh = sum(one.tokens for one in billed) - cached
    written = sum(one.output_tokens for one in billed)
    return (
        fresh * INPUT_PRICE + cached * CACHED_PRICE + written * OUTPUT_PRICE
    ) / MILLION


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return mean(found) if found else 0.0


# ---- goals -----------------------------------------------------------------------------------------------------------


def goals(
    mine: list[Outcome], peers: list[Outcome], window: int
) -> Iterator[tuple[bool, str]]:
    total = row_of(mine)
    faults = f"failed {total.failed}, invalid {total.invalid}, false refusals {total.false_refusals}: 0, 0, 0"
    yield total.failed == total.invalid == total.false_refusals == 0, faults
    yield total.user == 1, f"current user message {total.user:.3f}: 1.00"
    yield total.rules == 1, f"pinned rules {total.rules:.3f}: 1.00"
    yield from _beside_peers(mine, peers)
    if window in LEAST_STABLE:
        least = LEAST_STABLE[window]
        yield (
            total.stable >= least,
            f"prefix stability {total.stable:.3f}: at least {least}",
        )
    if window >= LARGE_WINDOW:
        most = 1 / CALLS_PER_SUMMARY
        yield (
            total.summaries <= most,
            f"summaries per call {total.summaries:.3f}: at most {most:.3f}",
        )
    if total.added_seconds is not None:
        yield (
            total.added_seconds < ADDED_SECONDS,
            f"added seconds {total.added_seconds:.3f}: under {ADDED_SECONDS}",
        )


def _beside_peers(
    mine: list[Outcome], peers: list[Outcome]
) -> Iterator[tuple[bool, str]]:
    """Facts at the end beside the best peer of each scenario, and cost beside peers that lose nothing in it."""
    behind, dearer = [], []
    for own in mine:
        here = [p for p in peers if p.job.scenario == own.job.scenario]
        best = max(here, key=lambda p: p.facts_at_end, default=None)
        if best and best.facts_at_end > own.facts_at_end + FACTS_TOLERANCE:
            behind.append(
                f"{own.job.scenario} {own.facts_at_end:.2f} ({best.job.manager} {best.facts_at_end:.2f})"
            )
        sound = [
            p
            for p in here
            if not p.failed and p.facts_at_end >= own.facts_at_end - FACTS_TOLERANCE
        ]
        sound = [p for p in sound if row_of([p]).user == row_of([p]).rules == 1]
        cheapest = min(sound, key=cost, default=None)
        if cheapest and cost(cheapest) < cost(own):
            dearer.append(
                f"{own.job.scenario} x{cost(own) / cost(cheapest):.2f} ({cheapest.job.manager})"
            )
    yield (
        not behind,
        f"facts at end, scenarios behind the best peer: {', '.join(behind) or 'none'}",
    )
    yield (
        not dearer,
        f"cost {sum(map(cost, mine)):.2f}, scenarios with a cheaper sound peer: {', '.join(dearer) or 'none'}",
    )


# ---- what is printed -------------------------------------------------------------------------------------------------


def print_table(outcomes: Sequence[Outcome], title: str) -> None:
    print(f"\n| {title} | {' | '.join(COLUMNS)} |")
    print(f"|---|{'---:|' * len(COLUMNS)}")
    for name in dict.fromkeys(o.job.manager for o in outcomes):
        print(
            f"| {name} | {' | '.join(row_of([o for o in outcomes if o.job.manager == name]).cells())} |"
        )


def print_goals(outcomes: Sequence[Outcome], window: int) -> None:
    peers = [o for o in outcomes if not MANAGERS[o.job.manager].ours]
    for name in dict.fromkeys(
        o.job.manager for o in outcomes if MANAGERS[o.job.manager].ours
    ):
        print(f"\nGoals of {name} at {window:,} tokens:")
        for is_met, text in goals(
            [o for o in outcomes if o.job.manager == name], peers, window
        ):
            print(f"- {'met   ' if is_met else 'MISSED'} {text}")


def print_errors(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        kinds = Counter(error.partition(": ")[2][:160] for error in outcome.errors)
        kinds.update(
            f"summarizer: {one.fault[:120]}" for one in outcome.summaries if one.fault
        )
        for kind, number in kinds.most_common(2):
            print(f"- {outcome.job.manager}: {number} x {kind}")


def _played(jobs: list[Job]) -> Iterable[Outcome]:
    """The fast scenarios first; then those in real time all at once, since they mostly wait."""
    timed = [job for job in jobs if job.scenario == CLOCK]
    fast = [job for job in jobs if job.scenario != CLOCK]
    for group, processes in (
        (fast, WAITING_SHARE * (os.cpu_count() or 1)),
        (timed, len(timed)),
    ):
        if group:
            with multiprocessing.Pool(processes, maxtasksperchild=4) as pool:
                yield from pool.imap_unordered(play, group, chunksize=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, nargs="+", default=[8_192, LARGE_WINDOW])
    parser.add_argument(
        "--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS)
    )
    parser.add_argument(
        "--managers", nargs="+", choices=MANAGERS, default=list(MANAGERS)
    )
    parser.add_argument(
        "--details", action="store_true", help="a table per scenario, with the errors"
    )
    options = parser.parse_args()
    began = time.perf_counter()
    jobs = [
        Job(manager=m, scenario=s, window=w)
        for s in options.scenarios
        for m in options.managers
        for w in options.windows
    ]
    outcomes = sorted(_played(jobs), key=lambda o: jobs.index(o.job))
    for window in options.windows:
        found = [o for o in outcomes if o.job.window == window and not o.absent]
        found.sort(key=lambda o: options.managers.index(o.job.manager))
        print_table(found, f"{window:,} tokens")
        for name in options.scenarios if options.details else ():
            here = [o for o in found if o.job.scenario == name]
            print_table(here, f"{name}, {window:,} tokens")
            print_errors(here)
        print_goals(found, window)
    print()
    for name in options.managers:
        print(f"- {name}: {MANAGERS[name].setting}")
    for reason in sorted(
        {f"{o.job.manager} skipped: {o.absent}" for o in outcomes if o.absent}
    ):
        print(f"- {reason}")
    print(f"\n{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
