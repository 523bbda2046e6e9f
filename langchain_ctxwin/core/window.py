"""One measured request: its regions, its report, and everything plan and apply need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.budget import TokenBudget
from langchain_ctxwin.core.compaction import Compaction, Goal
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.session import Session
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.turns import Turn

CountedBy = Literal["usage", "estimate", "exact"]
MIN_PLAUSIBLE_SHARE = 0.2
"""Share of our estimate below which a reported size is not that of this request: no estimator is that far off."""

Bound = Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The size of a request and how it is known. All sizes are tokens."""

    total_tokens: int
    upper_tokens: int
    """The quantile that routing uses."""

    counted_by: CountedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One request as measured: what is in it, what it costs, and whether it fits. It lives for one step."""

    report: dict[str, Any]
    """The `context_report`: tokens per region, limits, utilization."""

    budget: TokenBudget
    over_by: int
    """Tokens by which the request may exceed its input limit, on the counter's upper bound; 0 when it fits."""

    limits: ModelLimits
    """The limits of this request's model, as far as they are known or were learned."""

    model: str
    """Name of the model that the limits belong to; empty when unknown."""

    digest: str
    """Fingerprint of everything before the history; a reported size is only comparable under the same one."""

    request: Request
    survey: Survey
    session: Session
    goal: Goal

    @property
    def messages(self) -> list[AnyMessage]:
        """The view: pinned messages and history as the model sees them, without the system message."""
        return [message for step in (*self.survey.pinned, *self.survey.steps) for message in step.messages]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The history in the view, by turn and step, priced."""
        return self.survey.turns

    def fits_after(self, compaction: Compaction) -> bool:
        """True when the request may be sent once the compaction is carried out."""
        return self.over_by == 0 or compaction.tokens_after <= self.goal.capacity

    @property
    def total_tokens(self) -> int:
        """Input tokens of the request, the reserve excluded."""
        return int(self.report["total_tokens"])

    @property
    def history_tokens(self) -> int:
        """Tokens of the history in the view."""
        return int(self.report["history_tokens"])


def count(request: Request, survey: Survey, session: Session, *, digest: str, upper: Bound, exact: bool) -> Count:
    """Size of the request: what the provider reported for its beginning plus an estimate of what was added since.

    Without a usable report the whole request is estimated.
    """
    anchored = _anchor(request.messages, survey, session, digest)
    if anchored is None:
        total = survey.total_tokens
        return Count(total_tokens=total, upper_tokens=upper(total), counted_by="exact" if exact else "estimate")
    tokens, added = anchored
    return Count(total_tokens=tokens + added, upper_tokens=tokens + upper(added), counted_by="usage")


def capacity_in_estimates(capacity: int, limit: int, survey: Survey, counted: Count) -> int:
    """Largest estimate that fits, given that the provider counts more than we do for this very request.

    Compaction prices candidates with estimates only; without this a request that is over by the provider's count could
    look small enough to be left as it is.
    """
    if counted.total_tokens <= survey.total_tokens:
        return capacity
    return min(capacity, limit * survey.total_tokens // counted.total_tokens)


def fingerprint(survey: Survey, tools_digest: str, model: str) -> str:
    """Return the digest of the model, of everything that precedes the history, and of how the history is shown."""
    preamble = survey.preamble
    parts = (
        str(preamble.system.content) if preamble.system else "",
        preamble.constraints,
        preamble.record,
        preamble.placement,
        tools_digest,
        model,
        json.dumps(survey.view.to_json(), sort_keys=True),
    )
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def make_report(
    survey: Survey, counted: Count, budget: TokenBudget, *, context_window: int, guard: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the `context_report`; its regions add up to `total_tokens`."""
    regions = _regions(survey, counted.total_tokens)
    return {
        "context_window": context_window,
        "input_limit": budget.input_limit,
        **regions,
        "reserved_tokens": budget.reserved_tokens,
        "total_tokens": counted.total_tokens,
        "utilization": round(counted.total_tokens / budget.input_limit, 4),
        "over_by": max(0, counted.upper_tokens - budget.input_limit),
        "counted_by": counted.counted_by,
        "compactions": int(guard.get("compactions", 0)),
        "dropped_turns": int(guard.get("dropped_turns", 0)),
    }


def _regions(survey: Survey, total_tokens: int) -> dict[str, int]:
    """Tokens by region, scaled to the total: what the provider counts more or less belongs to the history first."""
    fixed = {
        "system_tokens": survey.system_tokens,
        "tool_tokens": survey.tool_tokens,
        "summary_tokens": survey.summary_tokens,
        "pinned_tokens": survey.pinned_tokens,
    }
    history = total_tokens - survey.fixed_tokens
    if history >= 0:
        return {**fixed, "history_tokens": history}
    scaled = {name: tokens * total_tokens // survey.fixed_tokens for name, tokens in fixed.items()}
    return {**scaled, "history_tokens": total_tokens - sum(scaled.values())}


def _anchor(messages: Sequence[AnyMessage], survey: Survey, session: Session, digest: str) -> tuple[int, int] | None:
    """Reported size of an earlier request that this one extends, and the estimate of what was added."""
    anchor = session.counts.get("anchor")
    if anchor and anchor.get("digest") != digest:
        return None
    since = session.since.index if session.since and session.compactions else -1
    added = 0
    for step in reversed(survey.steps):
        added += step.tokens
        if step.index <= since and not anchor:
            return None
        tokens = _reported(messages[step.index], anchor)
        if tokens:
            # An edit of a message that the provider counted shows as another estimate of the same part.
            counted = survey.total_tokens - added
            edited = anchor and anchor.get("estimate") != counted
            # Usage that came with an answer to something else: a sub-agent, an imported conversation.
            foreign = not anchor and tokens < MIN_PLAUSIBLE_SHARE * counted
            return None if edited or foreign else (tokens, added)
    return None


def _reported(caller: AnyMessage, anchor: Mapping[str, Any] | None) -> int | None:
    """Prompt size that the provider reported with the AI message that opens a step."""
    if not isinstance(caller, AIMessage):
        return None
    if anchor:
        return int(anchor["tokens"]) if caller.id == anchor["id"] else None
    usage = caller.usage_metadata
    return usage["input_tokens"] if usage and usage["input_tokens"] > 0 else None
