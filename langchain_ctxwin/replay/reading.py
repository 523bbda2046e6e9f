"""Recorded conversations out of files and databases: OpenAI chat, LangChain messages, LangSmith runs, checkpoints.

    one conversation a line     {"id": ..., "messages": [...], "tools": [...]}   .jsonl, .jsonl.gz
    one message a line          {"role": "user", "content": ...}                 the same; the file is a conversation
    one event a line            {"sessionId": ..., "message": {"role": ...}}     the same; a conversation per session
    one run a line              {"run_type": ..., "inputs": ..., "outputs": ...} the same; a conversation per thread
    one conversation a file     [message, ...] or {"messages": [...]}            .json, .json.gz; also a list of them
    runs in a file              [run, ...], {"runs": [...]} or one run           the same; a conversation per thread
    LangGraph's checkpoints     a SQLite file, postgresql://...                  a conversation per thread

Files are read line by line, each to a bounded size. What cannot be read is told with file and line, and left out;
nothing else is: each conversation fails alone.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxwin.core.calls import call_ids
from langchain_ctxwin.errors import PATH, ConfigError, expect_each
from langchain_ctxwin.replay.messages import ROLES, is_pair, loads, read_message, short
from langchain_ctxwin.replay.runs import Traces, is_run, runs_in
from langchain_ctxwin.replay.threads import (
    is_address,
    is_database,
    shown_address,
    thread_states,
)

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
# stand beside a SQLite database that is in use
SIDE_FILES = ("-wal", "-shm", "-journal")

MAX_CHARS = 32_000_000
"""Of a line, of a file without lines, and of what is joined out of the lines of a file: the conversation of a
million-token agent has some five million, and parsed text takes up to twenty times its size in memory."""

MAX_MESSAGES = 100_000  # of a conversation: more than any agent has had, and a few hundred megabytes
SKIPPED_CHARS = 1_000_000  # read at once of a line that is too long
MAX_NAME_CHARS = (
    200  # of a conversation: each of its messages and each line about it has it
)
MAX_KINDS_CHARS = 200  # of the types of lines that a fault lists
MOST_NUMBERS = 10  # messages of one conversation that a fault lists

Tell = Callable[[str], None]
"""Is told what was left out, and why; of a conversation, with a `LeftOut`."""


class LeftOut(str):
    """Says which conversation, or which part of a file, could not be read or replayed, and why."""

    __slots__ = ()


class Recorded(NamedTuple):
    """What stands in a place of a file."""

    name: str  # of a conversation that has none of its own
    place: str
    value: Any
    chars: int


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
        tell: is told of each line that could not be read, `file:line: why`; a `LeftOut` where that cost a conversation.

    Raises:
        ConfigError: a path is missing or of an unknown kind, or cannot be read; in a folder that is told.

    Examples:
        ```python
        for conversation in read_conversations(["runs/"], tell=print):
            ...
        ```
    """
    several = [paths] if isinstance(paths, PATH) else paths
    taken = dict[str, int]()
    for place, is_named in _places(
        expect_each(several, PATH, "paths", "paths of files or folders"), tell
    ):
        try:
            is_stored = isinstance(place, str) or is_database(place)
            for found in (
                _of_database(place, tell) if is_stored else _of_file(Path(place), tell)
            ):
                name = _free(found.name, taken)
                messages = [
                    one.model_copy(update={"id": f"{name}-{i}"})
                    for i, one in enumerate(found.messages)
                ]
                yield replace(found, name=name, messages=tuple(messages))
        except ConfigError as error:
            if is_named:
                raise
            tell(LeftOut(error))


def _free(name: str, taken: dict[str, int]) -> str:
    """The name, numbered where it is taken; beside each stands the last number that was given to it."""
    free, number = name, taken.get(name, 0)
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    taken[name] = max(number, 1)
    taken.setdefault(free, 1)
    return free


@contextmanager
def _alone(place: str, tell: Tell) -> Iterator[None]:
    """Let what stands in a place fail alone: readers of foreign data have no common error."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        at = error.place if isinstance(error, _UnreadError) else place
        tell(LeftOut(f"{at}: left out the conversation: {short(error)}"))


class _UnreadError(Exception):
    """A message that cannot be read, and where it stands."""

    def __init__(self, why: str, place: str) -> None:
        super().__init__(why)
        self.place = place


def _places(paths: Iterable[str | Path], tell: Tell) -> list[tuple[str | Path, bool]]:
    """The files and addresses, checked before any of them is read, and whether they were named themselves."""
    found, known = list[tuple[str | Path, bool]](), ", ".join(SUFFIXES)
    for given in paths:
        place = Path(given)
        if is_address(given):
            found.append((str(given), True))
        elif place.is_dir():
            files = [
                path
                for path in sorted(place.rglob("*"))
                if path.is_symlink() or not path.is_dir()
            ]
            read = [path for path in files if _is_known(path)]
            if not read:
                raise ConfigError(
                    f"{place} holds no SQLite database, and no file that ends in {known}"
                )
            if others := [
                path
                for path in files
                if path not in {*read} and not path.name.endswith(SIDE_FILES)
            ]:
                tell(
                    f"{place}: left out {len(others):,} files of other kinds, such as {others[0].name}"
                )
            found += [(path, False) for path in read]
        elif not place.exists():
            raise ConfigError(
                f"{place} does not exist: give files or folders with recorded conversations"
            )
        elif not _is_known(place, is_named=True):
            raise ConfigError(
                f"{place}: recorded conversations are SQLite databases, or end in {known}"
            )
        else:
            found.append((place, True))
    return found


def _is_known(path: Path, *, is_named: bool = False) -> bool:
    try:
        return path.is_file() and (
            path.name.lower().endswith(SUFFIXES) or is_database(path)
        )
    except ConfigError:  # it cannot be opened
        if is_named:
            raise
        return False


def _of_database(place: str | Path, tell: Tell) -> Iterator[Conversation]:
    shown, is_empty = shown_address(place) if is_address(place) else str(place), True
    for thread, state in thread_states(place, tell=lambda fault: tell(LeftOut(fault))):
        at, is_empty = f"{shown}: thread {thread}", False
        with _alone(at, tell):
            yield _conversation(
                {"id": thread, "messages": state["messages"]}, thread, at, tell
            )
    if is_empty:
        tell(f"{shown}: no thread that can be read")


def _of_file(path: Path, tell: Tell) -> Iterator[Conversation]:
    """The conversations of a file; messages in lines of their own are one for each session, and runs are joined."""
    sessions, traces = _Loose(path.name), Traces(MAX_CHARS)
    for row in _rows(path, tell):
        with _alone(row.place, tell):
            if runs := runs_in(row.value):
                for run in runs:
                    traces.take(run, row.chars // len(runs))
            elif not sessions.take(row):
                yield _conversation(row.value, row.name, row.place, tell)
    for whole in traces.rows():
        with _alone(place := f"{path}: thread {whole['id']}", tell):
            yield _conversation(whole, path.name, place, tell)
    if traces.unused:
        tell(f"{path}: left out {traces.unused:,} runs that hold no messages")
    for name, session in sessions.found.items():
        with _alone(str(path), tell):
            yield _conversation(session.messages, name, str(path), tell, session.places)
    if sessions.others:
        kinds = ", ".join(sorted(sessions.others))[:MAX_KINDS_CHARS]
        told = f"{path}: left out {sessions.others.total():,} lines that are no messages, of the types {kinds}"
        tell(told if sessions.found else LeftOut(told))
    if sessions.too_many or traces.too_many:
        what = f"{sessions.too_many:,} messages and {traces.too_many:,} runs"
        tell(
            LeftOut(
                f"{path}: left out {what} behind the first {MAX_CHARS:,} characters: give several files"
            )
        )


@dataclass(slots=True)
class _Joined:
    messages: list[Any] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    contents: dict[str, list[Any]] = field(default_factory=dict)
    """Content by the id of its message, where several events tell of one answer."""

    def add(self, row: Any, place: str) -> None:
        inner = row.get("message") if isinstance(row, Mapping) else None
        if (
            isinstance(inner, Mapping)
            and isinstance(inner.get("content"), list)
            and isinstance(inner.get("id"), str)
        ):
            if inner["id"] in self.contents:
                self.contents[inner["id"]] += inner["content"]
                return
            self.contents[inner["id"]] = inner["content"]
        self.messages.append(row)
        self.places.append(place)


class _Loose:
    """Messages in lines of their own, joined to a conversation for each session, or to that of the file."""

    def __init__(self, name: str) -> None:
        self._name, self._chars = name, 0
        self.found = dict[str, _Joined]()
        self.others = Counter[str]()  # lines that tell of no message, by their types
        self.too_many = 0  # messages for which there was no room any more

    def take(self, row: Recorded) -> bool:
        """Take up a line, and return True; False for what is no message and no event."""
        if kind := _other_kind(row.value):
            self.others[kind] += 1
        elif not _is_message(row.value):
            return False
        elif self._chars + row.chars > MAX_CHARS:
            self.too_many += 1
        else:
            self._chars += row.chars
            self.found.setdefault(_session(row.value) or self._name, _Joined()).add(
                row.value, row.place
            )
        return True


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return is_pair(value)
    return "messages" not in value and (
        "role" in value or "type" in value or isinstance(value.get("message"), Mapping)
    )


def _session(value: Any) -> str:
    """The session that an event belongs to, with the name of the agent where it is not the one that was asked."""
    if not isinstance(value, Mapping) or not value.get("sessionId"):
        return ""
    return " ".join(
        str(value[key]) for key in ("sessionId", "agentId") if value.get(key)
    )


def _other_kind(value: Any) -> str:
    """The type of an event that tells of no message, such as the title of a session; empty for anything else."""
    if not isinstance(value, Mapping) or not isinstance(kind := value.get("type"), str):
        return ""
    is_event = _session(value) or value.keys().isdisjoint(
        {"role", "content", "data", "messages", "lc", "parts"}
    )
    is_said = isinstance(value.get("message"), Mapping) or (
        kind in ROLES and "subtype" not in value
    )
    return kind if is_event and not is_said else ""


def _rows(path: Path, tell: Tell) -> Iterator[Recorded]:
    """What stands in the lines of a file, or in all of it: one conversation, or a list of conversations or runs."""
    if ".jsonl" in path.name.lower():
        for number, line in _lines(path, tell):
            place = f"{path}:{number}"
            yield from (
                Recorded(f"{path.name}:{number}", place, value, len(line))
                for value in _parsed(line, place, tell)
            )
        return
    text, chars = list[str](), 0
    for _, line in _lines(path, tell):
        text.append(line)
        if (chars := chars + len(line)) > MAX_CHARS:
            tell(
                LeftOut(
                    f"{path}: more than {MAX_CHARS:,} characters: write one conversation a line, as .jsonl"
                )
            )
            return
    for value in _parsed("".join(text), str(path), tell) if text else ():
        if isinstance(value, list) and any(map(_is_whole, value)):
            yield from (
                Recorded(f"{path.name}:{n}", f"{path}: item {n}", one, 0)
                for n, one in enumerate(value, 1)
            )
        else:
            yield Recorded(path.name, str(path), value, 0)


def _parsed(text: str, place: str, tell: Tell) -> Iterator[Any]:
    try:
        yield loads(text)
    except ValueError as error:
        tell(LeftOut(f"{place}: no JSON ({short(error)})"))


def _is_whole(item: Any) -> bool:
    """True for a conversation or a run, where a message could stand too."""
    if isinstance(item, Mapping):
        return is_run(item) or "messages" in item
    return isinstance(item, list) and not is_pair(item)


def _lines(path: Path, tell: Tell) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers; a file that breaks off ends there."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    is_empty = True
    try:
        # bytes that are no UTF-8 become surrogates: U+FFFD may stand in the file itself
        with opener(path, "rt", encoding="utf-8", errors="surrogateescape") as file:
            for number, given in _bounded(file):
                line = given.lstrip("\ufeff")  # of each of files that were joined
                clean = line.encode(errors="surrogateescape").decode(errors="replace")
                if clean != line:
                    tell(f"{path}:{number}: bytes that are no UTF-8 were replaced")
                if not clean.strip():
                    continue
                is_empty = False
                if len(clean) > MAX_CHARS:
                    tell(
                        LeftOut(
                            f"{path}:{number}: more than {MAX_CHARS:,} characters are no conversation"
                        )
                    )
                else:
                    yield number, clean
    except (OSError, EOFError, zlib.error) as error:
        tell(LeftOut(f"{path}: left out the rest: broken off ({short(error)})"))
        return
    if is_empty:
        tell(f"{path}: nothing in it")


def _bounded(file: IO[str]) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, of one that is too long its beginning: it is never in memory as a whole."""
    number = 0
    while line := file.readline(MAX_CHARS + 1):
        number += 1
        yield number, line
        while line and not line.endswith("\n"):
            line = file.readline(SKIPPED_CHARS)


def _conversation(
    row: Any, name: str, place: str, tell: Tell, places: Sequence[str] | None = None
) -> Conversation:
    """Read one conversation, or the list of its messages, which may stand in several places; an error for none."""
    about = row if isinstance(row, Mapping) else {"messages": row}
    listed = about.get("messages")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ConfigError("no list of messages")
    if len(listed) > MAX_MESSAGES:
        raise ConfigError(
            f"{len(listed):,} messages, at most {MAX_MESSAGES:,} are replayed"
        )
    read = list[tuple[int, Any]]()
    for number, said in enumerate(listed, 1):
        try:
            read += [(number, message) for message in read_message(said)]
        except Exception as error:
            raise _UnreadError(
                f"message {number}: {short(error)}",
                places[number - 1] if places else place,
            ) from error
    system = about.get("system")  # where Anthropic's requests have it
    if (
        system
        and isinstance(system, str | list)
        and not isinstance(read[0][1], SystemMessage)
    ):
        read.insert(0, (0, SystemMessage(system)))
    paired = _paired(read, place, tell)
    asked = next(
        (
            index
            for index, message in enumerate(paired)
            if isinstance(message, HumanMessage)
        ),
        len(paired),
    )
    if not any(isinstance(message, AIMessage) for message in paired[asked:]):
        raise ConfigError(
            f"no answer to a user in {len(paired):,} messages, so there is no request to replay"
        )
    key, tools = about.get("id"), about.get("tools")
    tools = tools if isinstance(tools, list) else [] if tools is None else [tools]
    usable = tuple(one for one in tools if isinstance(one, Mapping))
    if len(usable) < len(tools):
        tell(
            f"{place}: left out {len(tools) - len(usable):,} tools that are no objects"
        )
    called = (str(key) if isinstance(key, str | int) and key != "" else name)[
        :MAX_NAME_CHARS
    ]
    return Conversation(name=called, messages=tuple(paired), tools=usable, place=place)


def _paired(messages: Sequence[tuple[int, Any]], place: str, tell: Tell) -> list[Any]:
    """Leave out results that answer no call before them; tell of them, and of calls that were never answered."""
    kept, orphans, shared, waiting = (
        list[Any](),
        list[int](),
        list[int](),
        dict[str, list[int]](),
    )
    last = max(
        (
            number
            for number, message in messages
            if not isinstance(message, ToolMessage)
        ),
        default=0,
    )
    for number, message in messages:
        if isinstance(message, ToolMessage):
            if not waiting.get(message.tool_call_id):
                orphans.append(number)
                continue
            waiting[message.tool_call_id].pop()
        keys = call_ids(message)
        if len(set(keys)) < len(keys):
            shared.append(number)
        for key in keys:
            waiting.setdefault(key, []).append(number)
        kept.append(message)
    open_calls = [
        number for numbers in waiting.values() for number in numbers if number != last
    ]
    for numbers, fault in (  # no request could hold orphans
        (
            orphans,
            f"left out {len(orphans):,} results of calls that are not there before them",
        ),
        (open_calls, f"{len(open_calls):,} calls without a result"),
        (shared, "calls of one message have the same id"),
    ):
        if numbers:
            listed = sorted({*numbers})
            more = ", ..." if len(listed) > MOST_NUMBERS else ""
            tell(
                f"{place}: {fault}: message {', '.join(map(str, listed[:MOST_NUMBERS]))}{more}"
            )
    return kept
