"""Does an agent keep going, and keep what it was told, under each way to manage its context?

Scripted agents against a strict provider. Added seconds come from the scenario `clock`, played in real time (a model
call takes one second, a summary two); the others run fifty times faster. Prices are relative: input 1, cached prefix
0.1, output 4, the summarizer the same.
"""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.messages.utils import trim_messages
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver

from arena_provider import Desk, FakeModel, Sent, Summary, parts_of, total_tokens
from arena_scenarios import (
    CLOCK,
    RESERVE_SHARE,
    SCENARIOS,
    SHARE_OF_WINDOW,
    SYSTEM_PROMPT,
    Scenario,
    scenario,
)
from common import goals, head, parser_of, pooled, quiet, row
from langchain_ctxwin import create_context_agent, pin
from sufficiency import Dropped

WAITING_SHARE = 3  # processes per core: about two thirds of a fast scenario is spent waiting for the provider
# relative units per million tokens
INPUT_PRICE, CACHED_PRICE, OUTPUT_PRICE = (1.00, 0.10, 4.00)
MILLION = 1_000_000
LARGE_WINDOW = 32_768
LEAST_STABLE = {8_192: 0.84, LARGE_WINDOW: 0.92}
"""About .95 of what a view reaches whose start moves only when the next request does not fit (.89 and .97)."""

ADDED_SECONDS = 0.2
FACTS_TOLERANCE = 0.005  # less than one fact of the longest scenario
MODEL_SECONDS = 1.0  # one answer in real time
SUMMARIZER_SECONDS = 2.0
SPEED_UP = 50
"""All but one scenario run this much faster, so that background work still takes as long as some steps."""

WARM_UP_TURNS = 3
"""Played fast before the timed ones, so that imports and tokenizers are loaded."""

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
    added_seconds: float = 0.0

    @property
    def answered(self) -> list[Sent]:
        return [one for one in self.sent if one.is_answered]


def play(job: Job) -> Outcome:
    """Every turn of a scenario under a manager."""
    logging.disable(logging.CRITICAL)
    quiet()
    warnings.simplefilter("ignore")
    script = scenario(job.scenario, job.window)
    if job.scenario != CLOCK:
        return _play(job, script, SPEED_UP)
    _play(job, replace(script, turns=script.turns[:WARM_UP_TURNS]), SPEED_UP)
    return _play(job, script, 1)


def _play(job: Job, script: Scenario, speed: float) -> Outcome:
    desk, outcome = Desk(script), Outcome(job=job)
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        agent = MANAGERS[job.manager][0](_parts(job, desk, speed, folder))
        for number in range(len(script.turns)):
            _turn(agent, desk, number, outcome)
    outcome.sent, outcome.summaries = desk.sent, desk.summaries
    last, turns = outcome.answered[-1:], script.turns
    if last and (last[0].turn, last[0].step) == (len(turns) - 1, len(turns[-1].steps)):
        outcome.facts_at_end = last[0].facts or 0.0
    return outcome


def _parts(job: Job, desk: Desk, speed: float, folder: str) -> Parts:
    def model(share: int, seconds: float, **options: Any) -> FakeModel:
        limits = {
            "max_input_tokens": job.window,
            "max_output_tokens": job.window // share,
        }
        return FakeModel(
            desk=desk,
            window=job.window,
            max_tokens=job.window // share,
            seconds=seconds / speed,
            profile={**limits, **dict.fromkeys(INPUTS, True)},
            **options,
        )

    return Parts(
        provider=model(RESERVE_SHARE, MODEL_SECONDS),
        summarizer=model(SHARE_OF_WINDOW, SUMMARIZER_SECONDS, is_summarizer=True),
        tools=list(desk.scenario.tools),
        folder=folder,
    )


def _turn(agent: Any, desk: Desk, number: int, outcome: Outcome) -> None:
    desk.turn, desk.step = number, 0
    message = HumanMessage(desk.now.user)
    if desk.now.rule and outcome.job.manager.startswith("ours"):
        message = pin(message)  # only ours can be told that it states a rule
    outside, began = desk.provider_seconds, time.perf_counter()
    error = _error(agent, message, desk.now.answer)
    taken = time.perf_counter() - began
    outcome.added_seconds += taken - (desk.provider_seconds - outside)
    outcome.failed += error is not None


def _error(agent: Any, message: HumanMessage, answer: str) -> Exception | None:
    try:
        final = agent.invoke({"messages": [message]}, CONFIG)["messages"][-1]
    except Exception as error:  # noqa: BLE001  # whatever ends a turn is counted
        return error
    return None if final.text == answer else AssertionError(final.text)


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
        fixed = total_tokens(parts_of([SystemMessage(SYSTEM_PROMPT)], tools))
        return self.provider.window - self.provider.max_tokens - fixed


def nodes(parts: Parts, summarizer: Any = None) -> Any:
    return create_context_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        recall=False,
        summarizer=parts.summarizer if summarizer is None else summarizer,
        checkpointer=InMemorySaver(),
    )


def middleware(parts: Parts) -> Any:
    from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware

    own = ContextWindowMiddleware(summarizer=parts.summarizer, recall=False)
    return _agent(parts, own, state_schema=ContextAgentState)


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


def editing(parts: Parts) -> Any:
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware

    edit = ClearToolUsesEdit(trigger=int(TRIGGER_SHARE * parts.room_tokens))
    return _agent(parts, ContextEditingMiddleware(edits=[edit]))


def deep_agent(parts: Parts) -> Any:
    from deepagents import create_deep_agent
    from deepagents.backends import StateBackend
    from deepagents.middleware.summarization import create_summarization_middleware

    backend = StateBackend()
    own = create_summarization_middleware(
        parts.provider, backend, summarizer=parts.summarizer
    )
    return create_deep_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        backend=backend,
        middleware=[own],
        checkpointer=InMemorySaver(),
    )


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


def langmem(parts: Parts) -> Any:
    from langgraph.prebuilt import create_react_agent
    from langgraph.prebuilt.chat_agent_executor import AgentState
    from langmem.short_term import SummarizationNode

    class State(AgentState):
        context: dict[str, Any]

    node = SummarizationNode(
        model=parts.summarizer,
        max_tokens=int(TRIGGER_SHARE * parts.room_tokens),
        max_summary_tokens=parts.summarizer.max_tokens,
        output_messages_key="llm_input_messages",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still what langmem documents
        return create_react_agent(
            parts.provider,
            parts.tools,
            prompt=SYSTEM_PROMPT,
            pre_model_hook=node,
            state_schema=State,
            checkpointer=InMemorySaver(),
        )


def trim(parts: Parts) -> Any:
    from langchain.agents.middleware import wrap_model_call

    max_tokens = int(TRIGGER_SHARE * parts.room_tokens)

    @wrap_model_call
    def trimmed(request: Any, handler: Any) -> Any:
        messages = trim_messages(
            request.messages,
            max_tokens=max_tokens,
            token_counter="approximate",  # noqa: S106  # the name of a counter
            strategy="last",
            start_on="human",
            end_on=("human", "tool"),
            include_system=True,
        )
        return handler(request.override(messages=messages))

    return _agent(parts, trimmed)


def listed_tail(parts: Parts) -> Any:
    """The strongest plain way: a tail that drops to .3 of the room when it is full, and lists identifiers that left."""
    from langchain.agents.middleware import wrap_model_call

    def size(message: Any) -> int:
        return parts_of([message], [])[1].tokens

    policy = Dropped(parts.room_tokens, size)

    @wrap_model_call
    def shortened(request: Any, handler: Any) -> Any:
        return handler(request.override(messages=policy(request.messages)))

    return _agent(parts, shortened)


def _agent(parts: Parts, *middleware: Any, **options: Any) -> Any:
    from langchain.agents import create_agent

    return create_agent(
        parts.provider,
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        middleware=list(middleware),
        checkpointer=InMemorySaver(),
        **options,
    )


MANAGERS: dict[str, tuple[Callable[[Parts], Any], str, str]] = {
    "ours-nodes": (
        nodes,
        "this package, nodes",
        "defaults without the recall tool, which no script calls; rules marked by pin()",
    ),
    "ours-own-model": (
        lambda parts: nodes(parts, parts.provider),
        "the same, the agent's model summarizes",
        "as ours-nodes; the model summarizes itself",
    ),
    "ours-middleware": (
        middleware,
        "this package, middleware",
        "defaults without the recall tool, which no script calls; rules marked by pin()",
    ),
    "langchain": (
        summarization,
        "`SummarizationMiddleware`",
        "SummarizationMiddleware, fraction 0.8 and keep 0.3 by profile, trim_tokens_to_summarize=None",
    ),
    "editing": (
        editing,
        "`ContextEditingMiddleware`",
        "ContextEditingMiddleware, ClearToolUsesEdit at 0.8 of the room, keep 3",
    ),
    "deepagents": (
        deep_agent,
        "deepagents",
        "create_deep_agent with its own tools and its defaults by profile",
    ),
    "deepagents-mw": (
        deep_middleware,
        "deepagents' middleware alone",
        "create_summarization_middleware alone in create_agent, defaults by profile, files in a folder",
    ),
    "langmem": (
        langmem,
        "langmem",
        "SummarizationNode as pre_model_hook, max_tokens 0.8 of the room",
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
    "nothing": (
        _agent,
        "nothing",
        "create_agent without any management",
    ),
}
"""How each builds an agent, what the table calls it, and what it is set to; ours are named so."""


# ---- figures ---------------------------------------------------------------------------------------------------------

ADDED = "added seconds per call"


def figures_of(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """What outcomes of one manager add up to, by the column of the table."""
    answered = [one for outcome in outcomes for one in outcome.answered]
    every = [one for o in outcomes for one in [*o.sent, *o.summaries]]
    found = {
        "failed turns": sum(outcome.failed for outcome in outcomes),
        "invalid requests": sum(one.is_invalid for one in every),
        "current question shown": _mean(one.has_user for one in answered),
        "planted facts shown at the end": _mean(o.facts_at_end for o in outcomes),
        "prefix stability": _mean(o.stable for o in answered if o.stable is not None),
    }
    if timed := [outcome for outcome in outcomes if outcome.job.scenario == CLOCK]:
        calls = sum(len(outcome.answered) for outcome in timed)
        found[ADDED] = sum(o.added_seconds for o in timed) / max(1, calls)
    return found | {"cost": sum(map(cost, outcomes))}


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
    failed, invalid, user, _, stable, *_ = (total := figures_of(mine)).values()
    yield failed == invalid == 0, f"failed {failed}, invalid {invalid}: 0, 0"
    yield user == 1, f"current user message {user:.3f}: 1.00"
    rules = rules_shown(mine)
    yield rules == 1, f"pinned rules {rules:.3f}: 1.00"
    yield from _beside_peers(mine, peers)
    if least := LEAST_STABLE.get(window):
        yield stable >= least, f"prefix stability {stable:.3f}: at least {least}"
    if ADDED in total:
        added = total[ADDED]
        yield (
            added < ADDED_SECONDS,
            f"added seconds {added:.3f}: under {ADDED_SECONDS}",
        )


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
    """The fast scenarios first; then those in real time all at once, since they mostly wait."""
    timed = [job for job in jobs if job.scenario == CLOCK]
    fast = [job for job in jobs if job.scenario != CLOCK]
    yield from pooled(play, fast, WAITING_SHARE * (os.cpu_count() or 1))
    yield from pooled(play, timed, len(timed)) if timed else ()


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


if __name__ == "__main__":
    main()
