"""What a sequence of requests costs under cached-prefix pricing, in units of one uncached input token."""

from __future__ import annotations

from dataclasses import dataclass, fields

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

import exact
from langchain_ctxwin import ExtractiveSummarizer, TokenEstimator
from transcripts import Transcript

CACHE_BLOCK_TOKENS = 128  # OpenAI's prompt caching guide: hits grow in blocks of 128 tokens ...
CACHE_MIN_TOKENS = 1_024  # ... from 1,024 on; Anthropic's and Gemini's least sizes are of the same order
SUMMARY_PROMPT_TOKENS = 200  # instructions of a summarizer call
SUMMARY_OUTPUT_PRICE = 5.0  # Anthropic's ratio; OpenAI and Gemini publish 4 to 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Relative prices; `read` and `write` are for input that the cache holds, and for input that it does not."""

    name: str
    read: float
    write: float = 1.0
    pauses: bool = False
    """The cache expires while the user thinks: the first request of a turn finds nothing."""


# Published price lists (openai.com/api/pricing, claude.com/pricing, ai.google.dev/gemini-api/docs/pricing), as ratios.
PRICES = (
    Price(name="r=.1", read=0.1),  # GPT-5 class, Gemini 2.5 and later
    Price(name="r=.1 w=1.25", read=0.1, write=1.25),  # Anthropic: a five-minute write costs a quarter more
    Price(name="pauses", read=0.1, pauses=True),
    Price(name="r=.25", read=0.25),  # GPT-4.1 class
    Price(name="r=.5", read=0.5),  # GPT-4o class
    Price(name="cold", read=1.0),  # nothing is cached, or it expired before every request
)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Sums over the requests of one or more sessions; every price is linear in them."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cached_in_turn_tokens: int = 0
    summaries: int = 0
    summary_input_tokens: int = 0
    summary_output_tokens: int = 0
    compactions: int = 0
    forced: int = 0
    """Of these, the ones that no summary went with: too late for one, or none would have been enough."""

    kept_tokens: int = 0
    """History that was shown verbatim, summed over requests."""

    kept_share: float = 0.0
    """The same as a share of the whole history so far, summed over requests."""

    stable: float = 0.0
    """Common prefix with the request before as a share of that request, summed."""

    refused: int = 0
    """Requests that no policy could make."""

    def add(self, other: Ledger) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def record(self, tokens: int, common: int, *, starts_turn: bool, previous: int) -> None:
        """Note one request: its size, what it shares with the one before, and the size of that one."""
        cached = common // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS if common >= CACHE_MIN_TOKENS else 0
        self.requests += 1
        self.input_tokens += tokens
        self.cached_tokens += cached
        self.cached_in_turn_tokens += 0 if starts_turn else cached
        self.stable += common / previous if previous else 1.0

    def cost(self, price: Price) -> float:
        """Return the price of it all; the answers are left out, because they are the same under every policy."""
        cached = self.cached_in_turn_tokens if price.pauses else self.cached_tokens
        requests = price.read * cached + price.write * (self.input_tokens - cached)
        return requests + self.summary_input_tokens + SUMMARY_OUTPUT_PRICE * self.summary_output_tokens


class BilledSummarizer:
    """The extractive summarizer, billed as if a model had read the snapshot and written the text."""

    def __init__(self, ledger: Ledger, family: str) -> None:
        self._ledger = ledger
        self._extract = ExtractiveSummarizer(counter=TokenEstimator(family))

    def summarize(self, messages: list[AnyMessage], *, previous: str, max_tokens: int) -> str:
        text = self._extract.summarize(messages, previous=previous, max_tokens=max_tokens)
        self._ledger.summaries += 1
        read = sum(map(exact.message_tokens, messages)) + exact.text_tokens(previous)
        self._ledger.summary_input_tokens += read + SUMMARY_PROMPT_TOKENS
        self._ledger.summary_output_tokens += exact.text_tokens(text)
        return text


def never_compacted(transcript: Transcript) -> Ledger:
    """The same requests with the whole history, as if it always fitted."""
    ledger, previous = Ledger(), 0
    total, asked = exact.tools_tokens(transcript.tools) + exact.REPLY_TOKENS, False
    history, starts_turn = 0, True
    for message in transcript.messages:
        if message.type == "ai" and asked:
            ledger.record(total, previous, starts_turn=starts_turn, previous=previous)
            ledger.kept_tokens, ledger.kept_share = ledger.kept_tokens + history, ledger.kept_share + 1.0
            previous, starts_turn = total, False
        asked, starts_turn = (
            asked or isinstance(message, HumanMessage),
            starts_turn or isinstance(message, HumanMessage),
        )
        total += exact.message_tokens(message)
        history += 0 if isinstance(message, SystemMessage) else exact.message_tokens(message)
    return ledger


def size_of(transcript: Transcript) -> int:
    return exact.tools_tokens(transcript.tools) + sum(map(exact.message_tokens, transcript.messages))
