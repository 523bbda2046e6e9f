"""How are the figures shown? Markdown tables per window, details per scenario, and the goals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from arena_parts.desk import BILLED
from arena_parts.managers import MANAGERS
from arena_parts.play import Outcome
from arena_parts.score import Row, grouped, row
from prompt_caches import Bill

COLUMNS = (
    "failed turns", "invalid", "over limit", "false refusals", "user message", "rules", "facts at end", "facts",
    "prefix", "summaries per call", "CPU ms", "added s", "worst turn s", "Mtok sent", "cost",
)  # fmt: skip


def print_window(outcomes: Sequence[Outcome], window: int, ceilings: dict[str, list[float]], *, details: bool) -> None:
    shares = [share for name in ceilings for share in ceilings[name]]
    print(f"\n## {window:,} tokens\n")
    _print_table(grouped(outcomes, lambda o: o.job.manager), "manager")
    _print_bills(grouped(outcomes, lambda o: o.job.manager))
    print(f"\nPrefix stability when only the start moves: {sum(shares) / len(shares):.3f}")
    if details:
        for name, found in grouped(outcomes, lambda o: o.job.scenario).items():
            print(f"\n### {name}, {window:,} tokens (ceiling {sum(ceilings[name]) / len(ceilings[name]):.3f})\n")
            _print_table(grouped(found, lambda o: o.job.manager), "manager")
            _print_errors(found)


def print_settings(absent: Sequence[Outcome]) -> None:
    print()
    for name, manager in MANAGERS.items():
        print(f"- {name}: {manager.setting}")
    for reason in sorted({f"{o.job.manager} skipped: {o.absent}" for o in absent}):
        print(f"- {reason}")


def _print_table(groups: dict[str, list[Outcome]], title: str) -> None:
    print(f"| {title} | {' | '.join(COLUMNS)} |")
    print(f"|---|{'---:|' * len(COLUMNS)}")
    for name in (name for name in MANAGERS if name in groups):
        print(f"| {name} | {' | '.join(_cells(row(groups[name])))} |")


def _print_bills(groups: dict[str, list[Outcome]]) -> None:
    """What was answered by each provider's cache rules, in thousands of uncached input tokens per call."""
    print(f"\n| per call, thousands; share read | {' | '.join(BILLED)} | most breakpoints |")
    print(f"|---|{'---:|' * (len(BILLED) + 1)}")
    for name in (name for name in MANAGERS if name in groups):
        bills = {rules: Bill() for rules in BILLED}
        for outcome in groups[name]:
            for rules, bill in outcome.bills.items():
                bills[rules].add(bill)
        cells = [
            f"{bill.total / max(1, bill.requests) / 1_000:.2f}; {bill.read_tokens / max(1, bill.tokens):.2f}"
            for bill in bills.values()
        ]
        print(f"| {name} | {' | '.join(cells)} | {max(bill.most_marks for bill in bills.values())} |")


def _cells(figures: Row) -> list[str]:
    return [
        f"{figures.failed} of {figures.turns}",
        str(figures.invalid),
        str(figures.over_limit),
        str(figures.false_refusals),
        f"{figures.user:.2f}",
        f"{figures.rules:.2f}",
        f"{figures.facts_at_end:.2f}",
        f"{figures.facts:.2f}",
        f"{figures.stable:.3f}",
        f"{figures.summaries:.3f}",
        f"{figures.cpu_ms:.0f}",
        "" if figures.added_seconds is None else f"{figures.added_seconds:.3f}",
        "" if figures.added_seconds_worst_turn is None else f"{figures.added_seconds_worst_turn:.2f}",
        f"{figures.sent_tokens / 1e6:.2f}",
        f"{figures.cost:.3f}",
    ]


def _print_errors(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        kinds = Counter(error.partition(": ")[2][:160] for error in outcome.errors)
        kinds.update(f"summarizer: {one.fault[:120]}" for one in outcome.summaries if one.fault)
        for kind, number in kinds.most_common(2):
            print(f"- {outcome.job.manager}: {number} x {kind}")
