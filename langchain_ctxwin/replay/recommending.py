"""Settings from the front of cost and sufficiency: the cheapest of those that show nearly as much as the best."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.replay.playing import ReplayResult
from langchain_ctxwin.replay.policies import Policy

KEEPS = (0.1, 0.15, 0.3, 0.5)
RECORD_SHARES = (0.15, 0.28)
"""What is tried: how much a compaction leaves, and how much of the room the record may take."""

TOLERATED_LOSS = 0.01
"""Sufficiency that may be given up for a lower bill: one value in a hundred."""


def candidates() -> list[Policy]:
    """Return the settings that a recommendation chooses from, each named by the TOML that sets it."""
    tried = [ContextConfig(keep=keep, record_share=share) for keep in KEEPS for share in RECORD_SHARES]
    return [Policy(name=f"keep = {one.keep}\nrecord_share = {one.record_share}", config=one) for one in tried]


def recommended(results: Sequence[ReplayResult]) -> ReplayResult:
    """Return the cheapest of the results that refuse nothing more, and show nearly as much, as the best.

    Raises:
        ValueError: there are no results.
    """
    fewest = min(result.refused for result in results)
    sound = [result for result in results if result.refused == fewest]
    best = max(result.sufficiency or 0.0 for result in sound)
    good = [result for result in sound if (result.sufficiency or 0.0) >= best - TOLERATED_LOSS]
    return min(good, key=lambda result: result.billed_per_request)
