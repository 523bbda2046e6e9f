"""Can the model take the right next step from the request alone, and what does the request cost?

Of the values that the next call of a recorded agent has in its arguments and that were seen before: how many does the
request still show, beside plain tails and what their input is billed when a cached prefix costs a tenth.

An agent that knows nothing but its request has to look up again what it lacks: `again` counts those look-ups per
thousand calls, each result once while it is among the newest messages.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

import exact
from common import (
    Transcript,
    goals,
    head,
    load,
    parser_of,
    pooled,
    row,
    usage_of,
)
from langchain_ctxwin import BudgetExceededError, ContextEngine, ModelLimits
from langchain_ctxwin.replay.playing import Show, identifiers, keep_last, needed_values

RESERVE = 0.25  # part of the window that stays free for the answer
ANSWER_TOKENS = 1_024
# of an input token that the provider has in its cache; the others cost 1
CACHED_PRICE = 0.1
LEAST_ROOM = 500  # tokens for messages below which no policy can do anything
# conversations that are long enough to lose something, and short enough to replay
MESSAGES = range(12, 401)
SAMPLE_SEED = 7
HALVES = ("a", "b")

FAR_MESSAGES = 6  # last seen longer ago than two calls with their results and what was said between
OURS, NEWEST, TO_HALF, LISTED = ARMS = (
    "ours",
    "newest only",
    "drop to half",
    "drop and list",
)
# a listed identifier that the agent used comes first, then one of the user
AUTHORS = {"ai": 0, "human": 1}
GROUPS = ("all", "far", "steps")
PER_CALLS = 1_000
GOALS = {
    "all": {4_096: 0.93, 8_192: 0.98, 32_768: 0.99},
    "far": {4_096: 0.85, 8_192: 0.95, 32_768: 0.97},
    "steps": {4_096: 0.90, 8_192: 0.96, 32_768: 0.97},
}

Tally = Counter[tuple[str, str]]
"""Sums by arm and column; "" is the arm of what all have in common: values, steps, calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    transcript: Transcript
    window: int
    arms: tuple[str, ...] = ARMS

    @property
    def limit(self) -> int:
        return int(self.window * (1 - RESERVE))


class Ours:
    """The package through its engine, without a model; the system prompt is in the view that it returns."""

    def __init__(self, job: Job, system: str) -> None:
        limits = ModelLimits(
            max_input_tokens=job.limit, max_output_tokens=ANSWER_TOKENS
        )
        self.engine = ContextEngine(limits)
        self.about = {"system_prompt": system, "tools": job.transcript.tools}
        self.session: dict[str, Any] = {}

    def __call__(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
        fitted = self.engine.fit(history, session=self.session, **self.about)
        self.session = fitted.session
        return [m for m in fitted.request if not isinstance(m, SystemMessage)]


class Dropped:
    """The strongest plain rival: a tail whose start moves only when the room is full, then far.

    The identifiers that left stay as a list.
    """

    def __init__(
        self,
        room: int,
        size: Callable[[AnyMessage], int] = exact.message_tokens,
        *,
        keep: float = 0.3,
        list_share: float = 0.1,
    ) -> None:
        self.room, self.size, self.keep = room, size, keep
        self.list_tokens = int(list_share * room)
        self.start, self.listed, self.listed_tokens = 0, "", 0

    def __call__(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
        held = sum(map(self.size, history[self.start :]))
        if held + self.listed_tokens > self.room:
            while self.start < len(history) - 1 and (
                held > self.keep * self.room
                or isinstance(history[self.start], ToolMessage)
            ):
                held -= self.size(history[self.start])
                self.start += 1
            if self.list_tokens:
                self._list(history)
        head = [HumanMessage(self.listed)] if self.listed else []
        return [*head, *history[self.start :]]

    def _list(self, history: Sequence[AnyMessage]) -> None:
        texts = list(map(exact.payload, history))
        tail = "\n".join(texts[self.start :])
        words, used = dict[str, None](), 0
        for at in sorted(
            range(self.start),
            key=lambda i: (AUTHORS.get(history[i].type, len(AUTHORS)), -i),
        ):
            for word in identifiers(texts[at]):
                tokens = exact.text_tokens(f" {word}")
                if (
                    word not in words
                    and word not in tail
                    and used + tokens <= self.list_tokens
                ):
                    words[word], used = None, used + tokens
        self.listed, self.listed_tokens = " ".join(words), used


class Talk:
    """One conversation at one window: its prompt, its messages with their sizes, and the room for them."""

    def __init__(self, job: Job) -> None:
        self.job, self.tools = job, job.transcript.tools
        messages = job.transcript.messages
        self.prompt = "\n\n".join(
            exact.payload(m) for m in messages if isinstance(m, SystemMessage)
        )
        self.head: list[AnyMessage] = []
        if self.prompt:
            self.head = [SystemMessage(self.prompt)]
        self.rest = [m for m in messages if not isinstance(m, SystemMessage)]
        self.sizes = list(map(exact.message_tokens, self.rest))
        self.room = job.limit - self.tokens(self.head)
        self.is_small = self.room < LEAST_ROOM or sum(self.sizes) <= self.room
        """Whether nothing ever has to leave, or nobody could help."""

        self.is_refused = False

    def tokens(self, request: Sequence[AnyMessage]) -> int:
        return exact.request_tokens(request, self.tools)

    def policies(self, ours: Show) -> dict[str, Show]:
        return {
            OURS: ours,
            NEWEST: keep_last(self.room, exact.message_tokens),
            TO_HALF: Dropped(self.room, keep=0.5, list_share=0.0),
            LISTED: Dropped(self.room),
        }

    def requests(
        self, policies: Mapping[str, Show]
    ) -> Iterator[tuple[int, AIMessage, dict[str, list[AnyMessage]]]]:
        """Yield each reply with its place and the requests of the arms before it, until one is refused.

        Each arm hears what its own request took, as a provider reports it.
        """
        histories = {arm: list[AnyMessage]() for arm in self.job.arms}
        for at, message in enumerate(self.rest):
            if not isinstance(message, AIMessage):
                for history in histories.values():
                    history.append(message)
                continue
            try:
                found = {
                    arm: [*self.head, *policies[arm](history)]
                    for arm, history in histories.items()
                }
            except BudgetExceededError:  # the conversation ends for everybody
                self.is_refused = True
                return
            yield at, message, found
            for arm, history in histories.items():
                usage = usage_of(self.tokens(found[arm]))
                history.append(message.model_copy(update={"usage_metadata": usage}))


class Play(Talk):
    """The recorded answers, and the requests of every arm."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.tally = Tally()
        self.texts = list(map(exact.payload, self.rest))
        self.sent: dict[str, list[AnyMessage]] = {}
        # when an arm last looked up again what a message told
        self.again: dict[tuple[str, int], int] = {}

    def run(self) -> Tally:
        if self.is_small:
            return self.tally
        policies = self.policies(Ours(self.job, self.prompt))
        for at, reply, requests in self.requests(policies):
            self._score(reply, at, requests)
            self._bill(requests)
        self.tally["", "refused"] += self.is_refused
        return self.tally

    def _bill(self, requests: dict[str, list[AnyMessage]]) -> None:
        self.tally["", "calls"] += 1
        for arm, request in requests.items():
            total, before = self.tokens(request), self.sent.get(arm, [])
            cached = exact.common_tokens(before, request, self.tools)
            self.tally[arm, "billed"] += CACHED_PRICE * cached + total - cached
            self.tally[arm, "over"] += total > self.job.limit
            self.sent[arm] = request

    def _score(
        self, reply: AIMessage, at: int, requests: dict[str, list[AnyMessage]]
    ) -> None:
        """Count what the requests show, from when something had to leave."""
        if sum(self.sizes[:at]) <= self.room:
            return
        texts = self.texts[:at]
        needed = needed_values(reply, texts)
        if not needed:
            return
        near = "\n".join(texts[-FAR_MESSAGES:])
        far = {value for value in needed if value not in near}
        self._count("", needed, far, steps=1)
        for arm, request in requests.items():
            text = "\n".join(map(exact.payload, request))
            shown = [value for value in needed if value in text]
            self._count(arm, shown, far, steps=len(shown) == len(needed))
            self._look_again(arm, at, {*needed} - {*shown})

    def _count(self, arm: str, shown: list[str], far: set[str], steps: int) -> None:
        counts = (len(shown), len(far.intersection(shown)), steps)
        for group, count in zip(GROUPS, counts, strict=True):
            self.tally[arm, group] += count

    def _look_again(self, arm: str, at: int, values: Iterable[str]) -> None:
        """Count the look-ups that bring missing values back, but those that were made within the newest messages."""
        for source in {
            max(j for j in range(at) if value in self.texts[j]) for value in values
        }:
            if at - self.again.get((arm, source), -at) > FAR_MESSAGES:
                self.again[arm, source] = at
                self.tally[arm, "again"] += 1


def conversations(
    data: Path | None, per_file: int, half: str | None
) -> Iterator[Transcript]:
    """Yield a sample of each file, always the same one."""
    found = (t for t in load(data) if len(t.messages) in MESSAGES)
    for _, group in itertools.groupby(found, key=lambda t: t.source):
        chosen = [t for t in group if half is None or half_of(t.name) == half]
        rng = random.Random(SAMPLE_SEED)  # noqa: S311  # a reproducible sample, not a secret
        yield from chosen if len(chosen) <= per_file else rng.sample(chosen, per_file)


def half_of(name: str) -> str:
    """Return which half a conversation belongs to: settings are tuned on one and judged on the other."""
    return HALVES[hashlib.sha256(name.encode()).digest()[0] % len(HALVES)]


def play(job: Job) -> Tally:
    return Play(job).run()


def share(tally: Tally, arm: str, group: str) -> float:
    return tally[arm, group] / max(1, tally["", group])


def billed(tally: Tally, arm: str) -> float:
    return tally[arm, "billed"] / max(1, tally["", "calls"])


def compare(chosen: Sequence[Transcript], windows: Sequence[int]) -> None:
    """Print ours beside the plain tails, and whether the goals are met."""
    totals = {
        window: sum(
            pooled(play, (Job(transcript=t, window=window) for t in chosen)), Tally()
        )
        for window in windows
    }
    columns = ("again", "billed per call", "over the limit")
    head("window", "", "values", *GROUPS, *columns, left=(1,))
    for window, arm in itertools.product(windows, ARMS):
        tally = totals[window]
        shares = [f"{share(tally, arm, group):.3f}" for group in GROUPS]
        again = PER_CALLS * tally[arm, "again"] / max(1, tally["", "calls"])
        values, bill = f"{tally['', 'all']:,}", f"{billed(tally, arm):,.0f}"
        over = tally[arm, "over"]
        row(f"{window:,}", arm, values, *shares, f"{again:.1f}", bill, over)
    print(f"\ntyped refusals: {sum(t['', 'refused'] for t in totals.values())}")
    for window, tally in totals.items():
        print(f"\nGoals at {window:,} tokens:")
        goals(goals_of(window, tally))


def goals_of(window: int, tally: Tally) -> Iterator[tuple[bool, str]]:
    for group, least in GOALS.items():
        # made-up conversations need nothing again
        if window in least and tally["", group]:
            reached = share(tally, OURS, group)
            yield (
                reached >= least[window],
                f"{group} {reached:.3f}: at least {least[window]:.2f}",
            )
    bill, most = billed(tally, OURS), billed(tally, TO_HALF)
    yield (
        bill <= most,
        f"billed {bill:,.0f} a call: at most {most:,.0f}, as the tail dropped to half",
    )
    yield (
        tally[OURS, "over"] == 0,
        f"over the limit {tally[OURS, 'over']} of {tally['', 'calls']:,}: 0",
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--per-file", type=int, default=7, help="conversations per file"
    )
    parser.add_argument("--windows", type=int, nargs="+", default=list(GOALS["all"]))
    parser.add_argument(
        "--half",
        choices=HALVES,
        help="only the conversations of this half, by a hash of their ids",
    )
    options = parser.parse_args()
    chosen = list(conversations(options.data, options.per_file, options.half))
    print(
        f"{len(chosen)} conversations ({'recorded' if options.data else 'generated'}), tokenizer {exact.ENCODING}"
    )
    compare(chosen, options.windows)


if __name__ == "__main__":
    main()
