"""Which conversation does a request belong to, and which model has it so far?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.runnables.config import ensure_config

from langchain_ctxwin.core.edits import compact_json

MAX_CONVERSATIONS = 10_000
"""Conversations whose model is remembered, about 2 MB; one that is forgotten is routed anew."""

KEY_BYTES = 12
"""Length of a digest: by chance, two of as many conversations share one in 10**21 cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The model that a conversation stays with."""

    name: str
    seen_tokens: int
    """Size of the last request it got: as much of the next one is in its prompt cache."""


def conversation_key(messages: Sequence[AnyMessage], config: Mapping[str, Any] | None = None) -> str:
    """Return the thread id of a run, else a fingerprint of the conversation's first message.

    Args:
        messages: the request; system messages do not tell conversations apart, so the first other one counts.
        config: the run's config; None takes that of the surrounding run, if there is one.
    """
    thread = thread_key(config)
    if thread:
        return thread
    first = next((m for m in messages if not isinstance(m, SystemMessage)), messages[0] if messages else None)
    if first is None:
        return ""
    text = f"{first.type}\0{compact_json(first.content)}".encode("utf-8", "surrogatepass")
    return f"first:{hashlib.blake2b(text, digest_size=KEY_BYTES).hexdigest()}"


def thread_key(config: Mapping[str, Any] | None = None) -> str:
    """Return the key of a run's thread, else an empty string; `config` as for `conversation_key`."""
    configurable = ensure_config(config).get("configurable") or {}  # type: ignore[arg-type]  # a config is a mapping
    thread = configurable.get("thread_id")
    return "" if thread is None or thread == "" else f"thread:{thread}"
