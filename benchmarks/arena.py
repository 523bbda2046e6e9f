"""Does an agent keep going, and keep what it was told, under each way to manage its context?

Scripted agents against a strict provider, played fast: a model call takes a fiftieth of a second, a summary two. Prices
are relative: input 1, cached prefix 0.1, output 4, the summarizer the same.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)
from langchain_core.messages.utils import trim_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver

import exact
from arena_scenarios import (
    KEY_SENTENCE,
    RESERVE_SHARE,
    SCENARIOS,
    SHARE_OF_WINDOW,
    SYSTEM_PROMPT,
    Scenario,
    Turn,
    scenario,
)
from common import goals, head, parser_of, pooled, row, usage_of
from langchain_ctxwin import create_context_agent, pin
from langchain_ctxwin.testing import ScriptedChatModel, request_faults
from sufficiency import Dropped

WAITING_SHARE = 3  # processes per core: about two thirds of a fast scenario is spent waiting for the provider
# relative units per million tokens
INPUT_PRICE, CACHED_PRICE, OUTPUT_PRICE = (1.00, 0.10, 4.00)
MILLION = 1_000_000
LARGE_WINDOW = 32_768
LEAST_STABLE = {8_192: 0.84, LARGE_WINDOW: 0.92}
"""About .95 of what a view reaches whose start moves only when the next request does not fit (.89 and .97)."""

FACTS_TOLERANCE = 0.005  # less than one fact of the longest scenario
MODEL_SECONDS, SUMMARIZER_SECONDS = 0.02, 0.04
"""Background work takes as long as some steps."""

CONFIG: Any = {"configurable": {"thread_id": "arena"}, "recursion_limit": 5_000}
INPUTS = (
    "tool_calling", "image_inputs", "pdf_inputs", "image_tool_message", "pdf_tool_message",
)  # fmt: skip
"""What the profile of the models states beside their limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    manager: str
    scenario: str
    window: int


@dataclass(slots=True, kw_only=True)
class Outcome:
    job: Job
    failed: int = 0
    sent: list[Sent] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    facts_at_end: float = 0.0

    @property
    def answered(self) -> list[Sent]:
        return [one for one in self.sent if one.is_answered]


def play(job: Job) -> Outcome:
    """Every turn of a scenario under a manager."""
    outcome = Outcome(job=job)
    desk = Desk(scenario(job.scenario, job.window), outcome)
    turns = desk.scenario.turns
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        agent = MANAGERS[job.manager][0](_parts(job, desk, folder))
        for desk.turn, turn in enumerate(turns):
            desk.step = 0
            outcome.failed += not _is_answered(agent, turn, job.manager)
    last = outcome.answered[-1:]
    if last and (last[0].turn, last[0].step) == (len(turns) - 1, len(turns[-1].steps)):
        outcome.facts_at_end = last[0].facts or 0.0
    return outcome


def _parts(job: Job, desk: Desk, folder: str) -> Parts:
    def model(share: int, seconds: float, **options: Any) -> FakeModel:
        limits = {
            "max_input_tokens": job.window,
            "max_output_tokens": job.window // share,
        }
        return FakeModel(
            desk=desk,
            window=job.window,
            max_tokens=job.window // share,
            seconds=seconds,
            profile={**limits, **dict.fromkeys(INPUTS, True)},
            **options,
        )

    return Parts(
        provider=model(RESERVE_SHARE, MODEL_SECONDS),
        summarizer=model(SHARE_OF_WINDOW, SUMMARIZER_SECONDS, is_summarizer=True),
        tools=list(desk.scenario.tools),
        folder=folder,
    )


def _is_answered(agent: Any, turn: Turn, manager: str) -> bool:
    message = HumanMessage(turn.user)
    if turn.rule and manager.startswith("ours"):
        message = pin(message)  # only ours can be told that it states a rule
    try:
        final = agent.invoke({"messages": [message]}, CONFIG)["messages"][-1]
    except Exception:  # noqa: BLE001  # whatever ends a turn is counted
        return False
    return bool(final.text == turn.answer)


# ---- who competes: peers are set up as they document; one that counts messages alone is told sizes that leave room


TRIGGER_SHARE = 0.8  # SummarizationMiddleware's documented example
KEEP_SHARE = 0.3  # same


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    provider: FakeModel
    summarizer: FakeModel
    tools: list[BaseTool]
    folder: str
    """Where a manager may write files; it is removed after the scenario."""

    @property
    def room_tokens(self) -> int:
        """Tokens left for messages, exactly: a careful user sets them for a peer that does not know them itself."""
        tools = [convert_to_openai_tool(tool) for tool in self.tools]
        fixed = exact.request_tokens([SystemMessage(SYSTEM_PROMPT)], tools)
        return self.provider.window - self.provider.max_tokens - fixed


def nodes(parts: Parts) -> Any:
    return create_context_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        recall=False,
        summarizer=parts.summarizer,
        checkpointer=InMemorySaver(),
    )


def summarization(parts: Parts) -> Any:
    from langchain.agents.middleware import SummarizationMiddleware

    middleware = SummarizationMiddleware(
        parts.provider,
        trigger=("fraction", TRIGGER_SHARE),
        keep=("fraction", KEEP_SHARE),
        trim_tokens_to_summarize=None,
        summarizer=parts.summarizer,
    )
    return _agent(parts, middleware)


def deep_middleware(parts: Parts) -> Any:
    from deepagents.backends import FilesystemBackend
    from deepagents.middleware.summarization import create_summarization_middleware

    backend = FilesystemBackend(root_dir=parts.folder, virtual_mode=True)
    return _agent(
        parts,
        create_summarization_middleware(
            parts.provider, backend, summarizer=parts.summarizer
        ),
    )


def trim(parts: Parts) -> Any:
    policy = partial(
        trim_messages,
        max_tokens=int(TRIGGER_SHARE * parts.room_tokens),
        token_counter="approximate",  # noqa: S106  # the name of a counter
        strategy="last",
        start_on="human",
        end_on=("human", "tool"),
        include_system=True,
    )
    return _shortened(parts, policy)


def listed_tail(parts: Parts) -> Any:
    """The strongest plain way: a tail that drops to .3 of the room when it is full, and lists identifiers that left."""
    return _shortened(parts, Dropped(parts.room_tokens))


def _shortened(parts: Parts, policy: Callable[[Any], Any]) -> Any:
    from langchain.agents.middleware import wrap_model_call

    @wrap_model_call
    def shortened(request: Any, handler: Any) -> Any:
        return handler(request.override(messages=policy(request.messages)))

    return _agent(parts, shortened)


def _agent(parts: Parts, middleware: Any) -> Any:
    from langchain.agents import create_agent

    return create_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )


MANAGERS: dict[str, tuple[Callable[[Parts], Any], str, str]] = {
    "ours-nodes": (
        nodes,
        "this package, nodes",
        "defaults without the recall tool, which no script calls; rules marked by pin()",
    ),
    "langchain": (
        summarization,
        "`SummarizationMiddleware`",
        "SummarizationMiddleware, fraction 0.8 and keep 0.3 by profile, trim_tokens_to_summarize=None",
    ),
    "deepagents-mw": (
        deep_middleware,
        "deepagents' middleware alone",
        "create_summarization_middleware alone in create_agent, defaults by profile, files in a folder",
    ),
    "trim": (
        trim,
        "`trim_messages`",
        "trim_messages before each call to 0.8 of the room, strategy last, start_on human",
    ),
    "tail-and-list": (
        listed_tail,
        "a tail that drops, with a bare list",
        "the newest messages, dropped to 0.3 of the room when full, and a bare list of identifiers",
    ),
}
"""How each builds an agent, what the table calls it, and what it is set to; ours are named so."""


# ---- figures ---------------------------------------------------------------------------------------------------------


def figures_of(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """What outcomes of one manager add up to, by the column of the table."""
    answered = [one for outcome in outcomes for one in outcome.answered]
    every = [one for o in outcomes for one in [*o.sent, *o.summaries]]
    return {
        "failed turns": sum(outcome.failed for outcome in outcomes),
        "invalid requests": sum(one.is_invalid for one in every),
        "current question shown": _mean(one.has_user for one in answered),
        "planted facts shown at the end": _mean(o.facts_at_end for o in outcomes),
        "prefix stability": _mean(o.stable for o in answered if o.stable is not None),
        "cost": sum(map(cost, outcomes)),
    }


def rules_shown(outcomes: Sequence[Outcome]) -> float:
    seen = (one.has_rules for outcome in outcomes for one in outcome.answered)
    return _mean(one for one in seen if one is not None)


def cost(outcome: Outcome) -> float:
    """Price of what was answered; refusals cost nothing."""
    billed = [*outcome.answered, *outcome.summaries]
    cached = sum(one.cached_tokens for one in billed)
    fresh = sum(one.tokens for one in billed) - cached
    written = sum(one.output_tokens for one in billed)
    return (
        fresh * INPUT_PRICE + cached * CACHED_PRICE + written * OUTPUT_PRICE
    ) / MILLION


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(mean(found)) if found else 0.0


# ---- goals -----------------------------------------------------------------------------------------------------------


def goals_of(
    mine: list[Outcome], peers: list[Outcome], window: int
) -> Iterator[tuple[bool, str]]:
    failed, invalid, user, _, stable, _ = figures_of(mine).values()
    yield failed == invalid == 0, f"failed {failed}, invalid {invalid}: 0, 0"
    yield user == 1, f"current user message {user:.3f}: 1.00"
    rules = rules_shown(mine)
    yield rules == 1, f"pinned rules {rules:.3f}: 1.00"
    yield from _beside_peers(mine, peers)
    if least := LEAST_STABLE.get(window):
        yield stable >= least, f"prefix stability {stable:.3f}: at least {least}"


def _beside_peers(
    mine: list[Outcome], peers: list[Outcome]
) -> Iterator[tuple[bool, str]]:
    """Facts at the end beside the best peer of each scenario, and cost beside peers that lose nothing in it."""
    behind, dearer = [], []
    for own in mine:
        here = [p for p in peers if p.job.scenario == own.job.scenario]
        best = max(here, key=lambda p: p.facts_at_end, default=None)
        if best and best.facts_at_end > own.facts_at_end + FACTS_TOLERANCE:
            behind.append(
                f"{own.job.scenario} {own.facts_at_end:.2f} ({best.job.manager} {best.facts_at_end:.2f})"
            )
        sound = [
            p
            for p in here
            if not p.failed
            and p.facts_at_end >= own.facts_at_end - FACTS_TOLERANCE
            and all(one.has_user and one.has_rules is not False for one in p.answered)
        ]
        cheapest = min(sound, key=cost, default=None)
        if cheapest and cost(cheapest) < cost(own):
            dearer.append(
                f"{own.job.scenario} x{cost(own) / cost(cheapest):.2f} ({cheapest.job.manager})"
            )
    yield (
        not behind,
        f"facts at end, scenarios behind the best peer: {', '.join(behind) or 'none'}",
    )
    yield (
        not dearer,
        f"cost {sum(map(cost, mine)):.2f}, scenarios with a cheaper sound peer: {', '.join(dearer) or 'none'}",
    )


# ---- what is printed -------------------------------------------------------------------------------------------------


def played(jobs: list[Job]) -> Iterator[Outcome]:
    yield from pooled(play, jobs, WAITING_SHARE * (os.cpu_count() or 1))


def in_words(figure: float) -> str:
    return f"{figure:.2f}" if isinstance(figure, float) else str(figure)


def main() -> None:
    parser = parser_of(__doc__, data="")
    parser.add_argument("--windows", type=int, nargs="+", default=[8_192, LARGE_WINDOW])
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--managers", nargs="+", choices=MANAGERS, default=MANAGERS)
    options = parser.parse_args()
    jobs = [
        Job(manager=m, scenario=s, window=w)
        for s in options.scenarios
        for m in options.managers
        for w in options.windows
    ]
    outcomes = list(played(jobs))
    found = {
        (name, window): [
            o for o in outcomes if (o.job.manager, o.job.window) == (name, window)
        ]
        for name in options.managers
        for window in options.windows
    }
    columns = [*figures_of(outcomes)]
    windows = " / ".join(f"{window:,}" for window in options.windows)
    head(f"{windows} tokens", *columns)
    for name in options.managers:
        mine = [figures_of(found[name, window]) for window in options.windows]
        cells = (
            " / ".join(in_words(one[column]) for one in mine) for column in columns
        )
        row(MANAGERS[name][1], *cells)
    ours, peers = (
        [name for name in options.managers if name.startswith("ours") == is_ours]
        for is_ours in (True, False)
    )
    for window, name in itertools.product(options.windows, ours):
        print(f"\nGoals of {name} at {window:,} tokens:")
        others = [outcome for peer in peers for outcome in found[peer, window]]
        goals(goals_of(found[name, window], others, window))
    print()
    for name in options.managers:
        print(f"- {name}: {MANAGERS[name][2]}")


# ---- a strict provider ----------------------------------------------------------------------------------------------
# Exact sizes, an output reserve, pairing rules, cached prefixes; it answers from the script. Its summarizer is good and
# the same for everybody: it keeps the key sentences, as many as its answer can hold.

ASKED_TOKENS = re.compile(r"at most ([\d,]+) tokens")
KEY_SHARE = 0.8  # of the answer goes to key sentences at most
# of the answer is used in any case: models write more than the facts
FILLED_SHARE = 0.6
SENTENCE = re.compile(r"[^.\n。]{20,200}[.。]")
CACHE_BLOCK_TOKENS = 128  # OpenAI caches prefixes in steps of this size
CACHE_MIN_TOKENS = 1_024  # and from this size on
SUMMARY_ASKED = re.compile(r"\bsummary\b[\s\S]*at most [\d,]+ tokens")
SHOWN_CHARS = 2_000
"""A user message that alone is over the limit may be cut, but its beginning has to be there."""


class FakeModel(ScriptedChatModel):
    """The agent's model, or a summarizer of its own window whose answers are short."""

    desk: Any
    seconds: float
    is_summarizer: bool = False
    tokenizer_family: str = "openai"
    """What the class of a real OpenAI model would imply."""

    model_name: str = "arena"

    def _generate(
        self, messages: list[BaseMessage], *_: Any, **options: Any
    ) -> ChatResult:
        tools = options.get("tools") or []
        if self.is_summarizer or SUMMARY_ASKED.search(messages[-1].text):
            longest = self.window // SHARE_OF_WINDOW
            if self.is_summarizer:
                longest = min(longest, int(options.get("max_tokens", longest)))
            answer = self._summary(messages, tools, longest)
        else:
            answer = self._answer(messages, tools)
        time.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _checked(
        self,
        note: Summary,
        faults: list[str],
        messages: list[BaseMessage],
        tools: list[Any],
    ) -> int:
        """Note the size of a request, unless it is invalid or too large; return what it shares with the last one."""
        note.is_invalid = bool(faults)
        if faults:
            raise ValueError(f"400 INVALID_ARGUMENT. {faults[0]}")
        tokens, limit = exact.request_tokens(messages, tools), self.limit
        if tokens > limit:
            raise ContextOverflowError(
                f"400 INVALID_ARGUMENT. The input token count ({tokens}) exceeds the maximum number of tokens allowed "
                f"({limit})."
            )
        shared = self.desk.shared_tokens(messages, tools)
        note.tokens = tokens
        if shared >= CACHE_MIN_TOKENS:
            note.cached_tokens = shared // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS
        return shared

    @property
    def limit(self) -> int:
        return self.window - self.max_tokens

    def _summary(
        self, messages: list[BaseMessage], tools: list[Any], longest_tokens: int
    ) -> AIMessage:
        """The script does not move on, also where the agent's model is its own summarizer."""
        summary = Summary()
        self.desk.outcome.summaries.append(summary)
        faults = [fault for fault in request_faults(messages) if "call" in fault]
        self._checked(summary, faults, messages, tools)
        text = "\n".join(map(exact.payload, messages))
        asked = [int(found.replace(",", "")) for found in ASKED_TOKENS.findall(text)]
        written = extract(text, min([longest_tokens, *asked]))
        summary.output_tokens = exact.text_tokens(written)
        return AIMessage(written)

    def _answer(self, messages: list[BaseMessage], tools: list[Any]) -> AIMessage:
        desk: Desk = self.desk
        sent = Sent(turn=desk.turn, step=desk.step)
        desk.outcome.sent.append(sent)
        faults = request_faults(messages)
        if messages[-1].type == "ai":
            faults.append("the last message is ai")
        shared = self._checked(sent, faults, messages, tools)
        self._look(sent, messages, tools)
        answer = desk.answer()
        output = exact.text_tokens(exact.payload(answer))
        sent.is_answered, sent.output_tokens = True, output
        if desk.messages:
            sent.stable = shared / exact.request_tokens(desk.messages, desk.tools)
        desk.messages, desk.tools = messages, tools
        usage = usage_of(sent.tokens, output)
        usage["input_token_details"] = {"cache_read": sent.cached_tokens}
        metadata = {
            # as LangChain names the provider of this class
            "model_provider": "fakemodel",
            "model_name": self.model_name,
            "finish_reason": "stop",
        }
        return answer.model_copy(
            update={"usage_metadata": usage, "response_metadata": metadata}
        )

    def _look(self, sent: Sent, messages: list[BaseMessage], tools: list[Any]) -> None:
        """Note what a request shows of the question, the rules and the facts so far."""
        desk, texts = self.desk, list(map(exact.payload, messages))
        asked = HumanMessage(desk.now.user)
        wanted, text = exact.payload(asked), "\n".join(texts)
        if exact.request_tokens([asked], tools) >= self.limit:
            wanted = wanted[:SHOWN_CHARS]
        sent.has_user = any(
            message.type == "human" and wanted in shown
            for message, shown in zip(messages, texts, strict=True)
        )
        if rules := desk.rules():
            sent.has_rules = all(rule in text for rule in rules)
        if codes := desk.stated_codes():
            sent.facts = sum(code in text for code in codes) / len(codes)


# ---- what the provider knows: the script's place, and every request with what it showed ----------------------------


@dataclass(slots=True, kw_only=True)
class Summary:
    """One call for a summary."""

    tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    is_invalid: bool = False


@dataclass(slots=True, kw_only=True)
class Sent(Summary):
    """One request."""

    turn: int
    step: int
    is_answered: bool = False
    stable: float | None = None
    """Share of the answered request before it that is a prefix of this one."""

    has_user: bool = True
    has_rules: bool | None = None
    """None while no rule was stated."""

    facts: float | None = None
    """Share of the facts stated so far that it shows."""


@dataclass(slots=True)
class Desk:
    """The place in the script is kept here, never read from what a manager shows."""

    scenario: Scenario
    outcome: Outcome
    turn: int = 0
    step: int = 0
    messages: list[BaseMessage] = field(default_factory=list)
    tools: list[Any] = field(default_factory=list)
    """Of the last answered request."""

    @property
    def now(self) -> Turn:
        return self.scenario.turns[self.turn]

    def answer(self) -> AIMessage:
        """The next answer of the script; a turn that is over stays over."""
        if self.step >= len(self.now.steps):
            return AIMessage(self.now.answer)
        calls = self.now.steps[self.step]
        self.step += 1
        text = "" if self.step % 2 else "I will look that up."
        return AIMessage(text, tool_calls=[*map(dict, calls)])

    def rules(self) -> list[str]:
        return [turn.rule for turn in self.scenario.turns[: self.turn + 1] if turn.rule]

    def stated_codes(self) -> list[str]:
        return [
            fact.code
            for fact in self.scenario.facts
            if (fact.turn, fact.step) < (self.turn, self.step)
        ]

    def shared_tokens(self, messages: list[BaseMessage], tools: list[Any]) -> int:
        """Tokens of the prefix that a request has in common with the last answered one."""
        if not self.messages or self.tools != tools:
            return 0
        return exact.common_tokens(self.messages, messages, tools)


# ---- the summarizer ------------------------------------------------------------------------------------------------


def extract(text: str, max_tokens: int) -> str:
    """Key sentences, chosen by their digest where they do not all fit so that no place is favoured, then others."""
    keys = list(dict.fromkeys(KEY_SENTENCE.findall(text)))
    kept, used = set(), 0
    for sentence in sorted(
        keys,
        key=lambda s: (
            not s.startswith("Standing"),
            hashlib.sha256(s.encode()).digest(),
        ),
    ):
        size = exact.text_tokens(sentence) + 1
        if used + size > KEY_SHARE * max_tokens:
            break
        kept.add(sentence)
        used += size
    lines = [sentence for sentence in keys if sentence in kept]
    for found in SENTENCE.finditer(text):
        size = exact.text_tokens(found.group()) + 1
        if used + size > FILLED_SHARE * max_tokens:
            break
        if not KEY_SENTENCE.search(found.group()):
            lines.append(found.group().strip())
            used += size
    return "\n".join(lines) or "Nothing of note."


if __name__ == "__main__":
    main()
