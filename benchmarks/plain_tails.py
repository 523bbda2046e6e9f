"""The strongest plain rival: a tail that drops at once, with a bare list of the identifiers that left, or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

import exact
from langchain_ctxwin.replay.playing import identifiers

# a listed identifier that the agent used comes first, then one of the user
AUTHORS = {"ai": 0, "human": 1}


class Dropped:
    """The tail whose start moves only when the room is full, then far; identifiers that left stay as a list."""

    def __init__(
        self,
        room: int,
        size: Callable[[AnyMessage], int] = exact.message_tokens,
        *,
        keep: float = 0.3,
        list_share: float = 0.1,
    ) -> None:
        self.room, self.size, self.keep = room, size, keep
        self.list_tokens = int(list_share * room)
        self.start, self.listed, self.listed_tokens = 0, "", 0

    def view(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
        held = sum(map(self.size, history[self.start :]))
        if held + self.listed_tokens > self.room:
            while self.start < len(history) - 1 and (
                held > self.keep * self.room
                or isinstance(history[self.start], ToolMessage)
            ):
                held -= self.size(history[self.start])
                self.start += 1
            if self.list_tokens:
                self._list(history)
        head = [HumanMessage(self.listed)] if self.listed else []
        return [*head, *history[self.start :]]

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
