"""How far off is the count of the next request, of the first, of the one after a compaction, and of single texts?

The truth is what providers reported for recorded requests (without data: an exact tokenizer and a constant that nobody
sees). Everything ours goes through the engine: measure, learn from the answer, apply a compaction, measure again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import quicktok
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

import common
import exact
from common import (
    Transcript,
    generate,
    goals,
    head,
    parser_of,
    pooled,
    row,
    rows_of,
    transcript_of,
    usage_of,
)
from langchain_ctxwin import (
    Compaction,
    ContextEngine,
    ModelInfo,
    ModelLimits,
    TokenEstimator,
    Window,
)
from langchain_ctxwin.core.measuring import after_measure, from_answer
from langchain_ctxwin.core.turns import call_ids, last_user, split_steps
from langchain_ctxwin.core.view import View, position_of

SOURCES = ("mini_swe_deepseek", "openhands_claude", "pi_sessions", "tau2")
"""Recordings with reported sizes. Those of tau2 that name no model are left out: their sizes are not comparable."""

WHOLE = frozenset({"openhands_claude", "generated"})
"""Sources whose requests are recorded whole. Elsewhere a constant part is missing, which has to be learned."""

FAMILIES = {"claude": "claude3", "deepseek": "deepseek"}
"""Words in the names of recorded models, with their tokenizer family; the others are OpenAI's."""

GENERATED_CONVERSATIONS = 24
HIDDEN_TOKENS = 96  # what simulated providers add to every request
WINDOW = 10_000_000  # nothing is compacted on its own
OURS, PLAIN, APPROX, SCALED = (
    "this package",
    "its estimator without calibration",
    "`count_tokens_approximately`",
    "the same with `use_usage_metadata_scaling`",
)
FIRST_COMPACTED = 3  # responses before the first compaction
GOALS = {"next": (1.0, 3.0), "compacted": (2.0, 5.0)}  # mean and p95 of the error in %
State = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One conversation; its AI messages carry the reported sizes as `usage_metadata`, the way LangChain states them."""

    transcript: Transcript
    model: str
    family: str
    true: dict[int, int]
    """Reported sizes of tools and what is before an answer, by the position of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One request: its reported size beside what each method says before it is sent."""

    source: str
    kind: str
    """`next` or `compacted`."""

    responses: int
    true: int
    counts: dict[str, int]

    def error(self, method: str) -> float:
        return abs(self.counts[method] / self.true - 1) * 100


def load(data: Path | None) -> Iterator[Sized]:
    if data is None:
        yield from map(simulated, range(GENERATED_CONVERSATIONS))
    for source in SOURCES if data else ():
        for found in rows_of(data / "transcripts" / f"{source}.jsonl.gz"):
            model = (found.get("meta") or {}).get("model")
            if model and found.get("usage"):
                yield recorded(found, source, model)


def recorded(found: dict[str, Any], source: str, model: str) -> Sized:
    sizes: dict[int, tuple[int, int]] = {}
    for point in found["usage"]:
        if point["prompt_tokens"] and point["i"] > max(sizes, default=0):
            written = point.get("completion_tokens") or 0
            sizes[point["i"]] = (point["prompt_tokens"], written)
    families = (family for word, family in FAMILIES.items() if word in model)
    transcript, family = transcript_of(found, source), next(families, "openai")
    return sized(transcript, sizes, model, family)


def simulated(seed: int) -> Sized:
    """A generated conversation with a provider that counts exactly and adds a constant that nobody sees."""
    transcript = generate(seed)
    messages = transcript.messages
    sizes = {
        i: (
            exact.request_tokens(messages[:i], transcript.tools) + HIDDEN_TOKENS,
            exact.message_tokens(message),
        )
        for i, message in enumerate(messages)
        if isinstance(message, AIMessage)
    }
    return sized(transcript, sizes, "simulated", "openai")


def sized(
    transcript: Transcript, sizes: dict[int, tuple[int, int]], model: str, family: str
) -> Sized:
    # a provider named on every answer is what LangChain's scaling asks for
    metadata = {"model_provider": "recorded", "model_name": model}
    messages = without_interrupted(transcript.messages)
    for at, message in enumerate(messages):
        if isinstance(message, AIMessage):
            usage = usage_of(*sizes[at]) if at in sizes else None
            stated = {"response_metadata": metadata, "usage_metadata": usage}
            messages[at] = message.model_copy(update=stated)
    return Sized(
        transcript=replace(transcript, messages=messages),
        model=model,
        family=family,
        true={
            at: sizes[at][0]
            for at in sorted(sizes)
            if isinstance(messages[at], AIMessage)
        },
    )


def without_interrupted(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Interrupted answers are emptied: no provider takes a call without its result, so agents send neither."""
    kept = list(messages)
    for step in split_steps(messages):
        asked = {call_id for message in step.messages for call_id in call_ids(message)}
        results = [m for m in step.messages if isinstance(m, ToolMessage)]
        if asked - {m.tool_call_id for m in results}:
            empty = {"content": "", "tool_calls": []}
            kept[step.index] = step.messages[0].model_copy(update=empty)
    return kept


# ---- one conversation ------------------------------------------------------------------------------------------------


class Replay:
    """One conversation, request by request, with the state that the package keeps between them."""

    def __init__(self, talk: Sized) -> None:
        self.talk, self.transcript, self.state = talk, talk.transcript, State()
        self.messages = self.transcript.messages
        self.engine = ContextEngine(
            ModelLimits(WINDOW), counter=TokenEstimator(talk.family)
        )
        self.model = ModelInfo(name=talk.model, context_window=WINDOW)

    def run(self) -> Iterator[Sighting]:
        for number, (point, true) in enumerate(self.talk.true.items()):
            window = self.measure(self.messages[:point], self.state)
            yield self.sighting("next", number, window, true)
            if number >= FIRST_COMPACTED and (found := self.compacted(window, point)):
                yield self.sighting("compacted", number, *found)
            answer = self.messages[point]
            assert isinstance(answer, AIMessage)
            counts, _ = from_answer(window, answer)
            self.state = {**after_measure(window).to_json(), "context_counts": counts}

    def measure(self, messages: Sequence[AnyMessage], state: State) -> Window:
        return self.engine.measure(
            messages, tools=self.transcript.tools, session=state, model=self.model
        )

    def sighting(self, kind: str, number: int, window: Window, true: int) -> Sighting:
        shown, tools = self.engine.build(window), self.transcript.tools
        counts = {
            OURS: window.total_tokens,
            PLAIN: window.estimates.total_tokens,
            APPROX: count_tokens_approximately(shown, tools=tools),
            SCALED: count_tokens_approximately(
                shown, tools=tools, use_usage_metadata_scaling=True
            ),
        }
        return Sighting(
            source=self.transcript.source,
            kind=kind,
            responses=number,
            true=true,
            counts=counts,
        )

    def compacted(self, window: Window, point: int) -> tuple[Window, int] | None:
        """The request without what was said from the first answer to about half of it, and its true size.

        Both ends are answers with a reported size, so the difference of those sizes is what left. What precedes the
        first answer stays as pins, and no summary or receipt is added, so that no text appears whose size nobody
        reported. The package's own `apply` writes the state.
        """
        true = self.talk.true
        begin = next(iter(true))
        if (cut := self.cut(window, begin, point)) is None:
            return None
        messages = self.messages[:point]
        before = range(window.history.first, begin)
        pinned = tuple(before)
        view = View(start=position_of(messages, cut), pinned=pinned)
        compaction = Compaction(
            kind="force",
            reason="half of it leaves",
            before=window,
            after=window.shown_as(view, ""),
        )
        update = self.engine.apply(compaction, window)
        state = {**after_measure(window).to_json(), **update}
        after = self.measure(messages, state)
        assert after.start == cut, after.session.faults
        return after, true[point] - (true[cut] - true[begin])

    def cut(self, window: Window, begin: int, point: int) -> int | None:
        """The answer nearest half of the history, at a step, and not after the current question: that one stays."""
        steps = [step for step in window.steps if step.index >= begin]
        asked = last_user(self.messages[:point])
        latest = point if asked is None or asked < begin else asked
        half, gone = sum(step.tokens for step in steps) / 2, 0
        candidates = list[tuple[float, int]]()
        for step in steps:
            if begin < step.index <= latest and step.index in self.talk.true:
                candidates.append((abs(gone - half), step.index))
            gone += step.tokens
        return min(candidates)[1] if candidates else None


def replayed(talk: Sized) -> list[Sighting]:
    return list(Replay(talk).run())


# ---- what is printed -------------------------------------------------------------------------------------------------


def report(found: list[Sighting]) -> None:
    print("mean / 95th percentile of the error in %")
    following = [one for one in found if one.kind == "next"]
    columns = {
        "first": [o for o in following if not o.responses and o.source in WHOLE],
        "after one response": [one for one in following if one.responses == 1],
        "next request": [one for one in following if one.responses],
        "right after a compaction": [one for one in found if one.kind == "compacted"],
    }
    print()
    head("all", *columns)
    row("requests", *(f"{len(column):,}" for column in columns.values()))
    for method in (OURS, PLAIN, APPROX, SCALED):
        cells = ([one.error(method) for one in column] for column in columns.values())
        row(method, *map(in_words, cells))
    learned = [one for one in found if one.responses]
    goals(goals_of(learned))


def goals_of(learned: list[Sighting]) -> Iterator[tuple[bool, str]]:
    for kind, (most, most_of_95) in GOALS.items():
        errors = [one.error(OURS) for one in learned if one.kind == kind]
        is_met = mean(errors) <= most and quantile(errors) <= most_of_95
        yield is_met, f"{kind} {in_words(errors)}: at most {most} / {most_of_95}"


def in_words(errors: list[float]) -> str:
    return f"{mean(errors):.2f} / {quantile(errors):.2f}" if errors else "-"


def quantile(errors: list[float]) -> float:
    return sorted(errors)[ceil(0.95 * len(errors)) - 1]


# ---- texts by themselves ---------------------------------------------------------------------------------------------

COUNTED = {
    "openai": "o200k", "cl100k": "cl100k", "anthropic": "claude47", "claude3": "claude3", "gemini": "gemma3",
    "llama": "llama3", "qwen": "qwen3", "deepseek": "deepseek",
}  # fmt: skip
ODD = {"b64", "emoji", "hex", "latex", "minjs", "num", "roff"}
OTHER_LANGUAGES = "ml_"
"""What agents hardly send: kinds of texts, and how the kinds of texts that are not in English begin."""

VOCABULARIES = {
    "openai": "o200k_base",
    "cl100k": "cl100k_base",
    "llama": "llama3",
    "qwen": "qwen3",
}
"""Families whose vocabulary comes in quicktok's wheel."""

FITTED = ("sweagent", "tau2")
"""Recordings of projects that the fitted texts come from too, by the beginning of their name: left out."""

TEXTS_PER_TRANSCRIPT, TRANSCRIPTS_PER_FILE = 20, 8
MOST_PERCENT = 8.5


def of_texts(data: Path | None, *, is_quick: bool) -> None:
    """The estimator of single texts, beside the published heuristics and an exact tokenizer."""
    rows = list(rows_of(data / "tokens" / "fit.jsonl.gz")) if data else []
    rows = [one for one in rows if not one["cat"].startswith((*ODD, OTHER_LANGUAGES))]
    if rows := rows[:: 20 if is_quick else 1]:
        true = {
            name: [one["tokens"][key] for one in rows] for name, key in COUNTED.items()
        }
        title = "texts that the weights were fitted to (optimistic)"
        accuracy(title, [one["text"] for one in rows], true)
    texts = said(data, 1 if is_quick else TRANSCRIPTS_PER_FILE)
    true = {
        family: list(map(quicktok.get_encoding(name).count, texts))
        for family, name in VOCABULARIES.items()
    }
    accuracy("messages of agents, of other projects than those fitted to", texts, true)


def said(data: Path | None, limit: int) -> list[str]:
    """Messages of recorded agents, or of generated ones."""
    rng = random.Random(3)  # noqa: S311  # a reproducible choice, not a secret
    found: list[str] = []
    for transcript in common.load(data, limit=limit):
        if transcript.source.startswith(FITTED):
            continue
        texts = [
            text.encode("utf-8", "replace").decode()
            for m in transcript.messages
            if (text := exact.payload(m))
        ]
        found += rng.sample(texts, min(TEXTS_PER_TRANSCRIPT, len(texts)))
    return found


def accuracy(title: str, texts: Sequence[str], true: dict[str, list[int]]) -> None:
    """Print the errors of each method, and how often each is more than a tenth too low."""
    o200k = quicktok.get_encoding("o200k_base").count
    print(
        f"\n{len(texts)} {title}: mean / 95th percentile of the error in %, share more than a tenth too low"
    )
    methods: dict[str, Callable[[str], int]] = {
        "`len // 4`": lambda text: len(text) // 4,
        "`count_tokens_approximately`": approximate,
        "exact o200k": o200k,
    }
    head("family", "this package", *methods)
    own = []
    for family, counts in true.items():
        estimator = TokenEstimator(family)
        cells = []
        for method in (estimator.count_text, *methods.values()):
            errors = [
                (method(text) - count) / max(1, count) * 100
                for text, count in zip(texts, counts, strict=True)
            ]
            sizes = sorted(map(abs, errors))
            low = mean(error < -10 for error in errors) * 100
            cells.append(
                f"{mean(sizes):.1f} / {sizes[int(0.95 * len(sizes))]:.1f}, {low:.0f} %"
            )
            own += [mean(sizes)] * (len(cells) == 1)
        row(family, *cells)
    is_met = max(own) <= MOST_PERCENT
    goals([(is_met, f"mean error {max(own):.1f} %: at most {MOST_PERCENT}")])


def approximate(text: str) -> int:
    """LangChain's counter without its three tokens a message: only the text is compared."""
    return count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--every", type=int, default=1, help="look at each so manieth conversation only"
    )
    help_text = "the estimator of single texts instead"
    parser.add_argument("--texts", action="store_true", help=help_text)
    options = parser.parse_args()
    if options.texts:
        of_texts(options.data, is_quick=options.every > 1)
        return
    talks = sorted(load(options.data), key=lambda talk: -len(talk.true))[
        :: options.every
    ]
    truth = (
        "sizes reported by providers"
        if options.data
        else "generated, an exact tokenizer and a hidden constant"
    )
    print(
        f"{len(talks)} conversations, {sum(len(talk.true) for talk in talks):,} requests ({truth})"
    )
    report([one for found in pooled(replayed, talks) for one in found])


if __name__ == "__main__":
    main()
