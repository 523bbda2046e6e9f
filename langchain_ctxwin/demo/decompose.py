"""The scenario: a question about a text of many windows is answered part by part, and the answers are combined."""

from __future__ import annotations

import random

from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.offline_model import Move, OfflineChatModel, Sight
from langchain_ctxwin.demo.story import Promise, Recorder, Screen, input_limit, limits_of

TERMS = ("return", "import", "the", "with", "from")
ANSWER = "lines have it."
TEXT_WINDOWS, CHARS_PER_TOKEN = 12, 4  # size of the text in windows, about
MARKS = ("<document", "</document")  # lines around the data begin so; in the data such marks are spelled otherwise


class CountingModel(OfflineChatModel):
    """Counts lines of the documents that it is shown, and adds up the answers that it is shown."""

    model: str = "offline-counter"

    def _next_move(self, sight: Sight) -> Move:
        question, _, data = sight.question.partition("\n\nThe ")
        lines = data.rpartition("\n\n")[0].split("\n")  # without the last sentence, which asks for the answer
        if data.startswith("answer"):
            return Move(f"{sum(int(line.split()[0]) for line in lines if line.endswith(ANSWER))} {ANSWER}")
        term = question.split("`")[1]
        return Move(f"{sum(term in line for line in lines if not line.startswith(MARKS))} {ANSWER}")


def play(screen: Screen, folder: Folder, *, window_tokens: int, seed: int = 0) -> list[Promise]:
    """Ask about the files of a folder, as many as fill a dozen windows."""
    limits, recorder, lines = limits_of(window_tokens), Recorder(), list[str]()
    for file in folder.texts:
        if sum(map(len, lines)) < TEXT_WINDOWS * CHARS_PER_TOKEN * window_tokens:
            lines += folder.lines(file.path)
    screen.opening(f"Any size: one question about {sum(map(len, lines)):,} characters", limits)
    term = random.Random(seed).choice(TERMS)  # noqa: S311  # no secret
    graph = create_map_reduce_graph(CountingModel(context_window=window_tokens, max_tokens=limits.output_reserve()))
    question = f"How many lines have the word `{term}`?"
    done = graph.invoke({"question": question, "text": "\n".join(lines)}, {"callbacks": [recorder]})
    screen.line((f"     {question}  ", ""), (f"=> {done['answer']}", "bold"))
    limit, largest = input_limit(limits), max(recorder.sizes)
    found = f"{sum(term in line for line in lines)} {ANSWER}"
    return [
        Promise("every part fits", f"up to {largest:,} of {limit:,}, {len(recorder.sizes)} requests", largest <= limit),
        Promise("no part failed", f"{len(done['failures'])} of {done['parts']} parts", not done["failures"]),
        Promise("the answer is true", f"{found} in all", done["answer"] == found),
    ]
