"""Servers that refuse, cut and count in ways of their own: what becomes of recorded conversations with them?"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
from langchain_core.messages import AIMessage, AnyMessage

import exact
from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits, TokenEstimator
from langchain_ctxwin.core.limits import NamedLimits
from replay import RefusedError, Replay
from transcripts import Transcript

WINDOW, RESERVE, FAMILY = 16_384, 0.25, "openai"
SMALL_SHARE = 0.5  # of the limit that we were told: what the server really has
JUMPS_EVERY = 5
CONVERSATIONS = 3
DENSITY = 1.5

Tally = Counter[str]


class Server(Replay):
    """One conversation with a server whose limit may be smaller than what we were told."""

    has_small_limit = True

    def __init__(self, transcript: Transcript, **options: Any) -> None:
        super().__init__(transcript, WINDOW, options.pop("settings", {}), FAMILY, RESERVE, **options)
        self.tally, self.true_limit = Tally(), int(self.limit * SMALL_SHARE) if self.has_small_limit else self.limit
        self.answers, self.session_tokens, self.cached_tokens = 0, 0, 0

    def answer(self, request: list[AnyMessage]) -> AIMessage:
        tokens = exact.request_tokens(request, self.transcript.tools)
        self.tally["requests"] += 1
        if tokens > self.true_limit and (refusal := self.refusal(tokens)):
            self.tally["refused"] += 1
            raise RefusedError(refusal)
        self.tally["answered"] += 1
        self.tally["cut"] += tokens > self.true_limit
        self.tally["filled"] += min(1.0, tokens / self.true_limit)
        self.answers += 1
        reported = self.reported(tokens)
        self.sent, self.sent_tokens = request, tokens
        usage = {"input_tokens": reported, "output_tokens": 10, "total_tokens": reported + 10}
        assert self.reply is not None
        return self.reply.model_copy(update={"usage_metadata": usage if reported else None})

    def refusal(self, tokens: int) -> str:
        return f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({self.true_limit})."

    def reported(self, tokens: int) -> int:
        return tokens


class Stating(Server):
    """It refuses and says how much it takes."""


class StatingAgain(Server):
    """The same for three conversations of one engine, whose model has a name."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        limits = ModelLimits(context_window=WINDOW, requested_output_tokens=WINDOW - self.limit)
        engine = ContextEngine(NamedLimits(limits, "a-model"), counter=TokenEstimator(FAMILY))
        self.nodes = ContextNodes(engine, tools=transcript.tools)
        self.model = self.nodes.model_node(self.answer)

    def run(self) -> Any:
        transcript, state = self.transcript, {}
        for number in range(CONVERSATIONS):
            messages = [m.model_copy(update={"id": f"{number} {m.id}"}) for m in transcript.messages]
            self.transcript, self.sent = replace(transcript, messages=messages), None
            state = super().run()
        return state


class Silent(Server):
    """It refuses without a figure."""

    def refusal(self, tokens: int) -> str:
        del tokens
        return "prompt is too long"


class Cutting(Server):
    """It drops what it has no room for, and reports what it kept."""

    def refusal(self, tokens: int) -> str:
        del tokens
        return ""

    def reported(self, tokens: int) -> int:
        return min(tokens, self.true_limit)


class Halving(Cutting):
    """It keeps half of its window of what is too long."""

    def reported(self, tokens: int) -> int:
        return tokens if tokens <= self.true_limit else self.true_limit // 2


class Roomy(Server):
    """Its limit is the one that we were told."""

    has_small_limit = False


class Summing(Roomy):
    """It reports the sum of the session."""

    def reported(self, tokens: int) -> int:
        self.session_tokens += tokens
        return self.session_tokens


class Uncached(Roomy):
    """It leaves out what was cached."""

    def reported(self, tokens: int) -> int:
        before, self.cached_tokens = self.cached_tokens, tokens
        return tokens - before if tokens > before else tokens


class Jumping(Roomy):
    """Now and then it reports the sum of several chunks."""

    def reported(self, tokens: int) -> int:
        return 4 * tokens if self.answers % JUMPS_EVERY == 0 else tokens


class Dense(Server):
    """Its tokenizer needs half as many tokens again for the same text."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self.true_limit = int(self.limit / DENSITY)

    def refusal(self, tokens: int) -> str:
        return f"The input token count ({self.reported(tokens)}) exceeds the maximum of {self.limit} tokens allowed."

    def reported(self, tokens: int) -> int:
        return int(DENSITY * tokens)


class Mute(Roomy):
    """It reports nothing."""

    def reported(self, tokens: int) -> int:
        del tokens
        return 0


class NeverWriting:
    """A summarizer that always fails."""

    def __init__(self) -> None:
        self.calls = 0

    def summarize(self, messages: list[Any], *, previous: str, max_tokens: int) -> str:
        del messages, previous, max_tokens
        self.calls += 1
        raise RuntimeError("no answer")


class FailingSummaries(Roomy):
    """Its summaries fail; as refused ones the attempts are counted."""

    def __init__(self, transcript: Transcript) -> None:
        self.writer = NeverWriting()
        super().__init__(transcript, settings={"summarize": "inline"}, summarizer=self.writer)

    def run(self) -> Any:
        found = super().run()
        self.tally["refused"] += self.writer.calls
        return found


SERVERS: dict[str, Callable[[Transcript], Server]] = {
    "states limit": Stating,
    "states limit, 3 conversations": StatingAgain,
    "refuses": Silent,
    "cuts": Cutting,
    "keeps half": Halving,
    "sums session": Summing,
    "uncached only": Uncached,
    "jumps": Jumping,
    "dense": Dense,
    "mute": Mute,
    "summaries fail": FailingSummaries,
}


def served(name: str, transcript: Transcript) -> Tally:
    """Play a conversation with one of the servers."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    server = SERVERS[name](transcript)
    server.run()
    server.tally["gave up"] += server.found["gave_up"] + server.found["refusals"]
    return server.tally
