"""Settings from the front of cost and sufficiency: the cheapest of those that show nearly as much as the best."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.errors import ConfigError
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
    """Return the cheapest of the results that leave no more requests unsent, and show nearly as much, as the best.

    Raises:
        ConfigError: nothing had to leave, or nothing that was needed had been seen before: all settings are as good.
    """
    fewest = min((result.unsent for result in results), default=0)
    telling = [result for result in results if result.unsent == fewest and result.sent and result.needed]
    if not telling:
        raise ConfigError(
            "nothing to recommend by: no call needed what had to leave before it; give longer "
            "conversations or a smaller --window"
        )
    best = max(result.shown / result.needed for result in telling)
    good = [result for result in telling if result.shown / result.needed >= best - TOLERATED_LOSS]
    return min(good, key=lambda result: result.billed_per_request)
