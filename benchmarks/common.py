"""What benchmarks share: arguments, recorded rows, a pool of processes, tables, goals, and conversations."""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import logging
import multiprocessing
import random
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin import ContextNodes


def parser_of(
    doc: str | None,
    data: str = "transcripts/*.jsonl.gz; generated ones without it",
    *,
    needs_data: bool = False,
) -> argparse.ArgumentParser:
    """Begin the arguments of a benchmark: `--data` names the folder that holds `data`; none of it where that is ""."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if data:
        about = f"folder with {data}"
        parser.add_argument("--data", type=Path, required=needs_data, help=about)
    return parser


def quiet() -> None:
    """Keep what the package and others log, and their warnings, out of the figures."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def rows_of(path: Path) -> Iterator[Any]:
    """The rows of a gzipped file, a line of JSON each."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def pooled(
    work: Callable[[Any], Any], jobs: Iterable[Any], processes: int | None = None
) -> Iterator[Any]:
    """Work on all cores, quietly; results come in the order of the jobs."""
    with multiprocessing.Pool(processes, quiet) as pool:
        yield from pool.imap(work, jobs, chunksize=1)


def usage_of(read: int, written: int = 10) -> UsageMetadata:
    """Sizes as a provider reports them."""
    return UsageMetadata(
        input_tokens=read, output_tokens=written, total_tokens=read + written
    )


def through(nodes: ContextNodes, state: dict[str, Any]) -> dict[str, Any]:
    """The state after a step through the nodes, up to the request that is built."""
    state = {**state, **nodes.budget_check.invoke(state)}
    while (node := nodes.route_on_budget(state)) != "build_messages":
        update = getattr(nodes, node).invoke(state)
        state = {**state, **update, "context_pending": {}}
    return {**state, **nodes.build_messages.invoke(state)}


def head(*columns: str, left: Collection[int] = (0,)) -> None:
    """Print the head of a table; columns stand on the right but those named."""
    row(*columns)
    lines = ("---|" if at in left else "---:|" for at in range(len(columns)))
    print("|" + "".join(lines))


def row(*cells: object) -> None:
    print(
        "|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells),
        flush=True,
    )


def goals(found: Iterable[tuple[bool, str]]) -> None:
    for is_met, text in found:
        print(f"- {'met   ' if is_met else 'MISSED'} {text}")


# ---- conversations: recorded ones from a data folder, or generated ones when there is none ---------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    name: str
    source: str
    tools: list[dict[str, Any]]
    messages: list[AnyMessage]


def load(
    data: Path | None, *, limit: int | None = None, names: Collection[str] | None = None
) -> Iterator[Transcript]:
    """Yield recorded conversations (OpenAI chat dicts, one gzipped JSON per line), or generated ones without `data`.

    Args:
        data: folder that has `transcripts`.
        limit: conversations per file.
        names: files without their suffix; None for all.
    """
    if data is None:
        yield from (generate(seed) for seed in range(limit or 12))
        return
    for path in sorted((data / "transcripts").glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        if names is None or name in names:
            for row in itertools.islice(rows_of(path), limit):
                yield transcript_of(row, name)


def one_after_the_other(transcripts: Iterable[Transcript]) -> Iterator[AnyMessage]:
    """Yield their messages without system ones, again and again, each with an id of its own."""
    said = (m for one in transcripts for m in one.messages if m.type != "system")
    for number, message in enumerate(itertools.cycle(said)):
        yield message.model_copy(update={"id": f"message-{number:06}"})


def generate(seed: int) -> Transcript:
    """Return a made-up conversation: turns of many look-ups, as the arena has them."""
    import arena_scenarios as arena  # with its tokenizer, which most benchmarks need

    made = arena.Scenario(random.Random(seed))  # noqa: S311  # reproducible, not secret
    arena.parallel(made, 0)
    messages: list[AnyMessage] = [SystemMessage(arena.SYSTEM_PROMPT)]
    for turn in made.turns:
        messages.append(HumanMessage(turn.user))
        for calls in turn.steps:
            messages.append(AIMessage("", tool_calls=list(calls)))
            messages += [
                ToolMessage(made.results[call["args"]["key"]], tool_call_id=call["id"])
                for call in calls
            ]
        messages.append(AIMessage(turn.answer))
    tools = list(map(convert_to_openai_tool, arena.plain_tools(made.results)))
    name = f"generated-{seed}"
    return _named(
        Transcript(name=name, source="generated", tools=tools, messages=messages)
    )


def transcript_of(row: dict[str, Any], source: str) -> Transcript:
    said = [{**one, "content": one.get("content") or ""} for one in row["messages"]]
    return _named(
        Transcript(
            name=row["id"],
            source=source,
            tools=row.get("tools") or [],
            messages=list(convert_to_messages(said)),
        )
    )


def _named(transcript: Transcript) -> Transcript:
    for index, message in enumerate(transcript.messages):
        message.id = f"{transcript.name}-{index}"
    return transcript
