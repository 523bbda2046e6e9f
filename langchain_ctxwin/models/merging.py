"""Merging: one `ModelInfo` from what several sources say, by trust, of catalogs the smaller limit, conflicts kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_ctxwin.core.limits import GUESS_FACTOR, ModelLimits
from langchain_ctxwin.core.model_info import LIMIT_FIELDS, PRICE_FIELDS, ModelInfo

TIERS = ("explicit", "learned", "provider", "profile", "catalog", "guess")  # kinds of sources in order of trust
LEARNED, CATALOG, GUESS = "learned", "catalog", "guess"

# Of these the smallest value counts inside the catalog tier: none of the tables is better than the others, a limit that
# is too large fails requests, and a retirement that is noticed too late does too.
CAUTIOUS_FIELDS = frozenset({*LIMIT_FIELDS, "retires_on"})

# These have one value; `deprecated` and `aliases` are collected from all sources instead.
FIELDS = (*LIMIT_FIELDS, *PRICE_FIELDS, "capabilities", "tokenizer_family", "retires_on")
SHOWN_FIELDS = (*FIELDS, "deprecated", "aliases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one source says about one model."""

    source: str
    tier: str
    info: ModelInfo


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
    stated: dict[str, list[tuple[Claim, Any]]] = {}
    taken: dict[str, tuple[Claim, Any]] = {}
    for field in SHOWN_FIELDS:
        said = [(claim, value) for claim in ordered if (value := stated_value(claim.info, field)) is not None]
        if said:
            is_cautious = said[0][0].tier == CATALOG and field in CAUTIOUS_FIELDS
            of_catalogs = (one for one in said if one[0].tier == CATALOG)
            stated[field], taken[field] = said, min(of_catalogs, key=lambda one: one[1]) if is_cautious else said[0]
    _reconcile(taken)
    values = {field: value for field, (_, value) in taken.items()}
    names = (other for claim in ordered for other in (claim.info.name, *claim.info.aliases))
    values["aliases"] = tuple(dict.fromkeys(other for other in names if other != name))
    others = {field: _others(stated[field], values.get(field)) for field in FIELDS if field in stated}
    return ModelInfo(
        name=name,
        provider=provider,
        **values,
        provenance={field: claim.source for field, (claim, _) in taken.items()},
        conflicts={field: left for field, left in others.items() if left},
    )


def _reconcile(taken: dict[str, tuple[Claim, Any]]) -> None:
    """Drop what contradicts better statements, so that the limits can stand together."""
    window, largest_input = taken.get("context_window"), taken.get("max_input_tokens")
    if window and largest_input and largest_input[1] > window[1]:
        if TIERS.index(largest_input[0].tier) < TIERS.index(window[0].tier):
            window = taken["context_window"] = largest_input
        else:
            del taken["max_input_tokens"]
    if window and "max_output_tokens" in taken and taken["max_output_tokens"][1] > window[1]:
        del taken["max_output_tokens"]


def _others(stated: Sequence[tuple[Claim, Any]], taken: object) -> dict[str, object]:
    """The values that were not taken, by source; further ones of a source that contradicts itself are numbered."""
    others: dict[str, object] = {}
    numbers: Counter[str] = Counter()
    for source, value in dict.fromkeys((claim.source, value) for claim, value in stated if value != taken):
        numbers[source] += 1
        others[source if numbers[source] == 1 else f"{source} ({numbers[source]})"] = value
    return others


def stated_value(info: ModelInfo, field: str) -> Any:
    """Return what a source states about a field, or None when it states nothing."""
    value = getattr(info, field)
    return None if value is False or value in ((), frozenset()) else value


def guessed(info: ModelInfo) -> ModelInfo:
    """Return the facts with a window guessed from the output limit, where no input limit is known; else unchanged."""
    if info.limits.known or info.max_output_tokens is None:
        return info
    window = GUESS_FACTOR * info.max_output_tokens
    return replace(info, context_window=window, provenance={**info.provenance, "context_window": GUESS})


def declared_limits(info: ModelInfo) -> ModelLimits:
    """Return the limits that a model is declared to have, by others than its refusals: the largest value."""
    for field in ("context_window", "max_input_tokens"):
        stated: list[tuple[str, object]] = [(info.provenance.get(field, ""), getattr(info, field))]
        stated += info.conflicts.get(field, {}).items()
        values = [tokens for source, tokens in stated if isinstance(tokens, int) and not source.startswith(LEARNED)]
        if values:
            return ModelLimits(max(values))
    return ModelLimits()
