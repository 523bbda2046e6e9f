"""A provider's prompt cache: which start of a request was seen before, and is still kept."""

import hashlib
import time
from dataclasses import dataclass

MIN_CACHED_TOKENS = 1024  # the least that both providers cache for most models
# Anthropic checks so many positions per breakpoint, itself the first
LOOK_BACK_BLOCKS = 20
STEP_TOKENS = 128  # OpenAI matches so many tokens at a time
FIVE_MINUTES, HALF_HOUR, ONE_HOUR = 300.0, 1800.0, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of the prompt, in prompt order."""

    key: str
    tokens: int
    ttl_seconds: float | None = None
    """How long the prompt up to here is to be kept; None without a breakpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """How the tokens of one prompt are billed."""

    read: int
    written_5m: int = 0
    written_1h: int = 0
    fresh: int


@dataclass(slots=True)
class _Entry:
    ttl_seconds: float
    expires_at: float


class PromptCache:
    """Remembers starts of prompts until their time is over; a hit begins that time anew."""

    def __init__(self):
        self._entries = {}

    def bill(self, blocks, *, scope, look_back=LOOK_BACK_BLOCKS):
        """Bill a prompt by its breakpoints, as Anthropic does, and keep what they ask for.

        Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching (up to 20 positions back from each
        breakpoint; tokens between the hit and the last 1 h breakpoint are 1 h writes, the rest 5 min writes).
        """
        keys, sizes = _prefixes(blocks, scope)
        marks = [
            i
            for i, block in enumerate(blocks)
            if block.ttl_seconds and sizes[i] >= MIN_CACHED_TOKENS
        ]
        looked = (j for i in marks for j in range(i, max(-1, i - look_back), -1))
        hit = max((j for j in looked if self._kept(keys[j])), default=None)
        read = 0 if hit is None else sizes[hit]
        long = max(
            (sizes[i] for i in marks if blocks[i].ttl_seconds == ONE_HOUR), default=0
        )
        until = sizes[marks[-1]] if marks else 0
        for i in marks:
            self._keep(keys[i], blocks[i].ttl_seconds or FIVE_MINUTES)
        if hit is not None:
            self._keep(keys[hit], self._entries[keys[hit]].ttl_seconds)
        written_1h = max(0, long - read)
        written_5m = max(0, until - read - written_1h)
        return CacheUse(
            read=read,
            written_5m=written_5m,
            written_1h=written_1h,
            fresh=(sizes[-1] if sizes else 0) - read - written_1h - written_5m,
        )

    def bill_steps(self, blocks, *, scope, ttl_seconds):
        """Bill a prompt whose start is kept without being asked, as OpenAI does, and keep all of it.

        Source: https://developers.openai.com/api/docs/guides/prompt-caching (from 1,024 tokens on, in steps of 128).
        Here a start ends at the end of a block: the real one may match a part of one.
        """
        keys, sizes = _prefixes(blocks, scope)
        shared = max(
            (size for key, size in zip(keys, sizes, strict=True) if self._kept(key)),
            default=0,
        )
        for key in keys:
            self._keep(key, ttl_seconds)
        read = shared - shared % STEP_TOKENS if shared >= MIN_CACHED_TOKENS else 0
        return CacheUse(read=read, fresh=(sizes[-1] if sizes else 0) - read)

    def _kept(self, key):
        return key in self._entries and time.time() < self._entries[key].expires_at

    def _keep(self, key, ttl_seconds):
        self._entries[key] = _Entry(ttl_seconds, time.time() + ttl_seconds)


def _prefixes(blocks, scope):
    """Return key and size of the prompt up to and with each block."""
    digest, size = hashlib.sha256(scope.encode()), 0
    keys, sizes = [], []
    for block in blocks:
        digest.update(f"{len(block.key)}:{block.key}".encode())
        size += block.tokens
        keys.append(digest.hexdigest())
        sizes.append(size)
    return keys, sizes
