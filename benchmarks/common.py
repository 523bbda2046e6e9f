"""What benchmarks share: arguments, recorded rows, a pool of processes, tables, and goals."""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import structlog
from langchain_core.messages.ai import UsageMetadata

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
    """Keep what the package logs out of the figures."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )


def rows_of(path: Path) -> Iterator[Any]:
    """The rows of a gzipped file, a line of JSON each."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def pooled(
    work: Callable[[Any], Any], jobs: Iterable[Any], processes: int | None = None
) -> Iterator[Any]:
    """Work on all cores; results come in the order of the jobs."""
    with multiprocessing.Pool(processes or os.cpu_count()) as pool:
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
