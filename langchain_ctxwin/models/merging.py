"""Merging: one `ModelInfo` from what several sources say, by trust, of catalogs the smaller limit, conflicts kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_ctxwin.core.limits import GUESS_FACTOR, ModelLimits
from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo

TIERS = ("explicit", "learned", "provider", "profile", "catalog", "guess")
"""Kinds of sources in order of trust."""

CATALOG = "catalog"
GUESS = "guess"
LEARNED = "learned"
"""The tier, and by default the source, of what was learned."""

LIMIT_FIELDS = ("context_window", "max_input_tokens", "max_output_tokens")

CAUTIOUS_FIELDS = frozenset({*LIMIT_FIELDS, "retires_on"})
"""Fields of which the smallest value counts inside the catalog tier: none of the tables is better than the others, a
limit that is too large fails requests, and a retirement that is noticed too late does too."""

FIELDS = (*LIMIT_FIELDS, *PRICE_FIELDS, "capabilities", "tokenizer_family", "retires_on")
"""Fields that have one value; `deprecated` and `aliases` are collected from all sources instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one source says about one model."""

    source: str
    tier: str
    info: ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """One value of one field."""

    source: str
    tier: str
    value: Any

    @property
    def rank(self) -> int:
        return TIERS.index(self.tier)


_Values = Mapping[str, Sequence[_Stated]]
_Taken = dict[str, _Stated]


def in_order(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims by trust; those of one tier stay in their order."""
    return sorted(claims, key=lambda claim: TIERS.index(claim.tier))


def merged(name: str, provider: str | None, claims: Iterable[Claim]) -> ModelInfo:
    """Return one `ModelInfo` from all claims about a model; never raises, whatever they contradict.

    Per field the first tier that states it counts, and in it the first source; of catalogs the smallest limit.
    `conflicts` keeps every other value. Limits of different sources that contradict each other:

    - An input limit above the window: the less trusted of both leaves. A window that had to leave is replaced by the
      input limit, because a window is at least as large as what goes in; in the same tier the window stays.
    - An output limit above the window leaves: requests are sized by the window.
    """
    ordered = in_order(claims)
    values = {field: _stated(ordered, field) for field in FIELDS}
    taken = {field: _first(field, stated) for field, stated in values.items() if stated}
    _reconcile(taken)
    provenance = {field: stated.source for field, stated in taken.items()} | _collected_provenance(ordered)
    return ModelInfo(
        name=name,
        provider=provider,
        deprecated=any(claim.info.deprecated for claim in ordered),
        aliases=_aliases(name, ordered),
        provenance=provenance,
        conflicts=_conflicts(values, taken),
        **{field: stated.value for field, stated in taken.items()},
    )


def guessed(info: ModelInfo) -> ModelInfo:
    """Return the facts with a window guessed from the output limit, where no input limit is known; else unchanged."""
    if info.limits.known or info.max_output_tokens is None:
        return info
    window = GUESS_FACTOR * info.max_output_tokens
    return replace(info, context_window=window, provenance={**info.provenance, "context_window": GUESS})


def declared_limits(info: ModelInfo) -> ModelLimits:
    """Return the limits that a model is declared to have, by others than its refusals."""
    return ModelLimits(_declared(info, "context_window") or _declared(info, "max_input_tokens"))


def _declared(info: ModelInfo, field: str) -> int | None:
    """The largest value of a limit that somebody stated, those apart that were learned."""
    stated: list[tuple[str, object]] = [(info.provenance.get(field, ""), getattr(info, field))]
    stated += info.conflicts.get(field, {}).items()
    values = [tokens for source, tokens in stated if isinstance(tokens, int) and not source.startswith(LEARNED)]
    return max(values, default=None)


def stated_value(info: ModelInfo, field: str) -> Any:
    """Return what a source states about a field, or None when it states nothing."""
    value = getattr(info, field)
    return None if value is False or value in ((), frozenset()) else value


def _stated(ordered: Sequence[Claim], field: str) -> list[_Stated]:
    found = ((claim, stated_value(claim.info, field)) for claim in ordered)
    return [_Stated(source=claim.source, tier=claim.tier, value=value) for claim, value in found if value is not None]


def _first(field: str, stated: Sequence[_Stated]) -> _Stated:
    first = stated[0]
    if first.tier != CATALOG or field not in CAUTIOUS_FIELDS:
        return first
    return min((one for one in stated if one.tier == CATALOG), key=lambda one: one.value)


def _reconcile(taken: _Taken) -> None:
    """Drop what contradicts better statements, so that the limits can stand together."""
    window, largest_input = taken.get("context_window"), taken.get("max_input_tokens")
    if window and largest_input and largest_input.value > window.value:
        if largest_input.rank < window.rank:
            taken["context_window"] = largest_input
        else:
            del taken["max_input_tokens"]
    window, largest_output = taken.get("context_window"), taken.get("max_output_tokens")
    if window and largest_output and largest_output.value > window.value:
        del taken["max_output_tokens"]


def _conflicts(values: _Values, taken: _Taken) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for field, stated in values.items():
        winner = taken.get(field)
        others = {(one.source, one.value): None for one in stated if winner is None or one.value != winner.value}
        if others:
            found[field] = _labelled(others)
    return found


def _labelled(others: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Values by their source; a source that contradicts itself gets numbered entries."""
    kept: dict[str, object] = {}
    numbers: dict[str, int] = {}
    for source, value in others:
        label = source
        while label in kept:  # each number is tried once, however many values there are
            numbers[source] = numbers.get(source, 1) + 1
            label = f"{source} #{numbers[source]}"
        kept[label] = value
    return kept


def _collected_provenance(ordered: Sequence[Claim]) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in ("deprecated", "aliases"):
        sources = (claim.source for claim in ordered if stated_value(claim.info, field) is not None)
        if (source := next(sources, None)) is not None:
            found[field] = source
    return found


def _aliases(name: str, ordered: Sequence[Claim]) -> tuple[str, ...]:
    names = (other for claim in ordered for other in (claim.info.name, *claim.info.aliases))
    return tuple(dict.fromkeys(other for other in names if other != name))
