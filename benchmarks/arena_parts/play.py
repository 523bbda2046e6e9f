"""What comes of a scenario under a manager? Plays every turn and returns what was counted."""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from arena_parts.managers import MANAGERS, Parts
from arena_parts.provider import (
    Desk,
    FakeProvider,
    FakeSummarizer,
    RefusedError,
    Sent,
    Summary,
    parts_of,
    total_tokens,
)
from arena_parts.script import CLOCK, RESERVE_SHARE, Scenario, input_limit, scenario

MODEL_SECONDS = 1.0  # one answer in real time
SUMMARIZER_SECONDS = 2.0
SPEED_UP = 50
"""All but one scenario run this much faster, so that background work still takes as long as some steps."""

WARM_UP_TURNS = 3
"""Played fast before the timed ones, so that imports and tokenizers are loaded."""

RECURSION_LIMIT = 5_000
JOB_SECONDS = 400.0
"""A manager that is slower than this on one scenario fails the rest of its turns."""

MINIMAL_RESULT_TOKENS = 50
MINIMAL_USER_TOKENS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    manager: str
    scenario: str
    window: int


@dataclass(slots=True, kw_only=True)
class Outcome:
    job: Job
    turns: int = 0
    calls: int = 0
    failed: int = 0
    false_refusals: int = 0
    errors: list[str] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    facts_at_end: float = 0.0
    added_seconds: list[float] = field(default_factory=list)
    """Per turn."""

    cpu_seconds: float = 0.0
    seconds: float = 0.0
    absent: str = ""


def play(job: Job) -> Outcome:
    logging.disable(logging.CRITICAL)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    warnings.simplefilter("ignore")
    script = scenario(job.scenario, job.window)
    if job.scenario != CLOCK:
        return _play(job, script, SPEED_UP)
    _play(job, replace(script, turns=script.turns[:WARM_UP_TURNS]), SPEED_UP)
    return _play(job, script, 1)


def _play(job: Job, script: Scenario, speed: float) -> Outcome:
    desk, began = Desk(script), time.perf_counter()
    outcome = Outcome(job=job, turns=len(script.turns), calls=script.calls)
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        try:
            agent = MANAGERS[job.manager].build(_parts(job, desk, speed, folder))
        except ImportError as error:
            outcome.absent = f"{error}: pip install {MANAGERS[job.manager].install}"
            return outcome
        _converse(agent, desk, outcome)
    outcome.sent, outcome.summaries, outcome.seconds = (
        desk.sent,
        desk.summaries,
        time.perf_counter() - began,
    )
    last = next(
        (sent for sent in reversed(desk.sent) if sent.outcome == "answered"), None
    )
    if last and (last.turn, last.step) == (
        len(script.turns) - 1,
        len(script.turns[-1].steps),
    ):
        outcome.facts_at_end = last.facts or 0.0
    return outcome


def _parts(job: Job, desk: Desk, speed: float, folder: str) -> Parts:
    reserve = job.window // RESERVE_SHARE
    return Parts(
        provider=FakeProvider(
            desk, window=job.window, max_tokens=reserve, seconds=MODEL_SECONDS / speed
        ),
        summarizer=FakeSummarizer(
            desk, window=job.window, seconds=SUMMARIZER_SECONDS / speed
        ),
        tools=list(desk.scenario.tools),
        system_prompt=desk.scenario.system_prompt,
        folder=folder,
    )


def _converse(agent: Any, desk: Desk, outcome: Outcome) -> None:
    manager = MANAGERS[outcome.job.manager]
    deadline = time.perf_counter() + JOB_SECONDS
    for number, turn in enumerate(desk.scenario.turns):
        if time.perf_counter() > deadline:
            outcome.failed += 1
            outcome.errors.append("out of time")
            continue
        desk.begin(number)
        message = manager.message(turn.user, rule=bool(turn.rule))
        outside = desk.provider.seconds
        cpu_outside = desk.provider.cpu_seconds + desk.summarizer.cpu_seconds
        began, cpu_began = time.perf_counter(), time.process_time()
        error = _turn(agent, message, turn.answer)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        outcome.added_seconds.append(wall - (desk.provider.seconds - outside))
        outcome.cpu_seconds += cpu - (
            desk.provider.cpu_seconds + desk.summarizer.cpu_seconds - cpu_outside
        )
        if error is not None:
            outcome.failed += 1
            outcome.false_refusals += _is_false(
                error, desk, input_limit(outcome.job.window)
            )
            outcome.errors.append(
                f"turn {number} step {desk.step}: {type(error).__name__}: {str(error)[:300]}"
            )


def _turn(agent: Any, message: HumanMessage, answer: str) -> Exception | None:
    config = {
        "configurable": {"thread_id": "arena"},
        "recursion_limit": RECURSION_LIMIT,
    }
    try:
        final = agent.invoke({"messages": [message]}, config)["messages"][-1]
    except Exception as error:  # noqa: BLE001  # whatever ends a turn is counted
        return error
    return (
        None
        if final.text == answer
        else AssertionError(f"the turn ended with {final.text[:80]!r}")
    )


def _is_false(error: Exception, desk: Desk, limit: int) -> bool:
    """True when the manager gave up, not the provider, although the smallest necessary request fits."""
    if isinstance(error, RefusedError):
        return False
    return smallest_tokens(desk.scenario, desk.turn, desk.step) <= limit


def smallest_tokens(script: Scenario, turn: int, step: int) -> int:
    """Tools, prompt, the current user message (cut when it is long), the newest calls with minimal results."""
    tools = [convert_to_openai_tool(tool) for tool in script.tools]
    asked = script.turns[turn].user
    user = parts_of([HumanMessage(asked)], [])[1].tokens
    fixed = total_tokens(parts_of([SystemMessage(script.system_prompt)], tools))
    tokens = fixed + (
        min(user, MINIMAL_USER_TOKENS) if isinstance(asked, str) else user
    )
    if step:
        newest = script.turns[turn].steps[step - 1]
        tokens += total_tokens(
            parts_of([AIMessage("", tool_calls=[call.made() for call in newest])], [])[
                1:
            ]
        )
        tokens += MINIMAL_RESULT_TOKENS * len(newest)
    return tokens
