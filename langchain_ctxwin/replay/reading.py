"""Recorded conversations out of files and databases: OpenAI chat, LangChain messages, checkpoints.

    one conversation a line     {"id": ..., "messages": [...], "tools": [...]}   .jsonl, .jsonl.gz
    one message a line          {"role": "user", "content": ...}                 the same; the file is a conversation
    one event a line            {"sessionId": ..., "message": {"role": ...}}     the same; a conversation per session
    one conversation a file     [message, ...] or {"messages": [...]}            .json, .json.gz; also a list of them
    LangGraph's checkpoints     a SQLite file, postgresql://...                  a conversation per thread

What cannot be read is reported with file and line, and left out; nothing else is: each conversation fails alone.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxwin.core.calls import call_ids
from langchain_ctxwin.errors import PATH, ConfigError, expect_each
from langchain_ctxwin.replay.messages import ROLES, is_pair, read_message, short
from langchain_ctxwin.replay.threads import (
    is_address,
    is_database,
    shown_address,
    thread_states,
)

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")

Tell = Callable[[str], None]
"""Is called with what was left out, and why; of a conversation, with a `LeftOut`."""


class LeftOut(str):
    """Says which conversation, or which part of a file, could not be read or replayed, and why."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded conversation."""

    name: str
    messages: tuple[AnyMessage, ...]
    tools: tuple[Any, ...] = ()
    """The definitions that its requests carried, where the recording has them."""

    place: str = ""
    """Where it was read, such as `file:line`."""

    @property
    def begins(self) -> int:
        """Number of its leading system messages; what follows them is its history."""
        messages = self.messages
        return next(
            (i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)),
            len(messages),
        )


def read_conversations(
    paths: Iterable[str | Path] | str | Path, *, tell: Tell = lambda _: None
) -> Iterator[Conversation]:
    """Yield the conversations in files and folders, in order; of those with one name, all but the first are numbered.

    Args:
        paths: files, folders, of which every file that is known is read, or addresses of Postgres servers; also one
            alone.
        tell: is called with each line that could not be read, `file:line: why`; a `LeftOut` is a lost conversation.

    Raises:
        ConfigError: a path is missing or of an unknown kind, or cannot be read; in a folder that is reported instead.

    Examples:
        ```python
        for conversation in read_conversations(["runs/"], tell=print):
            ...
        ```
    """
    several = expect_each(
        [paths] if isinstance(paths, PATH) else paths,
        PATH,
        "paths",
        "paths of files or folders",
    )
    taken = set[str]()
    for place, is_named in [source for path in several for source in _places(path)]:
        try:
            is_stored = is_address(place) or is_database(place)
            for conversation in (_of_database if is_stored else _of_file)(place, tell):
                name, number = conversation.name, 1
                while name in taken:
                    number += 1
                    name = f"{conversation.name} ({number})"
                taken.add(name)
                messages = [
                    one.model_copy(update={"id": f"{name}-{i}"})
                    for i, one in enumerate(conversation.messages)
                ]
                yield replace(conversation, name=name, messages=tuple(messages))
        except ConfigError as error:
            if is_named:
                raise
            tell(LeftOut(error))


def _places(source: str | Path) -> list[tuple[Any, bool]]:
    """The files and addresses that a path means, and whether they were named themselves."""
    place, suffixes = Path(source), ", ".join(SUFFIXES)
    if is_address(source):
        return [(str(source), True)]
    if place.is_dir():
        read = [
            (path, False) for path in sorted(place.rglob("*")) if _is_readable(path)
        ]
        if not read:
            raise ConfigError(
                f"{place} holds no SQLite database, and no file that ends in {suffixes}"
            )
        return read
    if not place.exists():
        raise ConfigError(
            f"{place} does not exist: give files or folders with recorded conversations"
        )
    if not _is_readable(place):
        raise ConfigError(
            f"{place}: recorded conversations are SQLite databases, or end in {suffixes}"
        )
    return [(place, True)]


def _is_readable(path: Path) -> bool:
    return path.is_file() and (
        path.name.lower().endswith(SUFFIXES) or is_database(path)
    )


def _of_database(place: str | Path, tell: Tell) -> Iterator[Conversation]:
    address = shown_address(place)
    threads = 0
    for thread, state in thread_states(place, tell=lambda fault: tell(LeftOut(fault))):
        threads += 1
        yield from _conversations(
            {"id": thread, "messages": state["messages"]},
            thread,
            f"{address}: thread {thread}",
            tell,
        )
    if not threads:
        tell(f"{address}: no thread that can be read")


@dataclass(slots=True)
class _Session:
    """Messages in lines of their own; several events may tell of one answer."""

    messages: list[Any] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    answers: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, row: Any, place: str) -> None:
        said = row.get("message") if isinstance(row, Mapping) else None
        if isinstance(said, Mapping) and isinstance(said.get("content"), list):
            key = said.get("id")
            if key in self.answers:
                self.answers[key] += said["content"]
                return
            if key:
                self.answers[key] = said["content"]
        self.messages.append(row)
        self.places.append(place)


def _of_file(path: Path, tell: Tell) -> Iterator[Conversation]:
    """The conversations of a file; messages in lines of their own are one for each session."""
    sessions = defaultdict[str, _Session](_Session)
    others = 0
    for place, name, row in _rows(path, tell):
        if _is_message(row):
            sessions[_session(row) or path.name].add(row, place)
        elif isinstance(row, Mapping) and "type" in row and "messages" not in row:
            others += 1  # an event of a session, such as its title
        else:
            yield from _conversations(row, name, place, tell)
    for name, session in sessions.items():
        yield from _conversations(
            session.messages, name, str(path), tell, session.places
        )
    if others:
        fault = f"{path}: left out {others:,} lines that are no messages"
        tell(fault if sessions else LeftOut(fault))


def _is_message(row: Any) -> bool:
    if not isinstance(row, Mapping):
        return is_pair(row)
    if isinstance(row.get("message"), Mapping):
        return True
    is_event = "sessionId" in row
    return (
        not is_event
        and "messages" not in row
        and ("role" in row or row.get("type") in ROLES)
    )


def _session(row: Any) -> str:
    """The session that an event belongs to, with the name of the agent where it is not the one that was asked."""
    about = row if isinstance(row, Mapping) else {}
    return " ".join(
        str(about[key]) for key in ("sessionId", "agentId") if about.get(key)
    )


def _rows(path: Path, tell: Tell) -> Iterator[tuple[str, str, Any]]:
    """The JSON values of a file, one a line or one in all, with their place and a name."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace") as file:
            if ".jsonl" in path.name.lower():
                for number, line in enumerate(file, 1):
                    place = f"{path}:{number}"
                    for row in _parsed(line, place, tell):
                        yield place, f"{path.name}:{number}", row
                return
            for row in _parsed(file.read(), str(path), tell):
                if not (isinstance(row, list) and any(map(_is_whole, row))):
                    yield str(path), path.name, row
                    continue
                for number, item in enumerate(row, 1):
                    yield f"{path}: item {number}", f"{path.name}:{number}", item
    except (OSError, EOFError, zlib.error) as error:
        tell(LeftOut(f"{path}: left out the rest: broken off ({short(error)})"))


def _parsed(text: str, place: str, tell: Tell) -> Iterator[Any]:
    if text.strip():
        try:
            yield json.loads(text, strict=False)
        except (ValueError, RecursionError) as error:
            tell(LeftOut(f"{place}: no JSON ({short(error)})"))


def _is_whole(item: Any) -> bool:
    """True for a conversation, where a message could stand too."""
    if isinstance(item, Mapping):
        return "messages" in item
    return isinstance(item, list) and not is_pair(item)


def _conversations(
    row: Any, name: str, place: str, tell: Tell, places: Sequence[str] = ()
) -> Iterator[Conversation]:
    """The conversation in a row, or none: readers of foreign data have no common error."""
    try:
        conversation = _conversation(row, name, place, tell, places)
    except Exception as error:  # noqa: BLE001
        tell(LeftOut(f"{place}: left out the conversation: {short(error)}"))
    else:
        yield conversation


def _conversation(
    row: Any, name: str, place: str, tell: Tell, places: Sequence[str]
) -> Conversation:
    """Read one conversation, or the list of its messages, which may stand in several places; an error for none."""
    about = row if isinstance(row, Mapping) else {"messages": row}
    listed = about.get("messages")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ConfigError("no list of messages")
    read = list[tuple[int, Any]]()
    for number, said in enumerate(listed, 1):
        try:
            read += [(number, message) for message in read_message(said)]
        except Exception as error:
            at = f" ({places[number - 1]})" if places else ""
            raise ConfigError(f"message {number}{at}: {short(error)}") from error
    system = about.get("system")  # where Anthropic's requests have it
    if system and not isinstance(read[0][1], SystemMessage):
        read.insert(0, (0, SystemMessage(system)))
    messages = _paired(read, place, tell)
    kinds = [type(message) for message in messages]
    if HumanMessage not in kinds or AIMessage not in kinds[kinds.index(HumanMessage) :]:
        raise ConfigError(
            f"no answer to a user in {len(messages):,} messages, so there is no request to replay"
        )
    key = about.get("id")
    tools = about.get("tools")
    return Conversation(
        name=name if key is None or key == "" else str(key),
        messages=tuple(messages),
        tools=tuple(tools) if isinstance(tools, list) else (),
        place=place,
    )


def _paired(messages: Sequence[tuple[int, Any]], place: str, tell: Tell) -> list[Any]:
    """Leave out results that answer no call before them, because no request could hold them, and report them."""
    paired, orphans, waiting = list[Any](), list[int](), list[str]()
    for number, message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                orphans.append(number)
                continue
            waiting.remove(message.tool_call_id)
        waiting += call_ids(message)
        paired.append(message)
    if orphans:
        listed = ", ".join(map(str, orphans))
        tell(
            f"{place}: left out {len(orphans):,} results of calls that are not there before them: message {listed}"
        )
    return paired
