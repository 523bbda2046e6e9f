"""Recorded conversations through a policy and a window: what it would cost, and what would be lost. No model is called.

read_conversations(paths)  ->  compare(conversations, policies, window)  ->  ReplayResult per policy
"""

from langchain_ctxwin.replay.playing import Policy, ReplayResult, compare, replay
from langchain_ctxwin.replay.reading import read_conversations

__all__ = [
    "Policy",
    "ReplayResult",
    "compare",
    "read_conversations",
    "replay",
]
