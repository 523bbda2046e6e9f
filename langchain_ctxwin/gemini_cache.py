"""Gemini's explicit cache: the system prompt and the tools of an agent are stored once, and named in each request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import SystemMessage

from langchain_ctxwin.core.provider_call import cache_key
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru

# Smallest content that the API caches (Gemini API, caching guide); some models want four times as much, and say so.
LEAST_CACHED_TOKENS = 1_024
RENEWED_SECONDS = 60.0  # stored again so long before it expires: longer than a call takes to arrive
REFUSED_SECONDS = 600.0  # nothing is stored after a refusal: what is too small stays too small, a fault may pass
MAX_STORED = 64  # prompts of one engine whose names are kept; losing one costs storing it again


class GeminiCache:
    """The stored prompts of one engine; thread-safe."""

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock = clock
        self._stored: Lru[tuple[str, float]] = Lru(MAX_STORED)

    def name(self, model: Any, system: SystemMessage | None, tools: Sequence[Any], *, key: str, ttl: float) -> str:
        """Return the name under which a prompt is stored, storing it where it is not; empty when it cannot be.

        `model` is a `ChatGoogleGenerativeAI`, `key` what tells this prompt apart from others, and `ttl` how long it is
        stored, in seconds; each hour is billed.
        """
        place = cache_key(key)
        known = self._stored.get(place)
        if known is not None and self._clock() < known[1]:
            return known[0]
        from langchain_google_genai import create_context_cache  # noqa: PLC0415  # takes a second

        try:
            name = create_context_cache(
                model, messages=[system] if system else [], tools=list(tools) or None, ttl=f"{ttl:.0f}s"
            )
        except Exception as error:  # noqa: BLE001  # the request is sent whole, whatever the cache says
            log.warning("gemini_cache.refused", reason=type(error).__name__, instead="the whole prompt is sent")
            name, kept_seconds = "", REFUSED_SECONDS
        else:
            kept_seconds = ttl - RENEWED_SECONDS
        return self._stored.put(place, (name, self._clock() + kept_seconds))[0]

    async def aname(
        self, model: Any, system: SystemMessage | None, tools: Sequence[Any], *, key: str, ttl: float
    ) -> str:
        """Like `name`, in a thread."""
        return await asyncio.to_thread(self.name, model, system, tools, key=key, ttl=ttl)

    def forget(self, key: str) -> None:
        """Let go of a prompt that the API no longer has."""
        self._stored.drop(cache_key(key))


def is_gone(error: BaseException) -> bool:
    """True for the refusal of a stored prompt that has expired or was deleted: a 403, by the API's own word."""
    texts = (str(one) for one in (error, error.__cause__) if one is not None)
    return any("cachedcontent" in text.replace(" ", "").lower() and "403" in text for text in texts)
