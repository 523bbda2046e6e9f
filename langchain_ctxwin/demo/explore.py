"""The scenario: an agent answers questions about a folder, in a conversation much larger than its window."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle, repeat

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.offline_model import ANSWERS, FILE_SEPARATOR, QUESTIONS, QUOTE_CHARS, OfflineChatModel
from langchain_ctxwin.demo.story import Promise, Screen, StoryThread, limits_of
from langchain_ctxwin.demo.tools import LINE_CHARS, MAX_WHOLE_BYTES, FolderTools

SYSTEM_PROMPT = (
    "You explore a folder of files with tools. Paths are relative to the folder. Look before you answer, answer in one "
    "or two sentences, and say only what the tools returned. When a result is too long to be seen whole, read the part "
    "that you need."
)

PAGE_CHARS_PER_TOKEN = 0.7  # of the window: one page of a tour then takes up to a quarter of it
TOUR_PAGES = 13  # many more than a window holds
PAGE_LINES = (70, 50, 35, 25, 15, 10, 5)
COMPARED_FILES, COMMON_WORDS = 4, 40
WORD = re.compile(r"[^\W\d_]{4,16}")

Asked = tuple[str, str]
"""A question, and what the answer has to begin with: worked out from the files, without the agent's tools or model."""


class Interview:
    """The questions of one conversation; the same folder and seed give the same ones."""

    def __init__(self, folder: Folder, *, window_tokens: int, seed: int = 0) -> None:
        self._folder, self._dice = folder, random.Random(seed)  # noqa: S311  # no secret
        largest = max(folder.files, key=lambda file: file.size_bytes)
        facts = {"files": len(folder.files), "largest": largest.path, "bytes": largest.size_bytes}
        self.opening: Asked = QUESTIONS["largest"], ANSWERS["largest"].format_map(facts)
        self.closing: Asked = QUESTIONS["recall"], ANSWERS["recall"].format(answer=self.opening[1])
        self._lines: dict[str, int] = {}  # of each file that says something
        words, tours = Counter[str](), list[tuple[str, int]]()
        for file in folder.texts:
            lines = folder.lines(file.path)
            if any(map(str.strip, lines)):
                self._lines[file.path] = len(lines)
                words.update(word for line in lines for word in set(WORD.findall(line[:LINE_CHARS])))
                tours.append((file.path, _page_lines(lines, int(window_tokens * PAGE_CHARS_PER_TOKEN))))
        self._words = [word for word, _ in words.most_common(COMMON_WORDS)]
        # files to read page by page, long ones if there are
        tours = sorted((tour for tour in tours if tour[1]), key=lambda tour: -self._lines[tour[0]] / tour[1])
        self._tours = [tour for tour in tours if self._lines[tour[0]] >= TOUR_PAGES * tour[1]] or tours[:1]
        readable = [file for file in folder.texts if file.path in self._lines and file.size_bytes <= MAX_WHOLE_BYTES]
        ordered = sorted(readable, key=lambda file: -file.size_bytes)
        self._large = [file for file in ordered if file.size_bytes > 4 * window_tokens] or ordered[:1]

    def hold(self, talk: StoryThread, *, steps: int) -> None:
        """Ask the first question, others until there were about `steps` model calls, and the last one."""
        talk.ask(*self.opening)
        for asked in self.questions():
            if len(talk.recorder.sizes) >= steps:
                break
            talk.ask(*asked)
        talk.ask(*self.closing)

    def questions(self) -> Iterator[Asked]:
        """Yield the questions between the first and the last one, without end."""
        kinds = [self._whole] if self._large else []
        kinds += [self._tour] if self._tours and self._words else []
        kinds += [self._compare] if self._words else []
        for kind in cycle(kinds):
            yield kind()
        yield from repeat(self.opening)  # there is nothing else to ask about

    def _whole(self) -> Asked:
        file = self._dice.choice(self._large).path
        lines = self._folder.lines(file)
        number = self._dice.choice([number for number, line in enumerate(lines, 1) if line.strip()])
        facts = {"lines": len(lines), "line": number, "text": lines[number - 1].strip()[:QUOTE_CHARS]}
        return QUESTIONS["whole"].format(file=file, line=number), ANSWERS["whole"].format_map(facts)

    def _tour(self) -> Asked:
        (file, page), term = self._dice.choice(self._tours), self._dice.choice(self._words)
        lines = self._folder.lines(file)[: TOUR_PAGES * page]
        longest = max(range(len(lines)), key=lambda index: len(lines[index])) + 1
        question = QUESTIONS["tour"].format(file=file, last=len(lines), page=page, term=term)
        return question, ANSWERS["tour"].format(hits=sum(term in line for line in lines), longest=longest)

    def _compare(self) -> Asked:
        term, longest = self._dice.choice(self._words), sorted(self._lines, key=lambda path: -self._lines[path])
        named = [path for path in longest if FILE_SEPARATOR not in path][: max(COMPARED_FILES, len(longest) // 3)]
        files = sorted(self._dice.sample(named, min(COMPARED_FILES, len(named))))
        found = {file: sum(term in line for line in self._folder.lines(file)) for file in files}
        best = max(found, key=lambda file: found[file])
        question = QUESTIONS["compare"].format(term=term, files=FILE_SEPARATOR.join(files))
        return question, ANSWERS["compare"].format(file=best, found=found[best])


def play(
    screen: Screen,
    folder: Folder,
    *,
    window_tokens: int,
    steps: int = 60,
    seed: int = 0,
    model: BaseChatModel | None = None,
) -> list[Promise]:
    """Ask until the model, by default the offline one, was called about `steps` times."""
    limits = limits_of(window_tokens)
    graph = create_context_agent(
        model or OfflineChatModel(context_window=window_tokens, max_tokens=limits.output_reserve()),
        FolderTools(folder).tools(),
        system_prompt=SYSTEM_PROMPT,
        limits=limits,
        summarizer=model,
        checkpointer=InMemorySaver(),
    )
    talk = StoryThread(graph=graph, screen=screen, limits=limits, model=model)
    size = f"{len(folder.files):,} files, {sum(file.size_bytes for file in folder.files) / 1e6:,.1f} MB"
    screen.opening(f"Long work: an agent explores {folder.root}: {size}", limits)
    Interview(folder, window_tokens=window_tokens, seed=seed).hold(talk, steps=steps)
    return [*talk.claims(), *talk.savings()]


def _page_lines(lines: Sequence[str], page_chars: int) -> int:
    """Lines of one page; 0 when the file is too short for a tour, or has lines or pages that are shown cut."""
    for page in PAGE_LINES:
        start = lines[: TOUR_PAGES * page]
        pages = (start[at : at + page] for at in range(0, len(start), page))
        largest = max((len(one) + sum(map(len, one)) for one in pages), default=0)
        if len(lines) > page and max(map(len, start)) <= LINE_CHARS and largest <= page_chars:
            return page
    return 0
