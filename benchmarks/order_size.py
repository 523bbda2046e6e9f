"""How large is the cheapest batch to summarize, in closed form, and does it agree with what was measured?

In tokens: the history grows by g per request between a low K = keep * R and a high T = trigger * R, where R is the room
for history; the batch is B = T - K, so a compaction comes every B / g requests. A cached token costs r, one that is not
w. Per request, fixed regions and new tokens aside,

    c(K, B) = r * (K + B / 2)   the history is read from the cache
            + g                 every token is read once by the summarizer
            + g / B * A         per compaction, A = (w - r) * (K + S) + (1 + o) * S: what was kept and the summary miss
                                the cache once; the summarizer reads the old summary and writes a new one, at o a token

This is the economic order quantity: a setup cost A per batch, a holding cost r / 2 per token, so

    B* = sqrt(2 * g * A / r)        the cheapest batch for a given low-water mark, whatever the window

Three things follow. A larger K costs more at every B: keep is bought, not optimized. B* does not know the window: when
K + B* is beyond T = R, fill the window (later and larger is cheaper); when it is below, a cap of K + B* on the history
is cheaper than the window. And at equal mean history H = K + B / 2 the cost falls with B all the way, so that late and
large is the efficient form of any amount of context. Steps are not infinitely small: the one that crosses a mark is
E[g^2] / E[g] long, so that T is passed and K is missed by half of that each, which matters in small windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import mean, quantiles
from typing import Any

from langchain_core.messages import AIMessage, SystemMessage

import exact
from spending import SUMMARY_OUTPUT_PRICE, Ledger, Price
from transcripts import Transcript

Cell = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session: how many requests, what is in all of them, what each adds."""

    requests: int
    fixed_tokens: int
    growth_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What the closed form needs to know of the sessions, in tokens."""

    sessions: tuple[Session, ...]
    room_tokens: float
    growth_tokens: float
    """Per request."""

    crossing_tokens: float
    """Length of the step that crosses a mark."""

    summary_tokens: float


def flow_of(chosen: Sequence[Transcript], limit: int, ledgers: Sequence[Ledger]) -> Flow:
    """Read the flow off the sessions, and the size of a summary off the measured runs."""
    fixed = mean(map(_fixed, chosen))
    growths = [tokens for t in chosen for tokens in _growths(t)]
    written = sum(ledger.summary_output_tokens for ledger in ledgers) / max(
        1, sum(ledger.summaries for ledger in ledgers)
    )
    return Flow(
        sessions=tuple(_session(t) for t in chosen),
        room_tokens=limit - fixed - written,
        growth_tokens=mean(growths),
        crossing_tokens=sum(tokens**2 for tokens in growths) / sum(growths),
        summary_tokens=written,
    )


def cheapest_batch(flow: Flow, price: Price, keep: float) -> float:
    """Return B* as a share of the room."""
    return sqrt(2 * flow.growth_tokens * _setup(flow, price, keep) / price.read) / flow.room_tokens


def predicted(flow: Flow, price: Price, keep: float, trigger: float) -> float:
    """Return the cost of all requests: each session first fills the room up to the trigger, then goes in cycles."""
    low, high = keep * flow.room_tokens, trigger * flow.room_tokens
    batch = high - low + min(flow.crossing_tokens, low)
    setup = _setup(flow, price, keep) + batch
    total = 0.0
    for session in flow.sessions:
        growth, count = session.growth_tokens, session.requests
        filling = min(count, high / growth)
        cycling = count - filling
        held = filling * filling * growth / 2 + cycling * ((low + high) / 2 + flow.summary_tokens)
        compactions = ceil(cycling * growth / batch)
        total += price.read * (count * session.fixed_tokens + held) + price.write * count * growth + setup * compactions
    return total


def compare(flow: Flow, price: Price, rows: Sequence[tuple[dict[str, Any], Ledger]], grid: tuple[Any, Any]) -> None:
    """Print the closed form beside the measured cost of a request, and both optima."""
    keeps, triggers = grid
    measured = {(p["keep"], p["trigger"]): ledger.cost(price) for p, ledger in rows}
    expected = {cell: predicted(flow, price, *cell) for cell in measured}
    print(
        f"closed form at {price.name}: room {flow.room_tokens:,.0f}, growth {flow.growth_tokens:,.0f} "
        f"(crossing {flow.crossing_tokens:,.0f}), "
        f"summary {flow.summary_tokens:,.0f} tokens; cost in thousands, measured / predicted"
    )
    print(f"{'keep':>6}{'cheapest batch':>16}{'so trigger':>12}" + "".join(f"{f'trigger {t}':>16}" for t in triggers))
    for keep in keeps:
        batch = cheapest_batch(flow, price, keep)
        cells = "".join(_cell(measured, expected, (keep, trigger)) for trigger in triggers)
        print(f"{keep:>6}{batch:>16.2f}{keep + batch:>12.2f}{cells}")


def _cell(measured: dict[Cell, float], expected: dict[Cell, float], cell: Cell) -> str:
    return (
        f"{f'{measured[cell] / 1_000:,.0f} / {expected[cell] / 1_000:,.0f}':>16}" if cell in measured else f"{'':>16}"
    )


def headroom(chosen: Sequence[Transcript], room_tokens: float, steps_ahead: Sequence[int]) -> None:
    """Print how much of the room the next requests take: what must be free while a summary is being written."""
    shares = []
    for ahead in steps_ahead:
        sums = [sum(g[i : i + ahead]) for g in map(_growths, chosen) for i in range(len(g) - ahead + 1)]
        median, high = quantiles(sums, n=20)[9], quantiles(sums, n=20)[18]
        shares.append(f"{ahead}: {median / room_tokens:.2f} / {high / room_tokens:.2f}")
    print(f"share of the room that the next requests take, median / 95 %: {'; '.join(shares)}")


def unused(chosen: Sequence[Transcript], room_tokens: float, keep: float, prepares: Sequence[float]) -> None:
    """Print how many background summaries are begun for nothing, because the session ends before the room is full."""
    shares = []
    for prepare in prepares:
        begun = shown = 0
        for growths in map(_growths, chosen):
            held, is_ready = 0.0, False
            for tokens in growths:
                held += tokens / room_tokens
                if held > 1:
                    held, begun, shown, is_ready = keep, begun + (not is_ready), shown + 1, False
                elif held > prepare and not is_ready:
                    begun, is_ready = begun + 1, True
        shares.append(f"{prepare}: {begun - shown} of {begun}")
    print(f"summaries begun past `prepare` and never shown, at keep {keep}: {'; '.join(shares)}")


def _setup(flow: Flow, price: Price, keep: float) -> float:
    rewritten = (price.write - price.read) * (keep * flow.room_tokens + flow.summary_tokens)
    return rewritten + (1 + SUMMARY_OUTPUT_PRICE) * flow.summary_tokens


def _session(transcript: Transcript) -> Session:
    growths = _growths(transcript)
    return Session(
        requests=len(growths) + 1, fixed_tokens=_fixed(transcript), growth_tokens=mean(growths) if growths else 1.0
    )


def _fixed(transcript: Transcript) -> int:
    system = (m for m in transcript.messages if isinstance(m, SystemMessage))
    return exact.tools_tokens(transcript.tools) + sum(map(exact.message_tokens, system))


def _growths(transcript: Transcript) -> list[int]:
    """Tokens that each request after the first adds to the history."""
    growths, added = list[int](), 0
    for message in transcript.messages:
        if isinstance(message, AIMessage):
            growths.append(added)
            added = 0
        added += 0 if isinstance(message, SystemMessage) else exact.message_tokens(message)
    return growths[1:]
