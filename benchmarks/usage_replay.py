"""What does each method say about the requests of one conversation, before they are sent?

Everything ours goes through the engine: measure, learn from the answer, apply a compaction, measure again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_ctxwin import Compaction, ContextEngine, ModelInfo, ModelLimits, TokenEstimator, Window
from langchain_ctxwin.core.pins import last_user
from langchain_ctxwin.core.updates import after_measure, from_answer
from langchain_ctxwin.core.view import View, position_of
from usage_sizes import Sized

WINDOW = 10_000_000  # nothing is compacted on its own
OURS, PLAIN, RATIO, APPROX, SCALED = "ours", "our plain estimate", "plain x last ratio", "approximately", "with scaling"
FIRST_COMPACTED = 3  # responses before the first compaction
OTHER_VOCABULARY = 1.25  # tokens of the other model for one of the conversation's own
State = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One request: its reported size beside what each method says before it is sent."""

    source: str
    kind: str
    """`next`, `compacted`, `other` (a model never seen) or `back` (to the first model)."""

    responses: int
    true: int
    counts: dict[str, int]
    upper: int
    lower: int

    def error(self, method: str) -> float:
        return abs(self.counts[method] / self.true - 1) * 100


class Replay:
    """One conversation, request by request, with the state that the package keeps between them."""

    def __init__(self, talk: Sized) -> None:
        self.talk, self.state = talk, State()
        self.engine = ContextEngine(ModelLimits(WINDOW), counter=TokenEstimator(talk.family))
        stranger = "claude3" if talk.family == "openai" else "openai"
        self.other_engine = ContextEngine(ModelLimits(WINDOW), counter=TokenEstimator(stranger))
        self.model = ModelInfo(name=talk.model, context_window=WINDOW)
        self.other = ModelInfo(name="another-model", context_window=WINDOW)
        self.before: Window | None = None

    def run(self) -> Iterator[Sighting]:
        talk = self.talk
        for number, point in enumerate(talk.points):
            window = self.measure(talk.messages[:point], self.state)
            yield self.sighting("next", number, window, talk.true_tokens(point))
            if number >= FIRST_COMPACTED and (compacted := self.compacted(window, point)):
                yield self.sighting("compacted", number, *compacted)
            if number and number + 1 < len(talk.points):
                yield from self.switched(window, number)
            self.state, self.before = learned(window, talk.messages[point]), window

    def measure(self, messages: Sequence[AnyMessage], state: State) -> Window:
        return self.engine.measure(messages, tools=self.talk.tools, session=state, model=self.model)

    def sighting(self, kind: str, number: int, window: Window, true: int) -> Sighting:
        shown, plain = self.engine.build(window), window.estimates.total_tokens
        counts = {
            OURS: window.total_tokens,
            PLAIN: plain,
            RATIO: round(plain * self.last_ratio(number)),
            APPROX: count_tokens_approximately(shown, tools=self.talk.tools),
            SCALED: count_tokens_approximately(shown, tools=self.talk.tools, use_usage_metadata_scaling=True),
        }
        return Sighting(
            source=self.talk.source, kind=kind, responses=number, true=true, counts=counts,
            upper=window.upper_tokens, lower=window.lower_tokens,
        )  # fmt: skip

    def last_ratio(self, number: int) -> float:
        if not self.before:
            return 1.0
        return self.talk.true_tokens(self.talk.points[number - 1]) / self.before.estimates.total_tokens

    def compacted(self, window: Window, point: int) -> tuple[Window, int] | None:
        """The request without what was said from the first answer to about half of it, and its true size.

        Both ends are answers with a reported size, so the difference of those sizes is what left. What precedes the
        first answer stays as pins, and no summary or receipt is added, so that no text appears whose size nobody
        reported. The package's own `apply` writes the state.
        """
        begin = self.talk.points[0]
        if (cut := self.cut(window, begin, point)) is None:
            return None
        messages = self.talk.messages[:point]
        pinned = tuple(position_of(messages, i) for i in range(window.parts.first, begin))
        left = window.shown_as(View(start=position_of(messages, cut), pinned=pinned), "")
        compaction = Compaction(kind="force", reason="half of it leaves", before=window, after=left)
        after = self.measure(messages, {**after_measure(window).to_json(), **self.engine.apply(compaction, window)})
        assert after.start == cut, after.session.faults
        left_tokens = self.talk.true_tokens(cut) - self.talk.true_tokens(begin)
        return after, self.talk.true_tokens(point) - left_tokens

    def cut(self, window: Window, begin: int, point: int) -> int | None:
        """The answer nearest half of the history, at a step, and not after the current question: that one stays."""
        steps = [step for step in window.steps if step.index >= begin]
        asked = last_user(self.talk.messages[:point])
        latest = point if asked is None or asked < begin else asked
        half, gone = sum(step.tokens for step in steps) / 2, 0
        candidates = list[tuple[float, int]]()
        for step in steps:
            if begin < step.index <= latest and step.index in self.talk.points:
                candidates.append((abs(gone - half), step.index))
            gone += step.tokens
        return min(candidates)[1] if candidates else None

    def switched(self, window: Window, number: int) -> Iterator[Sighting]:
        """What if another model, of another family, had answered this request, and the first one the next?"""
        point, following = self.talk.points[number : number + 2]
        messages = self.talk.messages
        other = self.other_engine.measure(
            messages[:point], tools=self.talk.tools, session=after_measure(window).to_json(), model=self.other
        )
        # Nobody knows its true size: what is shown is how far the first model's reports leak into the plain estimate.
        yield self.sighting("other", number, other, other.estimates.total_tokens)
        tokens = round(OTHER_VOCABULARY * self.talk.true_tokens(point))
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        named = {"usage_metadata": usage, "response_metadata": {"model_name": self.other.name}}
        reply = messages[point].model_copy(update=named)
        history = [*messages[:point], reply, *messages[point + 1 : following]]
        back = self.measure(history, learned(other, reply))
        yield self.sighting("back", number, back, self.talk.true_tokens(following))


def learned(window: Window, reply: AnyMessage) -> State:
    assert isinstance(reply, AIMessage)
    return {**after_measure(window).to_json(), "context_counts": from_answer(window, reply).counts}


def replayed(talk: Sized) -> list[Sighting]:
    return list(Replay(talk).run())
