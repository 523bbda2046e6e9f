"""What do the outcomes say? One row of figures per manager, or per manager and scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from arena_parts.play import Outcome
from arena_parts.scenarios import CLOCK

INPUT_PRICE = 1.00  # relative units per million tokens; the summarizer costs the same
CACHED_PRICE = 0.10  # a cached prefix, a tenth
OUTPUT_PRICE = 4.00
MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    turns: int
    calls: int
    """Model calls in the script."""

    failed: int
    invalid: int
    over_limit: int
    false_refusals: int
    user: float
    rules: float
    facts_at_end: float
    facts: float
    stable: float
    summaries: float
    """Summarizer calls per answered model call."""

    cpu_ms: float
    added_seconds: float | None
    added_seconds_worst_turn: float | None
    sent_tokens: int
    cost: float


def row(outcomes: Sequence[Outcome]) -> Row:
    sent = [one for outcome in outcomes for one in outcome.sent]
    answered = [one for one in sent if one.outcome == "answered"]
    summaries = [one for outcome in outcomes for one in outcome.summaries]
    timed = [outcome for outcome in outcomes if outcome.job.scenario == CLOCK]
    timed_calls = sum(one.outcome == "answered" for outcome in timed for one in outcome.sent)
    return Row(
        turns=sum(outcome.turns for outcome in outcomes),
        calls=sum(outcome.calls for outcome in outcomes),
        failed=sum(outcome.failed for outcome in outcomes),
        invalid=sum(one.outcome == "invalid" for one in sent) + sum("result" in one.fault for one in summaries),
        over_limit=sum(one.outcome == "overflow" for one in sent),
        false_refusals=sum(outcome.false_refusals for outcome in outcomes),
        user=_mean(one.has_user for one in answered),
        rules=_mean(one.has_rules for one in answered if one.has_rules is not None),
        facts_at_end=_mean(outcome.facts_at_end for outcome in outcomes),
        facts=_mean(one.facts for one in answered if one.facts is not None),
        stable=_mean(one.stable for one in answered if one.stable is not None),
        summaries=len(summaries) / max(1, len(answered)),
        cpu_ms=1_000 * sum(outcome.cpu_seconds for outcome in outcomes) / max(1, len(answered)),
        added_seconds=sum(sum(o.added_seconds) for o in timed) / max(1, timed_calls) if timed else None,
        added_seconds_worst_turn=max((max(o.added_seconds) for o in timed), default=None),
        sent_tokens=sum(one.tokens for one in answered),
        cost=sum(map(cost, outcomes)),
    )


def cost(outcome: Outcome) -> float:
    """Price of what was answered; refusals cost nothing."""
    answered = [one for one in outcome.sent if one.outcome == "answered"]
    cached = sum(one.cached_tokens for one in [*answered, *outcome.summaries])
    fresh = sum(one.tokens for one in [*answered, *outcome.summaries]) - cached
    written = sum(one.output_tokens for one in [*answered, *outcome.summaries])
    return (fresh * INPUT_PRICE + cached * CACHED_PRICE + written * OUTPUT_PRICE) / MILLION


def grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return groups


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return mean(found) if found else 0.0
