"""Cached content of the Gemini API: what a client may store, for how long, and what a request then sees.

Sources: https://ai.google.dev/gemini-api/docs/caching and https://ai.google.dev/api/caching; the texts are the API's
own. An unknown, deleted or expired cache is a 403, never a 404.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from support import gemini_rules
from support.loopback import Call, RefusalError

MIN_CACHED_TOKENS = 1024  # 4,096 for the Pro models
DEFAULT_TTL_SECONDS = 3600.0
FORBIDDEN = ("systemInstruction", "tools", "toolConfig")
KEPT = ("contents", *FORBIDDEN)

Body = dict[str, Any]


class CachedContents:
    """The caches of one server: create, read, list, prolong, delete."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._caches: dict[str, Body] = {}
        self._expiry: dict[str, float] = {}

    def answer(self, call: Call, name: str) -> Body:
        """Answer a request to `/v1beta/cachedContents`."""
        if call.method == "POST":
            return self._create(call.body)
        if name == "cachedContents":
            alive = [
                self._stated(each)
                for each in self._caches
                if self._clock() < self._expiry[each]
            ]
            return {"cachedContents": alive} if alive else {}
        self._cache(name)
        if call.method == "PATCH":
            self._expiry[name] = self._until(call.body)
        if call.method == "DELETE":
            del self._caches[name]
            return {}
        return self._stated(name)

    def merged(self, body: Body, model: str) -> Body:
        """Return a request together with the cache that it names; what both may not say is refused."""
        if not body.get("cachedContent"):
            return body
        cache = self._cache(body["cachedContent"])
        if any(body.get(key) for key in FORBIDDEN):
            raise RefusalError(
                "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
                "tool_config.\n\nProposed fix: move those values to CachedContent from GenerateContent request."
            )
        if cache["model"] != f"models/{model}":
            names = f"GenerateContent request (models/{model}) and CachedContent ({cache['model']})"
            raise RefusalError(f"Model used by {names} has to be the same.")
        contents = [*(cache.get("contents") or []), *(body.get("contents") or [])]
        return {
            **body,
            **{key: cache[key] for key in FORBIDDEN if key in cache},
            "contents": contents,
        }

    def tokens(self, body: Body) -> int:
        """Return the size of the cache that a request names."""
        return (
            _tokens(self._caches[body["cachedContent"]])
            if body.get("cachedContent")
            else 0
        )

    def _create(self, body: Body) -> Body:
        size = _tokens(body)
        if size < MIN_CACHED_TOKENS:
            limits = (
                f"total_token_count={size}, min_total_token_count={MIN_CACHED_TOKENS}"
            )
            raise RefusalError(f"Cached content is too small. {limits}")
        name = f"cachedContents/{next(self._numbers)}"
        self._caches[name] = {
            "model": body["model"],
            **{key: body[key] for key in KEPT if body.get(key)},
        }
        self._expiry[name] = self._until(body)
        return self._stated(name)

    def _cache(self, name: str) -> Body:
        if name not in self._caches or self._clock() >= self._expiry[name]:
            raise RefusalError(
                "CachedContent not found (or permission denied)", status=403
            )
        return self._caches[name]

    def _until(self, body: Body) -> float:
        if body.get("expireTime"):
            return datetime.fromisoformat(body["expireTime"]).timestamp()
        ttl = body.get("ttl")
        return self._clock() + (
            float(ttl.removesuffix("s")) if ttl else DEFAULT_TTL_SECONDS
        )

    def _stated(self, name: str) -> Body:
        """Return what the API says of a cache: not its content."""
        expires = datetime.fromtimestamp(self._expiry[name], UTC).isoformat()
        usage = {"totalTokenCount": _tokens(self._caches[name])}
        return {
            "name": name,
            "model": self._caches[name]["model"],
            "expireTime": expires,
            "usageMetadata": usage,
        }


def _tokens(body: Body) -> int:
    return sum(tokens for _, tokens in gemini_rules.unit_tokens(body))
