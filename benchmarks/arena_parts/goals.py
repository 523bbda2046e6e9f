"""Does ours meet its goals? Each goal with what was reached, and where it was missed most."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from arena_parts.managers import MANAGERS
from arena_parts.play import Outcome
from arena_parts.score import cost, row

LARGE_WINDOW = 32_768
STABLE = 0.92
STABLE_OF_CEILING = 0.95
CALLS_PER_SUMMARY = 8
ADDED_SECONDS = 0.2
FACTS_TOLERANCE = 0.005  # less than one fact of the longest scenario


def print_goals(outcomes: Sequence[Outcome], window: int, ceilings: dict[str, list[float]]) -> None:
    for name in (name for name, manager in MANAGERS.items() if manager.ours):
        mine = [o for o in outcomes if o.job.manager == name]
        if mine:
            print(f"\nGoals of {name} at {window:,} tokens:")
            for is_met, text in _goals(
                mine, [o for o in outcomes if not MANAGERS[o.job.manager].ours], window, ceilings
            ):
                print(f"- {'met   ' if is_met else 'MISSED'} {text}")


def _goals(
    mine: list[Outcome], peers: list[Outcome], window: int, ceilings: dict[str, list[float]]
) -> list[tuple[bool, str]]:
    total = row(mine)
    limit = mean(share for shares in ceilings.values() for share in shares)
    stable = STABLE if window >= LARGE_WINDOW else STABLE_OF_CEILING * limit
    zero = total.failed == total.invalid == total.false_refusals == 0
    faults = f"failed {total.failed}, invalid {total.invalid}, false refusals {total.false_refusals}: 0, 0, 0"
    goals = [
        (zero, faults),
        (total.user == 1, f"current user message {total.user:.3f}: 1.00"),
        (total.rules == 1, f"pinned rules {total.rules:.3f}: 1.00"),
        _facts(mine, peers),
        (total.stable >= stable, f"prefix stability {total.stable:.3f}: at least {stable:.3f}"),
        _cheapest(mine, peers),
    ]
    if window >= LARGE_WINDOW:
        most = 1 / CALLS_PER_SUMMARY
        goals.append((total.summaries <= most, f"summaries per call {total.summaries:.3f}: at most {most:.3f}"))
    if total.added_seconds is not None:
        goals.append(
            (total.added_seconds < ADDED_SECONDS, f"added seconds {total.added_seconds:.3f}: under {ADDED_SECONDS}")
        )
    return goals


def _facts(mine: list[Outcome], peers: list[Outcome]) -> tuple[bool, str]:
    """Facts at the end beside the best peer of each scenario."""
    behind = []
    for own in mine:
        best = max((p for p in peers if p.job.scenario == own.job.scenario), key=lambda p: p.facts_at_end, default=None)
        if best and best.facts_at_end > own.facts_at_end + FACTS_TOLERANCE:
            behind.append(f"{own.job.scenario} {own.facts_at_end:.2f} ({best.job.manager} {best.facts_at_end:.2f})")
    return not behind, f"facts at end, scenarios behind the best peer: {', '.join(behind) or 'none'}"


def _cheapest(mine: list[Outcome], peers: list[Outcome]) -> tuple[bool, str]:
    """Cost beside the peers that fail nowhere; then, as a hint, beside peers that lose nothing in one scenario."""
    never = {p.job.manager for p in peers} - {p.job.manager for p in peers if p.failed}
    bills = {name: sum(cost(p) for p in peers if p.job.manager == name) for name in sorted(never)}
    own = sum(map(cost, mine))
    beaten = [f"{name} {bill:.3f}" for name, bill in bills.items() if bill < own]
    rivals = ", ".join(f"{name} {bill:.3f}" for name, bill in bills.items()) or "none"
    hint = ", ".join(filter(None, (_dearer(one, peers) for one in mine))) or "none"
    return not beaten, f"cost {own:.3f}; peers that fail nowhere: {rivals}; scenarios with a cheaper sound peer: {hint}"


def _dearer(own: Outcome, peers: list[Outcome]) -> str:
    """The cheapest peer that is cheaper in this scenario and neither fails nor loses anything that ours shows."""
    here = [p for p in peers if p.job.scenario == own.job.scenario and not p.failed]
    sound = [
        p for p in here if p.facts_at_end >= own.facts_at_end - FACTS_TOLERANCE and row([p]).user == row([p]).rules == 1
    ]
    best = min(sound, key=cost, default=None)
    if best is None or cost(best) >= cost(own):
        return ""
    return f"{own.job.scenario} x{cost(own) / cost(best):.2f} ({best.job.manager})"
