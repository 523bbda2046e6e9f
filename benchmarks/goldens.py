"""Which requests, sessions and events of recorded conversations does a change of the code alter, and how?

`--write FILE` before the change keeps whole texts (each message once), `--against FILE` after it says how many differ
and shows the first differences, line by line. Such a file holds recorded data: keep it out of the project.
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
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from structlog.testing import capture_logs

from replay import Replay, State
from transcripts import Transcript, load

CONVERSATIONS = 300
WINDOWS = (4096, 8192, 32768)
RESERVE = 0.25  # of the window, for the answer
FAMILY = "openai"
OF_THE_MOMENT = {"checksum", "since", "seconds", "duration_seconds", "elapsed_seconds", "key"}
SHOWN_LINES, SHOWN_CHARS = 40, 200

Texts = dict[str, str]
"""Texts by their digest."""

Part = tuple[str, list[str]]
"""A request, a session or the events of a conversation: its kind, and the digests of its texts."""


class Kept(Replay):
    """A replay that keeps what it sent and what the session was after each step."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parts: list[tuple[str, list[str]]] = []

    def note(self, request: list[AnyMessage], tokens: int, common: int) -> None:
        del tokens, common
        self.parts.append(("request", [*map(_message_text, request)]))

    def step(self, state: State, reply: AIMessage) -> State:
        after = super().step(state, reply)
        session = {key: value for key, value in after.items() if key.startswith("context_")}
        self.parts.append(("session", [_text({key: value}) for key, value in sorted(session.items())]))
        return after


def play(job: tuple[Transcript, int]) -> tuple[str, list[Part], Texts]:
    """Replay one conversation; return its name, its requests and sessions as digests, and the texts behind them."""
    transcript, window = job
    with capture_logs() as logs:
        kept = Kept(transcript, window, {}, FAMILY, RESERVE)
        kept.run()
    parts = [*kept.parts, ("events", [*map(_text, logs)])]
    by_digest = {_digest(text): text for _, texts in parts for text in texts}
    return f"{transcript.name} at {window}", [(kind, [*map(_digest, texts)]) for kind, texts in parts], by_digest


def _message_text(message: AnyMessage) -> str:
    return _text([message.type, message.content, getattr(message, "tool_calls", [])])


def _text(value: Any) -> str:
    return json.dumps(_lasting(value), ensure_ascii=False, sort_keys=True, default=str, indent=1)


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in OF_THE_MOMENT}
    return [_lasting(item) for item in value] if isinstance(value, list | tuple) else value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def chosen(data: Path | None, count: int) -> list[Transcript]:
    """Return so many conversations, the same number of each recorded set as far as it goes."""
    sets: dict[str, list[Transcript]] = {}
    for transcript in load(data):
        sets.setdefault(transcript.source, []).append(transcript)
    rounds = itertools.zip_longest(*sets.values())
    return [one for each in rounds for one in each if one is not None][:count]


def compare(before: dict[str, Any], now: Iterable[tuple[str, list[Part], Texts]], show: int) -> None:
    """Print how many requests, sessions and events differ from those before, and the first differences."""
    counts, differing = Counter[str](), Counter[str]()
    for name, parts, texts in now:
        known = ChainMap(texts, before["texts"])
        old = [(kind, digests) for kind, digests in before["parts"].get(name, [])]
        is_other = old != parts
        counts["conversations"] += 1
        differing["conversations"] += is_other
        has_shown, steps = False, Counter[str]()
        for one, other in itertools.zip_longest(old, parts, fillvalue=("", [])):
            kind = other[0] or one[0]
            counts[kind] += 1
            steps[kind] += 1
            if one == other:
                continue
            differing[kind] += 1
            if not has_shown and differing["conversations"] <= show:  # what follows a difference mostly follows from it
                has_shown = True
                print(f"== {name}: {kind} {steps[kind]}", *difference(one[1], other[1], known), sep="\n")
    print(f"\n{'':16}{'differ':>10}{'of':>10}")
    for kind, count in counts.items():
        print(f"{kind:16}{differing[kind]:>10,}{count:>10,}")


def difference(old: Sequence[str], new: Sequence[str], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that differ, the first of them when there are many."""
    whole = ["\n".join(texts[digest] for digest in side) for side in (old, new)]
    sides = [text.replace("\\n", "\n").splitlines() for text in whole]
    lines = difflib.unified_diff(*sides, "before", "now", lineterm="", n=1)
    yield from (line[:SHOWN_CHARS] for line in itertools.islice(lines, SHOWN_LINES))


def write(path: Path, now: Iterable[tuple[str, list[Part], Texts]]) -> None:
    """Write what was played, texts once."""
    kept: dict[str, Any] = {"parts": {}, "texts": {}}
    for name, parts, texts in now:
        kept["parts"][name] = parts
        kept["texts"] |= texts
    path.write_bytes(gzip.compress(json.dumps(kept).encode(), 3))
    print(f"{len(kept['parts'])} conversations, {len(kept['texts']):,} texts, {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with transcripts/*.jsonl.gz; generated ones without it")
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS)
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument("--show", type=int, default=3, help="conversations whose first difference is shown")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, help="file to write, outside of the project")
    action.add_argument("--against", type=Path, help="file of an earlier run")
    options = parser.parse_args()
    began = time.perf_counter()
    jobs = [(one, window) for one in chosen(options.data, options.conversations) for window in options.windows]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        played = pool.imap(play, jobs, chunksize=4)
        if options.write:
            write(options.write, played)
        else:
            compare(json.loads(gzip.decompress(options.against.read_bytes())), played, options.show)
    print(f"{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
