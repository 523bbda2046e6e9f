"""Why does a model have these limits and prices: who states what, and which statement counts?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.feed import Feed
from langchain_ctxwin.models.merging import FIELDS, Claim, in_order, stated_value

SHOWN_FIELDS = (*FIELDS, "deprecated", "aliases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One source's value of one field."""

    field: str
    source: str
    tier: str
    value: object
    counts: bool
    """True for the statement whose value was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How one source is doing."""

    name: str
    tier: str
    models: int
    """Models that it lists."""

    age_seconds: float | None
    """Since it answered last; None when it never did."""

    fault: str
    """Why its last answer could not be had; empty when it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything known about one name."""

    asked: str
    info: ModelInfo | None
    """The facts as `lookup` returns them; None when it raises `UnknownModelError`."""

    problem: str = ""
    """The text of that error."""

    how: str = ""
    """How the name was found: by `name`, `alias` or `variant` (another date or suffix); empty when it is not listed."""

    others: tuple[str, ...] = ()
    """The same name at other providers, as `provider/name`."""

    statements: tuple[Statement, ...] = ()
    """By field, most trusted source first."""

    sources: tuple[SourceState, ...] = field(default=())


def statements_of(info: ModelInfo | None, claims: Iterable[Claim]) -> tuple[Statement, ...]:
    """Return what each source states, field by field."""
    ordered = in_order(claims)
    found = ((name, claim, stated_value(claim.info, name)) for name in SHOWN_FIELDS for claim in ordered)
    return tuple(
        Statement(field=name, source=claim.source, tier=claim.tier, value=value, counts=_counts(info, name, claim))
        for name, claim, value in found
        if value is not None
    )


def state_of(feed: Feed, now: float) -> SourceState:
    """Return how a source is doing."""
    snapshot = feed.snapshot
    return SourceState(
        name=feed.name,
        tier=feed.tier,
        models=len({(claim.info.provider, claim.info.name) for claim in feed.claims()}),
        age_seconds=None if snapshot is None else max(0.0, now - snapshot.fetched_at),
        fault=feed.fault,
    )


def _counts(info: ModelInfo | None, name: str, claim: Claim) -> bool:
    if info is None or info.provenance.get(name) != claim.source:
        return False
    return bool(getattr(info, name) == getattr(claim.info, name)) or name == "aliases"
