"""Runs the benchmarks in turn, each in a process of its own, and writes what they print to RESULTS.md as it comes.

`make bench` calls it in an environment that has the peers. What fails, takes too long or lacks its data is named, and
the others go on. RESULTS.md keeps the section of a benchmark until that benchmark has run again; `figures.py` makes
the tables of README.md and docs/figures.md from it.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
QUICK_RESULTS = FOLDER / "RESULTS.quick.md"
FULL_LIMIT_SECONDS = 20 * 60
QUICK_LIMIT_SECONDS = 120
STATED = "DATA"  # stands for the data folder in what is written

TRANSCRIPTS, PAYLOADS, ROUTING = "transcripts", "json_payloads", "routing"
SELECTION, CHATS, DOCUMENTS = "tool_selection", "memory_qa", "retrieval"
ERRORS, TOKENS, FACTS = "overflow_errors.jsonl.gz", "tokens", "model_facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One way to run a script. Its question is the first line of the script."""

    script: str
    full: str = ""
    """Arguments of the full form."""
    quick: str = ""
    form: str = ""
    """What sets it apart from other ways to run the script."""
    data: tuple[str, ...] = ()
    needs_data: bool = False
    """Whether it has nothing made up to run on instead."""
    is_extra: bool = False
    """Whether it runs with `--all` only."""

    @property
    def name(self) -> str:
        return f"{self.script}, {self.form}" if self.form else self.script

    @property
    def question(self) -> str:
        text = (
            ast.get_docstring(
                ast.parse((FOLDER / f"{self.script}.py").read_text(encoding="utf-8"))
            )
            or ""
        )
        return text.partition("\n")[0]


BENCHMARKS = (
    Benchmark(
        script="sufficiency", quick="--per-file 1 --windows 8192", data=(TRANSCRIPTS,)
    ),
    Benchmark(
        script="sufficiency",
        form="kept aside",
        full="--half b --per-file 20 --windows 4096 8192",
        quick="--half b --per-file 1 --windows 4096",
        data=(TRANSCRIPTS,),
        needs_data=True,
    ),
    Benchmark(
        script="arena",
        quick="--scenarios parallel --windows 8192 --managers ours-nodes tail-and-list",
    ),
    Benchmark(script="cost", quick="--windows 8192 --per-file 1", data=(TRANSCRIPTS,)),
    Benchmark(script="calibration", quick="--every 12", data=(TRANSCRIPTS,)),
    Benchmark(script="tokens", quick="--quick", data=(TOKENS, TRANSCRIPTS)),
    Benchmark(script="overflow", data=(ERRORS,)),
    Benchmark(
        script="tool_results", quick="--budgets 1000 --every 4", data=(PAYLOADS,)
    ),
    Benchmark(
        script="tool_selection",
        quick="--limit 20",
        data=(SELECTION,),
        needs_data=True,
    ),
    Benchmark(script="memory", quick="--chats 1", data=(CHATS,), needs_data=True),
    Benchmark(script="routing", data=(ROUTING,)),
    Benchmark(script="registry", data=(FACTS,), needs_data=True),
    Benchmark(
        script="decompose",
        quick="--latency 0.02 --tokens 30000",
        data=(DOCUMENTS, CHATS),
    ),
    Benchmark(script="providers", quick="--only agent"),
    Benchmark(script="storage", quick="--calls 40", data=(TRANSCRIPTS,)),
    Benchmark(
        script="step_cost",
        full="--sizes 1000 10000",
        quick="--sizes 100",
        data=(TRANSCRIPTS,),
    ),
    Benchmark(
        script="step_cost",
        form="100,000 messages",
        full="--sizes 100000",
        quick="--sizes 400",
        data=(TRANSCRIPTS,),
        is_extra=True,
    ),
    Benchmark(script="soak", quick="--turns 60", data=(TRANSCRIPTS,)),
    Benchmark(
        script="reader",
        form="rules",
        full="--rules",
        quick="--rules --files tau_airline --minutes 0.2",
        data=(TRANSCRIPTS,),
        needs_data=True,
        is_extra=True,
    ),
    Benchmark(
        script="switch_off",
        quick="--quick --only record --measures shown",
        data=(TRANSCRIPTS,),
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"small forms, in some minutes, to {QUICK_RESULTS.name}",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="with the long forms that the usual run leaves out",
    )
    parser.add_argument(
        "--data", type=Path, help="folder with recorded data, see benchmarks/README.md"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        help="scripts to run; the sections of the others stay",
    )
    options = parser.parse_args()
    scripts = {benchmark.script for benchmark in BENCHMARKS}
    if unknown := sorted(set(options.only) - scripts):
        parser.error(
            f"no benchmark is named {', '.join(unknown)}; there are {', '.join(sorted(scripts))}"
        )
    if options.data and not options.data.is_dir():
        parser.error(f"{options.data} is no folder")
    target = QUICK_RESULTS if options.quick else RESULTS
    chosen = [
        one for one in BENCHMARKS if one.script in options.only or not options.only
    ]
    chosen = [one for one in chosen if options.all or not one.is_extra]
    failed = []
    for number, benchmark in enumerate(chosen, 1):
        print(
            f"[{number:>2}/{len(chosen)}] {benchmark.name}: {benchmark.question}",
            flush=True,
        )
        section = run(benchmark, options.data, quick=options.quick)
        print(f"        {section.how}", flush=True)
        failed += [benchmark.name] * section.is_failure
        write(target, section)
    print(
        f"written: {target.relative_to(FOLDER.parent)}; `python benchmarks/figures.py` makes the tables of the docs"
    )
    if failed:
        sys.exit(f"not finished: {'; '.join(failed)}")


def run(benchmark: Benchmark, data: Path | None, *, quick: bool) -> Section:
    """Run the script in a process group of its own, so that its workers end with it."""
    has_data = data is not None and all(
        (data / part).exists() for part in benchmark.data
    )
    arguments = (benchmark.quick if quick else benchmark.full).split()
    given = ["--data", str(data)] if benchmark.data and has_data else []
    stated = ["--data", STATED] if given else []
    shown = " ".join(
        ["python", f"benchmarks/{benchmark.script}.py", *arguments, *stated]
    )
    if benchmark.needs_data and not has_data:
        how = f"not run: it needs a data folder with {', '.join(benchmark.data)}"
        return Section(name=benchmark.name, command=shown, how=how, text="")
    command = [
        sys.executable,
        str(FOLDER / f"{benchmark.script}.py"),
        *arguments,
        *given,
    ]
    limit = QUICK_LIMIT_SECONDS if quick else FULL_LIMIT_SECONDS
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603  # our own scripts
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        text, errors = process.communicate(timeout=limit)
        last = " ".join(errors.strip().splitlines()[-1:])
        ended = (
            f"; failed with exit code {process.returncode}: {last}"
            if process.returncode
            else ""
        )
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        ended = f"; stopped: not done after {limit:,} seconds"
    how = f"{datetime.now(UTC):%Y-%m-%d}, {time.perf_counter() - began:,.0f} seconds{ended}"
    how, text = (without_paths(part, data) for part in (how, text))
    return Section(name=benchmark.name, command=shown, how=how, text=text)


def without_paths(text: str, data: Path | None) -> str:
    """Return the text as it would read on any machine."""
    places = {str(data): STATED, str(data.resolve()): STATED} if data else {}
    for place, name in {
        **places,
        str(FOLDER.parent): ".",
        str(Path.home()): "~",
    }.items():
        text = text.replace(place, name)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


# ---- the file -------------------------------------------------------------------------------------------------------

WRITTEN = re.compile(
    r"^## (?P<name>.+)\n\n.*\n\n`(?P<command>.+)`\\\n(?P<how>.+)\n\n```text\n(?P<text>[\s\S]*?)\n?```$",
    re.MULTILINE,
)


def sections(path: Path = RESULTS) -> dict[str, Section]:
    """Read what is written, by the name of the benchmark."""
    if not path.exists():
        return {}
    found = (
        Section(**match.groupdict())
        for match in WRITTEN.finditer(path.read_text(encoding="utf-8"))
    )
    return {section.name: section for section in found}


def write(path: Path, section: Section) -> None:
    """Put a section in the place of an older one; those of benchmarks that are gone leave."""
    found = {**sections(path), section.name: section}
    path.write_text("\n".join(page(found)) + "\n", encoding="utf-8")


def page(found: dict[str, Section]) -> Iterator[str]:
    yield "# Results"
    yield ""
    yield "Written by `make bench`, one section after the other; nothing is edited by hand. Times depend on the machine"
    yield "and on what else it does: compare them within one table."
    yield ""
    yield f"- {platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    yield f"- {', '.join(versions())}"
    for benchmark in BENCHMARKS:
        if section := found.get(benchmark.name):
            yield from (
                f"\n## {section.name}",
                "",
                benchmark.question,
                "",
                f"`{section.command}`\\",
                section.how,
                "",
            )
            yield from ("```text", section.text, "```")


def versions() -> Iterable[str]:
    """Versions of the package, what it stands on, and what it is compared with."""
    for name in (
        "langchain-ctxwin",
        "langchain-core",
        "langchain",
        "langgraph",
        "deepagents",
        "langmem",
        "quicktok-v1",
    ):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"{name} not installed"


if __name__ == "__main__":
    main()
