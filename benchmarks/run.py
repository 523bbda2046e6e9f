"""Runs the benchmarks in turn, each in a process of its own, and writes what they print to RESULTS.md as it comes.

`make bench` calls it in an environment that has the peers. What fails, takes too long or lacks its data or its model is
named, and the others go on. RESULTS.md keeps the section of a benchmark until that benchmark has run again, and has no
path of this machine: DATA and MODEL stand for what was given. `figures.py` makes the tables of README.md and
docs/figures.md from it.
"""

from __future__ import annotations

import ast
import importlib.metadata
import itertools
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

    needs: str = ""
    """Options that it has to be given: `--data` where it has nothing made up to run on instead, `--model`."""

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
        needs="--data",
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
    Benchmark(script="overflow", data="overflow_errors.jsonl.gz", needs="--data"),
    Benchmark(
        script="tool_results", quick="--budgets 1000 --every 4", data="json_payloads"
    ),
    Benchmark(
        script="tool_selection",
        quick="--limit 20",
        data="tool_selection",
        needs="--data",
    ),
    Benchmark(script="memory", quick="--chats 1", data="memory_qa", needs="--data"),
    Benchmark(script="routing", data="routing"),
    Benchmark(script="registry", data="model_facts", needs="--data"),
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
        full="--steps 8",
        quick="--steps 1",
        needs="--data --model",
    ),
    Benchmark(script="reader", form="rules", needs="--data"),
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

    @property
    def is_left_out(self) -> bool:
        return self.how.startswith("not run")


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
    parser.add_argument(
        "--model", type=Path, help="a language model in the GGUF format, for `reader`"
    )
    options = parser.parse_args()
    target = QUICK_RESULTS if options.quick else RESULTS
    failed = []
    for benchmark in BENCHMARKS:
        usual = options.all or not benchmark.is_extra
        if benchmark.script in options.only if options.only else usual:
            print(f"{benchmark.name}: {benchmark.question}", flush=True)
            section = run(benchmark, options.data, options.model, quick=options.quick)
            print(f"    {section.how}", flush=True)
            failed += [benchmark.name] * section.is_failure
            write(target, section)
    if failed:
        sys.exit(f"not finished: {'; '.join(failed)}")


def run(
    benchmark: Benchmark, data: Path | None, model: Path | None = None, *, quick: bool
) -> Section:
    """Run the script with what there is for it; DATA and MODEL stand for the paths in what is written."""
    given = dict[str, Path]()
    if model and "--model" in benchmark.needs:
        given["--model"] = model.resolve()
    parts = benchmark.data.split()
    if data and parts and all((data / part).exists() for part in parts):
        given["--data"] = data.resolve()
    missing = [option for option in benchmark.needs.split() if option not in given]
    arguments = (benchmark.quick if quick else benchmark.full).split()
    command = ["python", f"benchmarks/{benchmark.path.name}", *arguments]
    if missing:
        how, text = f"not run: it needs {' and '.join(missing)}, see its --help", ""
    else:
        paths = itertools.chain.from_iterable(given.items())
        how, text = printed([benchmark.path, *arguments, *paths], is_quick=quick)
    for option, path in given.items():
        stands_for = option.strip("-").upper()
        command += [option, stands_for]
        how, text = (said.replace(str(path), stands_for) for said in (how, text))
    return Section(name=benchmark.name, command=" ".join(command), how=how, text=text)


def printed(command: list[str | Path], *, is_quick: bool) -> tuple[str, str]:
    """Run a script in a process group of its own, so that its workers end with it: how it ended, and its text."""
    limit = QUICK_LIMIT_SECONDS if is_quick else FULL_LIMIT_SECONDS
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603  # our own scripts
        [sys.executable, *command],
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
    return how, "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


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
    """Put a section in the place of an older one, if it was run; those of benchmarks that are gone leave."""
    older, newer = sections(path), {section.name: section}
    found = newer | older if section.is_left_out else older | newer
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
