"""What everybody can write in thirty lines: the newest messages, sliding or dropped at once, with a list or without."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

import exact
from langchain_ctxwin.replay.playing import identifiers

# a listed identifier that the agent used comes first, then one of the user
AUTHORS = {"ai": 0, "human": 1}


class Newest:
    """As many of the newest messages as fit, by an exact count: the start moves at every step."""

    def __init__(self, room_tokens: int) -> None:
        self.room_tokens = room_tokens

    def view(
        self, history: Sequence[AnyMessage], sizes: Sequence[int]
    ) -> list[AnyMessage]:
        start, used = len(history), 0
        while start and used + sizes[start - 1] <= self.room_tokens:
            start -= 1
            used += sizes[start]
        while start < len(history) and isinstance(history[start], ToolMessage):
            start += 1
        return list(history[start:])


class Dropped:
    """The tail whose start moves only when the room is full, then far; identifiers that left may stay as a list."""

    def __init__(
        self, room_tokens: int, *, keep: float, list_share: float = 0.0
    ) -> None:
        self.room_tokens, self.keep, self.list_tokens = (
            room_tokens,
            keep,
            int(list_share * room_tokens),
        )
        self.start, self.listed, self.listed_tokens = 0, "", 0

    def view(
        self, history: Sequence[AnyMessage], sizes: Sequence[int]
    ) -> list[AnyMessage]:
        if sum(sizes[self.start :]) + self.listed_tokens > self.room_tokens:
            self._drop(history, sizes)
        head = [HumanMessage(self.listed)] if self.listed else []
        return [*head, *history[self.start :]]

    def _drop(self, history: Sequence[AnyMessage], sizes: Sequence[int]) -> None:
        held = sum(sizes[self.start :])
        while self.start < len(history) - 1 and (
            held > self.keep * self.room_tokens
            or isinstance(history[self.start], ToolMessage)
        ):
            held -= sizes[self.start]
            self.start += 1
        if self.list_tokens:
            self._list(history)

    def _list(self, history: Sequence[AnyMessage]) -> None:
        texts = list(map(exact.payload, history))
        tail = "\n".join(texts[self.start :])
        words, used = dict[str, None](), 0
        for at in sorted(
            range(self.start),
            key=lambda i: (AUTHORS.get(history[i].type, len(AUTHORS)), -i),
        ):
            for word in identifiers(texts[at]):
                tokens = exact.text_tokens(f" {word}")
                if (
                    word not in words
                    and word not in tail
                    and used + tokens <= self.list_tokens
                ):
                    words[word], used = None, used + tokens
        self.listed, self.listed_tokens = " ".join(words), used
