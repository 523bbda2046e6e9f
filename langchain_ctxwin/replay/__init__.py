"""Recorded conversations through a policy and a window: what it would cost, and what would be lost. No model is called.

read_conversations(paths)  ->  compare(conversations, policies, window)  ->  ReplayResult per policy
"""

from langchain_ctxwin.replay.page import page
from langchain_ctxwin.replay.playing import (
    ReplayResult,
    Sent,
    compare,
    quiet,
    recommended,
    replay,
)
from langchain_ctxwin.replay.policies import PLAIN, Policy, candidates
from langchain_ctxwin.replay.reading import Conversation, LeftOut, read_conversations

__all__ = [
    "PLAIN",
    "Conversation",
    "LeftOut",
    "Policy",
    "ReplayResult",
    "Sent",
    "candidates",
    "compare",
    "page",
    "quiet",
    "read_conversations",
    "recommended",
    "replay",
]
