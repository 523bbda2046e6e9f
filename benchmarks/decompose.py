"""What does it take to read 400,000 tokens through a window of 8,192?

    python benchmarks/decompose.py                 # made-up reports
    python benchmarks/decompose.py --data DIR      # DIR/retrieval and DIR/memory_qa: abstracts, paragraphs and chats

The provider is simulated: it refuses what exceeds its window by an exact tokenizer, waits `--latency` seconds and
answers with some sentences of what it was shown. What it was shown is put together again and compared with the input,
character by character.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field

import exact
from langchain_ctxwin import ModelLimits, TokenEstimator
from langchain_ctxwin.decompose import create_map_reduce_graph

INPUT_TOKENS, WINDOW, OUTPUT = 400_000, 8_192, 1_024
CHUNK_SHARE = 0.4  # of the input are chunks of their own, the rest are long documents
LONG_TOKENS = 40_000
ANSWER_SENTENCES = 6
CONCURRENCY = 8
QUESTION = "Which experiments on heat transfer in boundary layers are described, and what did each of them find?"

WORDS = (
    "flow",
    "layer",
    "heat",
    "plate",
    "shock",
    "wave",
    "number",
    "pressure",
    "surface",
    "jet",
    "nozzle",
    "wing",
)

_SHOWN = re.compile(
    r'<document number="(\d+)"(?: from_character="(\d+)")?[^>]*>\n(.*?)\n</document>',
    re.DOTALL,
)
_SENTENCE = re.compile(r"[^.\n]{20,200}\.")


@dataclass(kw_only=True)
class Seen:
    """What the provider saw; calls come from several threads."""

    shown: list[tuple[int, int, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    refused: int = 0
    now: int = 0
    peak: int = 0
    lock: Any = field(default_factory=threading.Lock)


class Provider(BaseChatModel):
    """A model with a window of its own."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    seen: Seen = Field(default_factory=Seen)
    latency_seconds: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "simulated"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self._begin(messages)
        time.sleep(self.latency_seconds)
        return self._end(messages)

    def _begin(self, messages: list[BaseMessage]) -> None:
        tokens = exact.request_tokens(messages, [])
        with self.seen.lock:
            if tokens > WINDOW - OUTPUT:
                self.seen.refused += 1
                raise ContextOverflowError(
                    f"input token count {tokens} exceeds the maximum of {WINDOW - OUTPUT}"
                )
            self.seen.sizes.append(tokens)
            self.seen.now += 1
            self.seen.peak = max(self.seen.peak, self.seen.now)

    def _end(self, messages: list[BaseMessage]) -> ChatResult:
        shown = [
            (int(n), int(at or 0), text)
            for n, at, text in _SHOWN.findall(messages[-1].text)
        ]
        found = _SENTENCE.findall(messages[-1].text.partition("\n\nThe ")[2])
        text = (
            " ".join(
                found[:: max(1, len(found) // ANSWER_SENTENCES)][:ANSWER_SENTENCES]
            )
            or "Nothing here."
        )
        with self.seen.lock:
            self.seen.now -= 1
            self.seen.shown += shown
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--latency", type=float, default=0.25)
    parser.add_argument(
        "--tokens", type=int, default=INPUT_TOKENS, help="size of the input"
    )
    arguments = parser.parse_args()
    documents = documents_of(
        real_texts(arguments.data) if arguments.data else made_up(), arguments.tokens
    )
    sizes = list(map(exact.text_tokens, documents))
    origin = "real texts" if arguments.data else "made-up reports"
    print(
        f"{sum(sizes):,} tokens ({origin}) in {len(documents)} documents, the longest {max(sizes):,}; ",
        end="",
    )
    print(
        f"window {WINDOW:,}, {OUTPUT:,} of it for the answer, {arguments.latency:g} s per call\n"
    )
    print(
        "| calls at once | calls | refused | shown once | largest request | tokens paid per token | seconds |"
    )
    print("|---:|---:|---:|---|---:|---:|---:|")
    for concurrency in (1, CONCURRENCY):
        print(
            "| "
            + " | ".join(run(documents, sum(sizes), concurrency, arguments.latency))
            + " |",
            flush=True,
        )


def run(
    documents: list[str], given_tokens: int, concurrency: int, latency: float
) -> list[str]:
    model = Provider(latency_seconds=latency)
    graph = create_map_reduce_graph(
        model,
        limits=ModelLimits(WINDOW, requested_output_tokens=OUTPUT),
        counter=TokenEstimator("openai"),
        max_concurrency=concurrency,
    )
    start = time.perf_counter()
    result = graph.invoke({"question": QUESTION, "documents": documents})
    seconds, seen = time.perf_counter() - start, model.seen
    is_once = put_together(seen) == documents and not result["failures"]
    paid = sum(seen.sizes) / given_tokens
    return [
        str(concurrency), str(len(seen.sizes)), str(seen.refused), "yes" if is_once else "NO", f"{max(seen.sizes):,}",
        f"{paid:.2f}", f"{seconds:.1f}",
    ]  # fmt: skip


def put_together(seen: Seen) -> list[str]:
    """The documents as they were shown; a piece that was shown twice, or not, makes them differ from the input."""
    pieces: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for number, start, text in seen.shown:
        pieces[number].append((start, text))
    return [
        "".join(text for _, text in sorted(pieces[number])) for number in sorted(pieces)
    ]


def documents_of(texts: Iterator[tuple[str, str]], wanted_tokens: int) -> list[str]:
    """Chunks of their own, then long documents with a heading for each text."""
    documents, tokens, report = list[str](), 0, list[str]()
    for title, text in texts:
        if tokens >= wanted_tokens:
            break
        is_chunk = tokens < CHUNK_SHARE * wanted_tokens
        piece = text if is_chunk else f"## {title}\n\n{text}\n\n"
        tokens += exact.text_tokens(piece)
        if is_chunk:
            documents.append(piece)
            continue
        report.append(piece)
        if sum(map(exact.text_tokens, report)) > LONG_TOKENS:
            documents.append(f"# Report {len(documents)}\n\n{''.join(report)}")
            report = []
    return [*documents, *(["".join(report)] if report else [])]


def real_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """English abstracts, then Arabic paragraphs, then chats; made-up reports fill up what is missing."""
    for name in ("cranfield", "arcd"):
        for document in lines_of(folder / "retrieval" / name / "corpus.jsonl.gz"):
            if document["text"].strip():
                yield document.get("title") or document["text"][:40], document["text"]
    for chat in lines_of(folder / "memory_qa" / "locomo.jsonl.gz"):
        yield (
            chat["id"],
            "\n".join(
                f"{said['name']}: {said['content']}" for said in chat["messages"]
            ),
        )
    yield from made_up()


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, gzip.decompress(file.read_bytes()).decode().splitlines())


def made_up() -> Iterator[tuple[str, str]]:
    draw = random.Random(7)  # noqa: S311  # made-up text, no secret
    while True:
        sentences = [
            f"{phrase(draw, draw.randint(8, 24))}." for _ in range(draw.randint(4, 16))
        ]
        yield phrase(draw, 4), " ".join(sentences)


def phrase(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, k=words)).capitalize()


if __name__ == "__main__":
    main()
