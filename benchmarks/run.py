"""Runs the benchmarks in turn, each in a process of its own, and writes what they print to RESULTS.md as it comes.

`make bench` calls it in an environment that has the peers. What fails, takes too long or lacks its data is named, and
the others go on. RESULTS.md keeps the section of a benchmark until that benchmark has run again; `figures.py` makes
the tables of README.md and docs/figures.md from it.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common import parser_of

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
QUICK_RESULTS = FOLDER / "RESULTS.quick.md"
FULL_LIMIT_SECONDS = 20 * 60
QUICK_LIMIT_SECONDS = 120
STATED = "DATA"  # stands for the data folder in what is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One way to run a script. Its question is the first line of the script."""

    script: str
    full: str = ""
    """Arguments of the full form."""
    quick: str = ""
    form: str = ""
    """What sets it apart from other ways to run the script."""
    data: str = "transcripts"
    """Parts of a data folder that it reads."""

    needs_data: bool = False
    """Whether it has nothing made up to run on instead."""
    is_extra: bool = False
    """Whether it runs with `--all` only."""

    @property
    def name(self) -> str:
        return f"{self.script}, {self.form}" if self.form else self.script

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.script}.py"

    @property
    def question(self) -> str:
        text = ast.get_docstring(ast.parse(self.path.read_text("utf-8"))) or ""
        return text.partition("\n")[0]


BENCHMARKS = (
    Benchmark(script="sufficiency", quick="--per-file 1 --windows 8192"),
    Benchmark(
        script="sufficiency",
        form="kept aside",
        full="--half b --per-file 20 --windows 4096 8192",
        quick="--half b --per-file 1 --windows 4096",
        needs_data=True,
    ),
    Benchmark(
        script="arena",
        data="",
        quick="--scenarios parallel --windows 8192 --managers ours-nodes tail-and-list",
    ),
    Benchmark(script="cost", quick="--windows 8192 --per-file 1"),
    Benchmark(script="calibration", quick="--every 12"),
    Benchmark(
        script="calibration",
        form="texts",
        full="--texts",
        quick="--texts --every 20",
        data="tokens transcripts",
    ),
    Benchmark(script="overflow", data="overflow_errors.jsonl.gz", needs_data=True),
    Benchmark(
        script="tool_results", quick="--budgets 1000 --every 4", data="json_payloads"
    ),
    Benchmark(
        script="tool_selection",
        quick="--limit 20",
        data="tool_selection",
        needs_data=True,
    ),
    Benchmark(script="memory", quick="--chats 1", data="memory_qa", needs_data=True),
    Benchmark(script="routing", data="routing"),
    Benchmark(script="registry", data="model_facts", needs_data=True),
    Benchmark(
        script="decompose",
        quick="--latency 0.02 --tokens 30000",
        data="retrieval memory_qa",
    ),
    Benchmark(script="providers", data="", quick="--only agent"),
    Benchmark(script="storage", quick="--calls 40"),
    Benchmark(
        script="step_cost",
        full="--sizes 1000 10000",
        quick="--sizes 100",
    ),
    Benchmark(script="soak", quick="--turns 60"),
    Benchmark(
        script="reader",
        form="rules",
        quick="--files tau_airline",
        needs_data=True,
        is_extra=True,
    ),
    Benchmark(
        script="switch_off",
        quick="--quick --only record --measures shown",
        is_extra=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What a benchmark printed when it ran last."""

    name: str
    command: str
    how: str
    """When it ran, how long it took, and how it ended when it did not end well."""
    text: str

    @property
    def is_failure(self) -> bool:
        return "; " in self.how


def main() -> None:
    parser = parser_of(__doc__, "recorded data, see benchmarks/README.md")
    parser.add_argument(
        "--quick", action="store_true", help=f"small forms, to {QUICK_RESULTS.name}"
    )
    parser.add_argument(
        "--all", action="store_true", help="with the long forms that are left out"
    )
    scripts = sorted({benchmark.script for benchmark in BENCHMARKS})
    parser.add_argument(
        "--only", nargs="+", choices=scripts, help="the sections of the others stay"
    )
    options = parser.parse_args()
    target = QUICK_RESULTS if options.quick else RESULTS
    failed = []
    for benchmark in BENCHMARKS:
        usual = options.all or not benchmark.is_extra
        if benchmark.script in options.only if options.only else usual:
            print(f"{benchmark.name}: {benchmark.question}", flush=True)
            section = run(benchmark, options.data, quick=options.quick)
            print(f"    {section.how}", flush=True)
            failed += [benchmark.name] * section.is_failure
            write(target, section)
    if failed:
        sys.exit(f"not finished: {'; '.join(failed)}")


def run(benchmark: Benchmark, data: Path | None, *, quick: bool) -> Section:
    """Run the script in a process group of its own, so that its workers end with it."""
    has_data = data is not None and all(
        (data / part).exists() for part in benchmark.data.split()
    )
    arguments = (benchmark.quick if quick else benchmark.full).split()
    name = benchmark.name
    command = ["python", f"benchmarks/{benchmark.path.name}", *arguments]
    if benchmark.needs_data and not has_data:
        how = f"not run: it needs a data folder with {benchmark.data}"
        return Section(name=name, command=" ".join(command), how=how, text="")
    given = ["--data", str(data)] if benchmark.data and has_data else []
    limit = QUICK_LIMIT_SECONDS if quick else FULL_LIMIT_SECONDS
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603  # our own scripts
        [sys.executable, benchmark.path, *arguments, *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # the package beside these scripts, not the one that is installed
        env=os.environ | {"PYTHONPATH": str(FOLDER.parent)},
    )
    try:
        text, errors = process.communicate(timeout=limit)
        ended = ""
        if process.returncode:
            last = " ".join(errors.strip().splitlines()[-1:])
            ended = f"; failed with exit code {process.returncode}: {last}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        ended = f"; stopped: not done after {limit:,} seconds"
    how = f"{datetime.now(UTC):%Y-%m-%d}, {time.perf_counter() - began:,.0f} seconds{ended}"
    stated = " ".join([*command, *(["--data", STATED] if given else [])])
    text = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return Section(name=name, command=stated, how=how, text=text)


# ---- the file -------------------------------------------------------------------------------------------------------

WRITTEN = re.compile(
    r"^## (?P<name>.+)\n\n.*\n\n`(?P<command>.+)`\\\n(?P<how>.+)\n\n```text\n(?P<text>[\s\S]*?)\n?```$",
    re.MULTILINE,
)


def sections(path: Path = RESULTS) -> dict[str, Section]:
    """Read what is written, by the name of the benchmark."""
    if not path.exists():
        return {}
    found = WRITTEN.finditer(path.read_text(encoding="utf-8"))
    return {match["name"]: Section(**match.groupdict()) for match in found}


def write(path: Path, section: Section) -> None:
    """Put a section in the place of an older one; those of benchmarks that are gone leave."""
    found = {**sections(path), section.name: section}
    path.write_text("\n".join(page(found)) + "\n", encoding="utf-8")


def page(found: dict[str, Section]) -> Iterator[str]:
    yield "# Results\n"
    yield "Written by `make bench`, one section after the other; nothing is edited by hand. Times depend on the machine"
    yield "and on what else it does: compare them within one table.\n"
    yield f"- {platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    yield f"- {', '.join(versions())}"
    for benchmark in BENCHMARKS:
        if section := found.get(benchmark.name):
            yield f"\n## {section.name}\n\n{benchmark.question}\n"
            yield f"`{section.command}`\\\n{section.how}\n\n```text\n{section.text}\n```"


def versions() -> Iterator[str]:
    """Versions of the package, what it stands on, and what it is compared with."""
    for name in (
        "langchain-ctxwin", "langchain-core", "langchain", "langgraph", "deepagents", "langmem", "quicktok-v1",
    ):  # fmt: skip
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"{name} not installed"


if __name__ == "__main__":
    main()
