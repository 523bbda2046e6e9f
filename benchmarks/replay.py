"""Do recorded conversations fit through the nodes at several windows, and what does a change of the code alter in them?

Every request is checked with an exact tokenizer. `--write FILE` before a change keeps requests, sessions and events,
`--against FILE` after it says how many differ and shows the first differences. Such a file holds recorded data: keep
it out of the project.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import itertools
import json
import multiprocessing
import os
import time
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from structlog.testing import capture_logs

import exact
from langchain_ctxwin import (
    BudgetExceededError,
    ContextEngine,
    ContextNodes,
    ModelLimits,
    TokenEstimator,
)
from langchain_ctxwin.testing import request_faults
from transcripts import Transcript, load

WINDOWS = (4096, 8192, 32768)
RESERVE_SHARE = 0.25  # of the window, for the answer
OF_THE_MOMENT = {
    "checksum",
    "since",
    "seconds",
    "duration_seconds",
    "elapsed_seconds",
    "key",
}
SHOWN_DIFFERENCES, SHOWN_LINES, SHOWN_CHARS = 3, 40, 200

State = dict[str, Any]
Texts = dict[str, str]
"""Texts by their digest."""

Part = tuple[str, list[str]]
"""A request, a session or the events of a conversation: its kind, and the digests of its texts."""


class RefusedError(ContextOverflowError):
    """What the measured provider raises for a request over its input limit."""


class Replay:
    """One conversation at one window: the recorded answers, our requests."""

    def __init__(self, transcript: Transcript, window: int, *, keeps: bool) -> None:
        reserve = int(window * RESERVE_SHARE)
        limits = ModelLimits(context_window=window, requested_output_tokens=reserve)
        self.transcript, self.limit, self.keeps = transcript, window - reserve, keeps
        self.nodes = ContextNodes(
            ContextEngine(limits, counter=TokenEstimator("openai")),
            tools=transcript.tools,
        )
        self.model = self.nodes.model_node(self.answer)
        self.found: Counter[str] = Counter()
        self.stable: list[float] = []
        self.parts: list[tuple[str, list[str]]] = []
        self.sent: list[AnyMessage] = []
        self.reply = AIMessage("")

    def answer(self, request: list[AnyMessage]) -> AIMessage:
        """Answer as recorded; refuse what is too large, as a provider does."""
        tools = self.transcript.tools
        tokens = exact.request_tokens(request, tools)
        self.found["separated calls"] += len(request_faults(request))
        if tokens > self.limit:
            self.found["refused by the provider, first or later"] += 1
            raise RefusedError(
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({self.limit})."
            )
        if self.sent:
            shared = exact.common_tokens(self.sent, request, tools)
            self.stable.append(shared / exact.request_tokens(self.sent, tools))
        self.sent = request
        if self.keeps:
            self.parts.append(("request", [*map(_message_text, request)]))
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        return self.reply.model_copy(update={"usage_metadata": usage})

    def run(self) -> None:
        state: State = {"messages": []}
        for message in self.transcript.messages:
            has_question = any(isinstance(m, HumanMessage) for m in state["messages"])
            if isinstance(message, AIMessage) and has_question:
                try:
                    state = self.step(state, message)
                    continue
                except (BudgetExceededError, RefusedError) as error:
                    kind = (
                        "by the provider" if isinstance(error, RefusedError) else "here"
                    )
                    self.found[f"given up: cannot fit, said {kind}"] += 1
            state["messages"] = [*state["messages"], message]

    def step(self, state: State, reply: AIMessage) -> State:
        self.reply = reply
        self.found["requests"] += 1
        state |= self.nodes.budget_check.invoke(state)
        for _ in range(2):
            if (node := self.nodes.route_on_budget(state)) == "build_messages":
                break
            self.found["compactions"] += 1
            state |= getattr(self.nodes, node).invoke(state)
            state["context_pending"] = {}
        state |= self.nodes.build_messages.invoke(state)
        question = next(
            m for m in reversed(state["messages"]) if isinstance(m, HumanMessage)
        )
        self.found["lost questions"] += all(
            m.id != question.id for m in state["llm_input_messages"]
        )
        update = self.model.invoke(state)
        state |= {**update, "messages": [*state["messages"], *update["messages"]]}
        if not reply.tool_calls:
            state |= self.nodes.maybe_summarize.invoke(state)
        if self.keeps:
            session = {
                key: value for key, value in state.items() if key.startswith("context_")
            }
            self.parts.append(
                (
                    "session",
                    [_text({key: value}) for key, value in sorted(session.items())],
                )
            )
        return state


Played = tuple[str, int, Counter[str], list[float], list[Part], Texts]


def play(job: tuple[Transcript, int, bool]) -> Played:
    """Replay one conversation; return what was counted, its parts as digests, and the texts behind them."""
    transcript, window, keeps = job
    with capture_logs() as logs:
        replay = Replay(transcript, window, keeps=keeps)
        replay.run()
    parts = [*replay.parts, ("events", [*map(_text, logs)])]
    by_digest = {_digest(text): text for _, texts in parts for text in texts}
    digests = [(kind, [*map(_digest, texts)]) for kind, texts in parts]
    return (
        f"{transcript.name} at {window}",
        window,
        replay.found,
        replay.stable,
        digests,
        by_digest,
    )


def report(played: Iterable[Played], windows: Sequence[int]) -> None:
    found = {window: Counter[str]() for window in windows}
    stable: dict[int, list[float]] = {window: [] for window in windows}
    for _, window, counts, shares, _, _ in played:
        found[window].update({"conversations": 1, **counts})
        stable[window] += shares
    names = dict.fromkeys(name for counts in found.values() for name in counts)
    print("| | " + " | ".join(f"{window:,}" for window in windows) + " |")
    print("|---|" + "---:|" * len(windows))
    for name in names:
        print(
            f"| {name} | "
            + " | ".join(f"{found[window][name]:,}" for window in windows)
            + " |"
        )
    print(
        "| prefix stability | "
        + " | ".join(f"{mean(stable[window] or [1.0]):.3f}" for window in windows)
        + " |"
    )
    for name in ("separated calls", "lost questions"):
        count = sum(counts[name] for counts in found.values())
        print(f"- {'MISSED' if count else 'met   '} {name} {count}: 0")


# ---- before and after a change ---------------------------------------------------------------------------------------


def write(path: Path, played: Iterable[Played]) -> None:
    kept: dict[str, Any] = {"parts": {}, "texts": {}}
    for name, _, _, _, parts, texts in played:
        kept["parts"][name] = parts
        kept["texts"] |= texts
    path.write_bytes(gzip.compress(json.dumps(kept).encode(), 3))
    print(
        f"{len(kept['parts'])} conversations, {len(kept['texts']):,} texts, {path.stat().st_size / 1e6:.1f} MB"
    )


def compare(before: dict[str, Any], played: Iterable[Played]) -> None:
    """Print how many requests, sessions and events differ from those before, and the first differences."""
    counts, differing = Counter[str](), Counter[str]()
    for name, _, _, _, parts, texts in played:
        old = [(kind, digests) for kind, digests in before["parts"].get(name, [])]
        pairs = list(itertools.zip_longest(old, parts, fillvalue=("", [])))
        unlike = [(one, other) for one, other in pairs if one != other]
        counts.update(["conversations", *(other[0] or one[0] for one, other in pairs)])
        differing.update(
            ["conversations"] * bool(unlike)
            + [other[0] or one[0] for one, other in unlike]
        )
        # what follows one mostly follows from it
        if unlike and differing["conversations"] <= SHOWN_DIFFERENCES:
            (kind, one), (_, other) = unlike[0]
            print(
                f"== {name}: {kind}",
                *difference(one, other, ChainMap(texts, before["texts"])),
                sep="\n",
            )
    print(f"\n{'':16}{'differ':>10}{'of':>10}")
    for kind, count in counts.items():
        print(f"{kind:16}{differing[kind]:>10,}{count:>10,}")


def difference(
    old: Sequence[str], new: Sequence[str], texts: Mapping[str, str]
) -> Iterator[str]:
    whole = ["\n".join(texts[digest] for digest in side) for side in (old, new)]
    sides = [text.replace("\\n", "\n").splitlines() for text in whole]
    lines = difflib.unified_diff(*sides, "before", "now", lineterm="", n=1)
    yield from (line[:SHOWN_CHARS] for line in itertools.islice(lines, SHOWN_LINES))


def _message_text(message: AnyMessage) -> str:
    return _text([message.type, message.content, getattr(message, "tool_calls", [])])


def _text(value: Any) -> str:
    return json.dumps(
        _lasting(value), ensure_ascii=False, sort_keys=True, default=str, indent=1
    )


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _lasting(item)
            for key, item in value.items()
            if key not in OF_THE_MOMENT
        }
    return (
        [_lasting(item) for item in value] if isinstance(value, list | tuple) else value
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with transcripts/*.jsonl.gz; generated ones without it",
    )
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument("--limit", type=int, help="conversations per file")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--write", type=Path, help="file to write, outside of the project"
    )
    action.add_argument("--against", type=Path, help="file of an earlier run")
    options = parser.parse_args()
    began = time.perf_counter()
    keeps = bool(options.write or options.against)
    jobs = [
        (one, window, keeps)
        for one in load(options.data, limit=options.limit)
        for window in options.windows
    ]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        played = pool.imap(play, jobs, chunksize=4)
        if options.write:
            write(options.write, played)
        elif options.against:
            compare(json.loads(gzip.decompress(options.against.read_bytes())), played)
        else:
            report(played, options.windows)
    print(f"\n{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
