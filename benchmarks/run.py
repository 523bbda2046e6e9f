"""Runs every benchmark in turn, and writes what they printed to RESULTS.md, with plots of these very figures.

`make bench` calls it in an environment that has the peers. What fails, takes too long or lacks its data is named, and
the others go on.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
PLOTS = FOLDER / "plots"
FULL_LIMIT_SECONDS = 20 * 60
QUICK_LIMIT_SECONDS = 60
DIGEST_LETTERS = 16  # enough to tell two versions of a data set apart
STATED = "DATA"  # stands for the data folder in what is written

TRANSCRIPTS, PAYLOADS, ROUTING = "transcripts", "json_payloads", "routing"
SELECTION, CHATS, DOCUMENTS = "tool_selection", "memory_qa", "retrieval"
ERRORS, USAGE, TOKENS, FACTS = "overflow_errors.jsonl.gz", "usage_truth", "tokens", "model_facts"

SOURCES = {
    TRANSCRIPTS: "recorded agents: tau-bench, tau2-bench, BFCL, mini-SWE-agent, SWE-agent, OpenHands, live MCP, coding",
    PAYLOADS: "API responses: GitHub (octokit fixtures, OpenAPI examples), Stripe fixtures, Hostaway, vega data sets",
    ROUTING: "outcomes by model: RouteLLM (MMLU, GSM8K), the nine-model set of LLMRouter",
    SELECTION: "tools, requests and the tools they need: StableToolBench, BFCL, MetaTool",
    CHATS: "long chats with questions: LoCoMo",
    DOCUMENTS: "documents: Cranfield, ARCD",
    ERRORS: "error texts of providers, overflows and others",
    USAGE: "provider requests recorded in public test suites, with the reported input tokens",
    TOKENS: "texts with exact counts by eight tokenizers",
    FACTS: "nine months of models.dev, three LiteLLM tables",
}
"""What stands in a data folder, and whose it is."""


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
    peers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.script}, {self.form}" if self.form else self.script

    @property
    def question(self) -> str:
        text = ast.get_docstring(ast.parse((FOLDER / f"{self.script}.py").read_text(encoding="utf-8"))) or ""
        return text.partition("\n")[0]


BENCHMARKS = (
    Benchmark(script="sufficiency", quick="--per-file 1 --windows 4096 8192", data=(TRANSCRIPTS,)),
    Benchmark(
        script="sufficiency",
        form="kept aside",
        full="--half b --per-file 20 --windows 4096 8192",
        quick="--half b --per-file 1 --windows 4096",
        data=(TRANSCRIPTS,),
        needs_data=True,
    ),
    Benchmark(
        script="sufficiency",
        form="presets",
        full="--presets",
        quick="--presets --per-file 1 --windows 8192",
        data=(TRANSCRIPTS,),
    ),
    Benchmark(
        script="cost",
        form="providers",
        full="--providers",
        quick="--providers --windows 8192 --per-file 1",
        data=(TRANSCRIPTS,),
        peers=("langchain",),
    ),
    Benchmark(
        script="cost",
        full="--windows 8192 --sessions 8",
        quick="--windows 8192 --sessions 1 --limit 2",
        data=(TRANSCRIPTS,),
    ),
    Benchmark(script="growing", quick="--sessions 2", data=(TRANSCRIPTS,)),
    Benchmark(script="arena", quick="--quick --windows 8192", peers=("langchain", "deepagents", "langmem")),
    Benchmark(script="conformance", quick="--only ours", peers=("langchain", "deepagents", "langmem")),
    Benchmark(script="providers", quick="--only agent", peers=("langchain", "langchain-anthropic", "deepagents")),
    Benchmark(script="replay", quick="--limit 2", data=(TRANSCRIPTS,)),
    Benchmark(script="soak", full="--turns 10000", quick="--turns 200 --graph-turns 40", data=(TRANSCRIPTS,)),
    Benchmark(
        script="step_cost",
        quick="--sizes 200 1000",
        data=(TRANSCRIPTS,),
        peers=("langchain", "deepagents"),
    ),
    Benchmark(script="calibration", quick="--every 6", data=(TRANSCRIPTS, USAGE, SELECTION), peers=("langchain-core",)),
    Benchmark(script="tokens", data=(TOKENS, TRANSCRIPTS), peers=("langchain-core", "quicktok-v1")),
    Benchmark(script="overflow", data=(ERRORS,)),
    Benchmark(script="memory", quick="--chats 1", data=(CHATS,), needs_data=True),
    Benchmark(script="tool_results", quick="--budgets 1000 --every 4", data=(PAYLOADS,), peers=("deepagents",)),
    Benchmark(script="page_fill", full="--budgets 1000 4000", quick="--budgets 4000 --every 3", data=(PAYLOADS,)),
    Benchmark(script="projection", data=(PAYLOADS,), needs_data=True),
    Benchmark(
        script="tool_selection",
        full="--embeddings",
        quick="--limit 20 --conversations 1",
        data=(SELECTION, TRANSCRIPTS),
        needs_data=True,
    ),
    Benchmark(script="routing", data=(ROUTING,), needs_data=True),
    Benchmark(script="fallbacks", quick="--limit 1", data=(TRANSCRIPTS,)),
    Benchmark(script="registry", data=(FACTS,), needs_data=True),
    Benchmark(script="decompose", quick="--latency 0.02", data=(DOCUMENTS, CHATS)),
    Benchmark(script="checkpoint_storage", quick="--turns 50 100 --plain-turns 50", peers=("langgraph",)),
    Benchmark(script="thread_storage", quick="--calls 40", data=(TRANSCRIPTS,), peers=("langgraph",)),
    Benchmark(script="metrics", quick="--messages 60 --rounds 2", peers=("opentelemetry-sdk",)),
    Benchmark(script="reload", quick="--writes 10 --readers 20"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    benchmark: Benchmark
    outcome: str
    """"ran", or why it did not, or how it ended."""
    arguments: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def is_failure(self) -> bool:
        return self.outcome.startswith(("failed", "stopped"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small forms, less than five minutes in all")
    parser.add_argument("--data", type=Path, help="folder with recorded data, see benchmarks/README.md")
    parser.add_argument(
        "--only", nargs="+", default=[], help="scripts to run; what they print is shown, nothing written"
    )
    options = parser.parse_args()
    scripts = {benchmark.script for benchmark in BENCHMARKS}
    if unknown := sorted(set(options.only) - scripts):
        parser.error(f"no benchmark is named {', '.join(unknown)}; there are {', '.join(sorted(scripts))}")
    if options.data and not options.data.is_dir():
        parser.error(f"{options.data} is no folder")
    chosen = [benchmark for benchmark in BENCHMARKS if not options.only or benchmark.script in options.only]
    outcomes = []
    for number, benchmark in enumerate(chosen, 1):
        print(f"[{number:>2}/{len(chosen)}] {benchmark.name}: {benchmark.question}", flush=True)
        outcomes.append(run(benchmark, options.data, quick=options.quick))
        print(f"        {outcomes[-1].outcome}, {outcomes[-1].seconds:.0f} s", flush=True)
        if options.only:
            print(outcomes[-1].text)
    if not options.only:
        write(outcomes, options.data, quick=options.quick)
    if failed := [one.benchmark.name for one in outcomes if one.is_failure]:
        sys.exit(f"not finished: {'; '.join(failed)}")


def run(benchmark: Benchmark, data: Path | None, *, quick: bool) -> Outcome:
    """Run the script in a process group of its own, so that its workers end with it."""
    has_data = data is not None and all((data / part).exists() for part in benchmark.data)
    if benchmark.needs_data and not has_data:
        return Outcome(benchmark=benchmark, outcome=f"not run: it needs a data folder with {', '.join(benchmark.data)}")
    arguments = (benchmark.quick if quick else benchmark.full).split()
    given = ["--data", str(data)] if benchmark.data and has_data else []
    command = [sys.executable, str(FOLDER / f"{benchmark.script}.py"), *arguments, *given]
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
        outcome = "ran" if process.returncode == 0 else failure(process.returncode, errors)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        outcome = f"stopped after {limit:,} seconds"
    seconds = time.perf_counter() - began
    shown = " ".join([*arguments, *(["--data", STATED] if given else [])])
    text, outcome = (without_paths(part, data) for part in (text, outcome))
    return Outcome(benchmark=benchmark, outcome=outcome, arguments=shown, text=text, seconds=seconds)


def failure(code: int, errors: str) -> str:
    """How it ended, with the last line of what it wrote about it."""
    last = errors.strip().splitlines()[-1:]
    return " ".join([f"failed with exit code {code}:", *last])


def without_paths(text: str, data: Path | None) -> str:
    """Return the text as it would read on any machine."""
    places = {str(data): STATED, str(data.resolve()): STATED} if data else {}
    for place, name in {**places, str(FOLDER.parent): ".", str(Path.home()): "~"}.items():
        text = text.replace(place, name)
    return text


def write(outcomes: Sequence[Outcome], data: Path | None, *, quick: bool) -> None:
    import drawing

    texts = {one.benchmark.name: one.text for one in outcomes if one.outcome == "ran"}
    plots = drawing.draw(texts, PLOTS)
    RESULTS.write_text("\n".join(page(outcomes, plots, data, quick=quick)) + "\n", encoding="utf-8")
    print(f"written: {RESULTS.relative_to(FOLDER.parent)}, {sum(map(len, plots.values()))} plots")


def page(outcomes: Sequence[Outcome], plots: dict[str, list[str]], data: Path | None, *, quick: bool) -> Iterator[str]:
    yield "# Results"
    yield ""
    command = " ".join(["make bench", *(["QUICK=1"] if quick else []), *([f"DATA={STATED}"] if data else [])])
    yield f"Written by `{command}`; nothing is edited by hand."
    yield "Times depend on the machine and on what else it does: compare them within one table."
    yield ""
    yield from about(outcomes, data, quick=quick)
    yield ""
    yield "| benchmark | script | peers | seconds | |"
    yield "|---|---|---|---:|---|"
    for one in outcomes:
        benchmark = one.benchmark
        peers = ", ".join(benchmark.peers)
        yield f"| {benchmark.name} | `{benchmark.script}.py` | {peers} | {one.seconds:,.0f} | {one.outcome} |"
    for one in outcomes:
        yield from section(one, plots.get(one.benchmark.name, []))


def about(outcomes: Sequence[Outcome], data: Path | None, *, quick: bool) -> Iterator[str]:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    seconds = sum(one.seconds for one in outcomes)
    yield f"- {datetime.now(UTC):%Y-%m-%d}, {'quick' if quick else 'full'} form, {seconds:,.0f} seconds"
    yield f"- {machine}"
    yield f"- {', '.join(f'{name} {version}' for name, version in versions().items())}"
    if data is None:
        yield "- no data folder: made-up conversations, texts and payloads"
        return
    yield "- data, with the number of files, their size and the start of a SHA-256 of names and contents:"
    used = dict.fromkeys(part for one in outcomes for part in one.benchmark.data)
    for part in (part for part in used if (data / part).exists()):
        files = sorted(path for path in [data / part, *(data / part).rglob("*")] if path.is_file())
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        yield f"    - `{part}`: {SOURCES[part]} ({len(files)}, {megabytes:.1f} MB, `{digest(data, files)}`)"


def section(one: Outcome, plots: Iterable[str]) -> Iterator[str]:
    yield ""
    yield f"## {one.benchmark.name}"
    yield ""
    yield one.benchmark.question
    yield ""
    if one.outcome != "ran":
        yield f"{one.outcome[0].upper()}{one.outcome[1:]}"
        yield ""
    if one.text:
        yield (
            f"`python benchmarks/{one.benchmark.script}.py {one.arguments}".rstrip() + f"` ({one.seconds:,.0f} seconds)"
        )
        yield ""
        yield "```text"
        yield "\n".join(line.rstrip() for line in one.text.strip("\n").splitlines())
        yield "```"
    for plot in plots:
        yield ""
        yield f"![{one.benchmark.name}]({PLOTS.name}/{plot})"


def versions() -> dict[str, str]:
    """Versions of the package, what it stands on, and what it is compared with."""
    peers = sorted({peer for benchmark in BENCHMARKS for peer in benchmark.peers})
    found = dict.fromkeys(["langchain-ctxwin", "langchain-core", "langgraph", "numpy", "quicktok-v1", *peers], "")
    for name in found:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def digest(root: Path, files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        found.update(f"{path.relative_to(root).as_posix()}\n{path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:DIGEST_LETTERS]


if __name__ == "__main__":
    main()
