"""How one message is shown shorter than it is, cleared or clamped to its head and tail; and what it consists of.

Edits never touch the history; they make a copy for the request. Their texts name ids and characters, never token
counts, so that they are the same in every request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from langchain_ctxwin.core.calls import RESULT_BLOCKS, is_result, kept_calls, result_ids, standard
from langchain_ctxwin.core.view import Clamp, View

TextEdit = Callable[[str], str]


def edit(message: AnyMessage, key: str, view: View) -> AnyMessage:
    """Return the message as `view` shows it; the same object when the view does not edit it."""
    if key in view.cleared and (isinstance(message, ToolMessage) or is_result(message)):
        media = media_count(message) if isinstance(message, ToolMessage) else 0
        size = f"{len(result_text(message)):,} characters{f' and {media} media items' if media else ''}"
        stub = f"[Tool result cleared: {size}; still in the history as message {key}.]"
        if not isinstance(message, ToolMessage):  # a message of results alone: each stays the result of its call
            return message.model_copy(update={"content": [_with_result(b, lambda _: stub) for b in message.content]})
        return message.model_copy(update={"content": stub, "artifact": None})
    clamp = view.clamped.get(key)
    return message if clamp is None else clamp_message(message, key, clamp)


def clamp_message(message: AnyMessage, key: str, clamp: Clamp) -> AnyMessage:
    """Return a copy with long text cut to head and tail; media, ids, signatures and reasoning stay as they are.

    In an AI message the string values inside tool call arguments are cut too, so that they stay valid JSON.
    """

    def shorten(text: str) -> str:
        return clamp_text(text, key, clamp)

    content: Any = message.content
    if isinstance(content, str):
        content = shorten(content)
    elif isinstance(content, list):
        content = _clamped_blocks(content, shorten, clamp)
    if result_ids(message) and isinstance(content, list):
        content = [_with_result(block, lambda result: _shortened_result(result, shorten)) for block in content]
    if not isinstance(message, AIMessage):
        return message.model_copy(update={"content": content})
    if isinstance(content, list):  # arguments inside the blocks of calls are cut like the calls themselves
        content = [_edit_call_block(block, shorten) for block in content]
    # Integrations rebuild the provider's raw copy of the calls from `tool_calls`.
    raw = {"tool_calls", "function_call"}
    extra = {name: value for name, value in message.additional_kwargs.items() if name not in raw}
    calls = [{**call, "args": _edit_strings(call["args"], shorten)} for call in message.tool_calls]
    invalid = [{**call, "args": _edit_strings(call["args"], shorten)} for call in message.invalid_tool_calls]
    return message.model_copy(
        update={"content": content, "tool_calls": calls, "invalid_tool_calls": invalid, "additional_kwargs": extra}
    )


def clamp_text(text: str, key: str, clamp: Clamp) -> str:
    """Return head and tail of a text with a marker between them; the text itself when that would not be shorter."""
    left_out = len(text) - clamp.head_chars - clamp.tail_chars
    reader = f", which {clamp.tool} reads" if clamp.tool else ""
    marker = f"\n[... {left_out:,} characters left out; in the history as message {key}{reader} ...]\n"
    if left_out <= len(marker):
        return text
    return text[: clamp.head_chars] + marker + text[len(text) - clamp.tail_chars :]


def clampable_chars(message: AnyMessage) -> int:
    """Length of the longest piece of text that clamping would cut, in characters."""
    longest = len(text_of(message.content))
    if isinstance(message.content, list) and result_ids(message):
        longest = max(longest, len(result_text(message)))
    stack: list[Any] = []
    if isinstance(message, AIMessage):
        stack = [call["args"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            longest = max(longest, len(value))
        else:
            stack.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return longest


def result_text(message: AnyMessage) -> str:
    """Return the text of the results that a message states, in whatever form."""
    return "\n".join(text_of(part.content) for part in standard(message) if isinstance(part, ToolMessage))


def _with_result(block: Any, change: Callable[[Any], Any]) -> Any:
    """A block that states a result, with what it holds changed; any other block as it is."""
    if not isinstance(block, dict) or block.get("type") not in RESULT_BLOCKS:
        return block
    return {**block, **{name: change(block[name]) for name in ("content", "output") if name in block}}


def _shortened_result(result: Any, shorten: TextEdit) -> Any:
    if isinstance(result, str):
        return shorten(result)
    return [
        {**part, "text": shorten(part["text"])} if isinstance(part, dict) and _block_text(part) else part
        for part in result
    ]


def text_of(content: Any) -> str:
    """Return the plain text of message content, blocks joined."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "".join(filter(None, map(_block_text, content)))


def spoken(message: BaseMessage) -> str:
    """Return the transcript of a spoken answer, whose content is empty: its integration sends the id of the audio."""
    audio = message.additional_kwargs.get("audio")
    if not isinstance(audio, Mapping) or not (audio.get("id") or audio.get("transcript")):
        return ""
    return str(audio.get("transcript") or "[audio]")


def said_in(message: BaseMessage) -> str:
    """Return what a message says, in writing or spoken."""
    return text_of(message.content) or spoken(message)


def media_count(message: AnyMessage) -> int:
    """Return how many content blocks are not text."""
    return sum(_block_text(block) is None for block in message.content) if isinstance(message.content, list) else 0


def _block_text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, dict) and block.get("type", "text") == "text" else None
    return text if isinstance(text, str) else None


def _clamped_blocks(content: list[Any], shorten: TextEdit, clamp: Clamp) -> list[Any]:
    """The blocks in their places, signatures and all, cut as one text; the first that is cut carries the marker."""
    whole = text_of(content)
    clamped = shorten(whole)
    if clamped is whole:
        return content
    marker, begin, blocks = clamped[clamp.head_chars : len(clamped) - clamp.tail_chars], 0, list[Any]()
    for block in content:
        text = _block_text(block)
        if text is None:
            blocks.append(block)
            continue
        head = text[: max(0, clamp.head_chars - begin)]
        tail = text[max(0, len(whole) - clamp.tail_chars - begin) :]
        begin += len(text)
        shown = text
        if len(head) + len(tail) < len(text):
            shown, marker = f"{head}{marker}{tail}", ""
        if shown:
            blocks.append({**block, "text": shown} if isinstance(block, dict) else shown)
    return blocks


def _edit_call_block(block: Any, shorten: TextEdit) -> Any:
    """Cut arguments inside a block of a call (Anthropic `input`, standard `args`)."""
    if not isinstance(block, dict) or block.get("type") not in {"tool_use", "tool_call", "function_call"}:
        return block
    edited = {name: _edit_strings(block[name], shorten) for name in ("input", "args") if name in block}
    return {**{name: value for name, value in block.items() if name != "partial_json"}, **edited}


def _edit_strings(value: Any, change: TextEdit) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _edit_strings(item, change) for key, item in value.items()}
    return [_edit_strings(item, change) for item in value] if isinstance(value, list) else value


# ---- what a message consists of --------------------------------------------------------------------------------------

MEDIA_TYPES = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "input_audio": "audio", "video": "video", "video_url": "video",
    "file": "file", "input_file": "file", "document": "file", "media": "file", "text-plain": "text",
}  # fmt: skip
"""Content block types that hold media, with their kind."""

# Blocks that state a call, mostly one that `tool_calls` states too; and what a model thought before it answered.
CALL_TYPES = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call", "tool_call_chunk"})
REASONING_TYPES = frozenset({"reasoning", "reasoning_content", "thinking", "redacted_thinking"})
REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where in `additional_kwargs` integrations keep reasoning that they send again, such as those of Ollama."""

KEEPS_REASONING_IN_CONTENT = ("openai", "anthropic", "google", "gemini", "vertex")
"""Words in the names of providers whose integrations do not send it from there."""

COMPACTION_TYPE = "compaction"  # a block in which a provider wrote down what was before it; it ignores the rest
TOOL_REFERENCE_TYPE = "tool_reference"  # a block that brings the definition of a deferred tool into the prompt
MAX_DEPTH = 8  # blocks inside blocks that are followed as such; results hold blocks, and those hold no further results
MAX_PARTS = 10_000  # values of one unknown block that are looked at, so that a cyclic one ends
_ENCRYPTED_TYPE = "redacted_thinking"  # its data is reasoning that only the provider can read
_CALL_ARGUMENTS = ("input", "args", "arguments", "partial_json")  # where blocks keep the arguments of a call
_UNSENT_KEYS = frozenset(  # of unknown blocks: no content of the prompt
    {"type", "id", "index", "signature", "cache_control", "extras", "annotations", "encrypted_content"}
)
_BLOB = re.compile(r"data:[^,\s]{0,200},|[A-Za-z0-9+/_-]{1024}")  # base64: no word or path is as long


@dataclass(frozen=True, slots=True)
class Media:
    """One block of media and its kind: image, audio, video, text, file, encrypted or blob (to be found out)."""

    kind: str
    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call or the reference of a result to its call: adds framing beside its text."""

    name: str = ""
    arguments: Any = ""

    @property
    def text(self) -> str:
        """Name and arguments as JSON."""
        return f"{self.name}{compact_json(self.arguments)}"

    @property
    def plain_text(self) -> str:
        """Name and arguments where each is shown as it is, without JSON's escapes; nested values are still JSON."""
        if not isinstance(self.arguments, Mapping):
            return self.text
        return "\n".join([self.name, *(f"{key}\n{compact_json(value)}" for key, value in self.arguments.items())])


Piece = str | Media | Call


def pieces(message: BaseMessage) -> Iterator[Piece]:
    """Yield everything of a message that a provider counts, in no particular order."""
    if message.name:
        yield message.name
    if not isinstance(message, AIMessage):
        if isinstance(message, ToolMessage):
            yield Call()
        yield from _content(message.content, ())
        return
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    yield from _content(message.content, tuple(call.get("id") for call in calls))
    yield from map(_call, calls)
    if message.additional_kwargs:
        if not calls:  # integrations that did not parse their provider's calls
            yield from map(_call, kept_calls(message.additional_kwargs))
        yield from _sent_again(message)


def _sent_again(message: AIMessage) -> Iterator[Piece]:
    """What integrations send of `additional_kwargs`: reasoning, each text of it once, and what was spoken."""
    if said := spoken(message):
        yield said
    maker = str(message.response_metadata.get("model_provider") or "")
    if any(word in maker for word in KEEPS_REASONING_IN_CONTENT):
        return
    found = [leaf for key in REASONING_KEYS for leaf in leaves(message.additional_kwargs.get(key))]
    yield from dict.fromkeys(leaf for leaf in found if isinstance(leaf, str))
    yield from (leaf for leaf in found if isinstance(leaf, Media))


def compact_json(value: Any) -> str:
    """Return JSON without spaces; a string is taken as JSON already, what is no JSON as its text."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        return " ".join(leaf for leaf in leaves(value) if isinstance(leaf, str))


def leaves(value: Any) -> Iterator[str | Media]:
    """Yield the texts inside a value of any shape; long runs of base64 and bytes come out as media.

    At most `MAX_PARTS` values are looked at, so that this ends on cyclic and on heavily shared ones.
    """
    stack, left = [value], MAX_PARTS
    while stack and left:
        left -= 1
        item = stack.pop()
        if isinstance(item, Mapping):
            stack.extend([part for key, part in item.items() if key not in _UNSENT_KEYS][:left])
        elif isinstance(item, list | tuple):
            stack.extend(item[:left])
        elif isinstance(item, bytes | bytearray) or (isinstance(item, str) and _BLOB.match(item)):
            yield Media("blob", {"data": item if isinstance(item, str) else bytes(item)})
        elif item is not None:
            yield str(item)


def _content(content: Any, sent: tuple[Any, ...], depth: int = 0) -> Iterator[Piece]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for block in content:
            if isinstance(block, Mapping) and depth < MAX_DEPTH:
                yield from _block(block, sent, depth)
            else:
                yield from leaves(block) if not isinstance(block, str) else (block,)


def _block(block: Mapping[str, Any], sent: tuple[Any, ...], depth: int) -> Iterator[Piece]:
    kind, text = block.get("type", "text"), block.get("text")
    if not isinstance(kind, str):
        yield from leaves(block)
    elif kind == "text" and isinstance(text, str):
        yield text
    elif kind in MEDIA_TYPES:
        yield from _media(MEDIA_TYPES[kind], block, depth)
    elif kind == _ENCRYPTED_TYPE:
        yield Media("encrypted", block)
    elif kind == COMPACTION_TYPE and not block.get("content") and block.get("encrypted_content"):
        yield Media("encrypted", {"data": block["encrypted_content"]})
    elif kind == "tool_result":
        yield from _content(block.get("content"), (), depth + 1)
    elif kind == "non_standard":
        yield from _content([block.get("value")], sent, depth + 1)
    elif kind not in CALL_TYPES:
        yield from leaves(block)
    elif not _repeats(block, sent):
        yield _call(block)


def _media(kind: str, block: Mapping[str, Any], depth: int) -> Iterator[Piece]:
    """A block of media; a document may hold blocks of its own, and states its title and context as text."""
    yield from (text for key in ("title", "context") if isinstance(text := block.get(key), str))
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "content":
        yield from _content(source.get("content"), (), depth + 1)
    else:
        yield Media(kind, block)


def _repeats(block: Mapping[str, Any], sent: tuple[Any, ...]) -> bool:
    """Say whether `tool_calls` state this call too; a block without an id belongs to them."""
    ids = [name for key in ("id", "call_id") if (name := block.get(key)) is not None]
    return any(name in sent for name in ids) if ids else bool(sent)


def _call(call: Mapping[str, Any]) -> Call:
    arguments = next((found for key in _CALL_ARGUMENTS if (found := call.get(key)) is not None), "")
    return Call(str(call.get("name") or ""), arguments)
