"""What does it take to read 400,000 tokens through a window of 8,192?

    python benchmarks/decompose.py                 # made-up reports
    python benchmarks/decompose.py --data DIR      # DIR/retrieval and DIR/memory_qa: abstracts, paragraphs and chats

The provider is simulated: it refuses what exceeds its window by an exact tokenizer, waits `--latency` seconds and
answers with some sentences of what it was shown. What it was shown is put together again and compared with the input,
character by character.
"""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from langchain_core.messages import BaseMessage

import exact
from arena_scenarios import prose
from common import head, parser_of, row, rows_of
from langchain_ctxwin import ModelLimits, TokenEstimator
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.testing import ScriptedChatModel

INPUT_TOKENS, WINDOW, OUTPUT = 400_000, 8_192, 1_024
CHUNK_SHARE = 0.4  # of the input are chunks of their own, the rest are long documents
LONG_TOKENS = 40_000
ANSWER_SENTENCES = 6
CONCURRENCY = 8
QUESTION = "Which experiments on heat transfer in boundary layers are described, and what did each of them find?"

_SHOWN = re.compile(
    r'<document number="(\d+)"(?: from_character="(\d+)")?[^>]*>\n(.*?)\n</document>',
    re.DOTALL,
)
_SENTENCE = re.compile(r"[^.\n]{20,200}\.")


def main() -> None:
    parser = parser_of(__doc__, "retrieval/ and memory_qa/; made-up reports without it")
    parser.add_argument("--latency", type=float, default=0.25)
    parser.add_argument(
        "--tokens", type=int, default=INPUT_TOKENS, help="size of the input"
    )
    options = parser.parse_args()
    texts = real_texts(options.data) if options.data else made_up()
    documents = documents_of(texts, options.tokens)
    sizes = list(map(exact.text_tokens, documents))
    origin = "real texts" if options.data else "made-up reports"
    print(
        f"{sum(sizes):,} tokens ({origin}) in {len(documents)} documents, the longest {max(sizes):,}; "
        f"window {WINDOW:,}, {OUTPUT:,} of it for the answer, {options.latency:g} s per call\n"
    )
    columns = ("refused", "shown once", "largest request", "tokens paid per token")
    head("calls at once", "calls", *columns, "seconds", left=(3,))
    for concurrency in (1, CONCURRENCY):
        row(concurrency, *run(documents, sum(sizes), concurrency, options.latency))


def run(
    documents: list[str], given_tokens: int, concurrency: int, latency: float
) -> Iterator[str]:
    model = ScriptedChatModel(
        window=WINDOW,
        max_tokens=OUTPUT,
        counter=lambda messages, **_: exact.request_tokens(messages, []),
        script=lambda messages, _: answer(messages, latency),
    )
    graph = create_map_reduce_graph(
        model,
        limits=ModelLimits(WINDOW, requested_output_tokens=OUTPUT),
        counter=TokenEstimator("openai"),
        max_concurrency=concurrency,
    )
    start = time.perf_counter()
    result = graph.invoke({"question": QUESTION, "documents": documents})
    seconds, done = time.perf_counter() - start, model.answered
    shown = "\n".join(request.messages[-1].text for request in done)
    is_once = put_together(shown) == documents and not result["failures"]
    yield from (str(len(done)), str(len(model.refusals)), "yes" if is_once else "NO")
    yield f"{model.largest_tokens:,}"
    yield f"{sum(request.tokens for request in done) / given_tokens:.2f}"
    yield f"{seconds:.1f}"


def answer(messages: Sequence[BaseMessage], latency: float) -> str:
    """Some sentences of what was shown."""
    time.sleep(latency)
    found = _SENTENCE.findall(messages[-1].text.partition("\n\nThe ")[2])
    chosen = found[:: max(1, len(found) // ANSWER_SENTENCES)][:ANSWER_SENTENCES]
    return " ".join(chosen) or "Nothing here."


def put_together(shown: str) -> list[str]:
    """The documents as they were shown; a piece that was shown twice, or not, makes them differ from the input."""
    pieces: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for number, start, text in _SHOWN.findall(shown):
        pieces[int(number)].append((int(start or 0), text))
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
        for document in rows_of(folder / "retrieval" / name / "corpus.jsonl.gz"):
            if document["text"].strip():
                yield document.get("title") or document["text"][:40], document["text"]
    for chat in rows_of(folder / "memory_qa" / "locomo.jsonl.gz"):
        yield (
            chat["id"],
            "\n".join(
                f"{said['name']}: {said['content']}" for said in chat["messages"]
            ),
        )
    yield from made_up()


def made_up() -> Iterator[tuple[str, str]]:
    draw = random.Random(7)  # noqa: S311  # made-up text, no secret
    while True:
        yield prose(draw, 8), prose(draw, draw.randint(60, 240))


if __name__ == "__main__":
    main()
