"""Random conversations as histories really arrive: tidy ones, and every way in which they are broken."""

import json

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import InvalidToolCall

from langchain_ctxwin import pin
from langchain_ctxwin.core.turns import call_ids

FRAME_TOKENS = 4  # role and separators around a message
BASE_TOKENS = 3  # the opening of the answer, once per request
CHARS_PER_TOKEN = 4
MEDIA_TOKENS = 40
# mostly small, so that many messages share a window
SIZES_CHARS = (0, 3, 40, 40, 200, 200, 800, 4000)
HUGE_CHARS = 60_000
FILLER = "lorem ipsum dolor " * 20  # 90 tokens

TOOLS = [
    {
        "type": "function",
        "function": {"name": "read", "description": "Reads.", "parameters": {}},
    }
]
"""Of the calls in them."""

TIDY = ("user", "answer", "call", "call", "call", "again")
BROKEN = (
    *TIDY,
    "orphan",
    "abandoned",
    "late",
    "system",
    "empty_user",
    "empty_answer",
    "none_content",
    "surrogate",
    "blocks",
    "image",
    "reasoning",
    "invalid_call",
    "double_result",
    "system_inside",
    "partial",
)


class CharCounter:
    """An exact counter: a token per four characters, a frame per message, a price per media block."""

    exact = True

    def __call__(self, messages, *, tools=None):
        """Return the tokens of a request."""
        definitions = sum(
            -(-len(json.dumps(tool, default=str)) // CHARS_PER_TOKEN)
            for tool in tools or ()
        )
        return BASE_TOKENS + definitions + sum(map(_message_tokens, messages))


def turns(number):
    """Return so many long questions with short answers, and a last question."""
    messages = []
    for i in range(number):
        messages += [
            HumanMessage(f"question {i} {FILLER}", id=f"q{i}"),
            AIMessage(f"answer {i}", id=f"a{i}"),
        ]
    return [*messages, HumanMessage("now", id="now")]


def payload(message):
    """Return what of a message reaches the provider."""
    calls = getattr(message, "tool_calls", None)
    return (
        message.type,
        message.content,
        calls,
        getattr(message, "tool_call_id", None),
    )


def ready(messages):
    """True when an agent would call its model now: a question, or results of which none is missing."""
    if not messages or messages[-1].type not in {"human", "tool"}:
        return False
    pending = []
    for message in messages:
        if isinstance(message, HumanMessage):
            pending = []
        pending.extend(call_ids(message))
        if isinstance(message, ToolMessage) and message.tool_call_id in pending:
            pending.remove(message.tool_call_id)
    return not pending


@st.composite
def conversations(
    draw,
    *,
    broken=True,
    pins=True,
    huge=False,
    max_events=14,
):
    """Draw a history that ends with something to answer; ids are unique, or missing throughout."""
    with_ids = draw(st.sampled_from((True, True, True, False))) if broken else True
    writer = _Writer(draw, huge=huge)
    kinds = BROKEN if broken else TIDY
    if not broken or draw(st.booleans()):
        writer.user()
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=max_events)):
        getattr(writer, kind)()
    draw(st.sampled_from((writer.user, writer.call)))()
    messages = writer.messages
    if pins:
        for index in draw(st.sets(st.integers(0, len(messages) - 1), max_size=2)):
            messages[index] = pin(messages[index])
    if with_ids:
        for index, message in enumerate(messages):
            message.id = f"m{index}"
    return messages


class _Writer:
    """Writes one event after the other; every text is unique, so that messages can be told apart by content."""

    def __init__(self, draw, *, huge):
        self.messages = []
        self._draw = draw
        self._sizes = (*SIZES_CHARS, HUGE_CHARS) if huge else SIZES_CHARS
        self._serial = 0
        self._last_call = ("read", {"path": "a"})

    def user(self):
        self._add(HumanMessage(self._text("question")))

    def answer(self):
        self._add(AIMessage(self._text("answer")))

    def call(self):
        ids = [self._call_id() for _ in range(self._draw(st.integers(1, 3)))]
        self._calls(ids)
        for call_id in self._draw(st.permutations(ids)):
            self._result(call_id)

    def again(self):
        """Make the last call once more, so that the older result is superseded."""
        call_id = self._call_id()
        self._add(
            AIMessage("", tool_calls=[self._tool_call(call_id, self._last_call[1])])
        )
        self._result(call_id)

    def orphan(self):
        self._result(f"nobody-{self._next()}")

    def abandoned(self):
        self._calls([self._call_id()])
        self.user()

    def late(self):
        call_id = self._call_id()
        self._calls([call_id])
        self.user()
        self._result(call_id)

    def partial(self):
        """Two calls of which one is answered before the user goes on."""
        ids = [self._call_id(), self._call_id()]
        self._calls(ids)
        self._result(ids[-1])
        self.user()

    def double_result(self):
        call_id = self._call_id()
        self._calls([call_id])
        self._result(call_id)
        self._result(call_id)

    def system(self):
        self._add(SystemMessage(self._text("system")))

    def system_inside(self):
        call_id = self._call_id()
        self._calls([call_id])
        self.system()
        self._result(call_id)

    def empty_user(self):
        self._add(
            HumanMessage(
                self._draw(
                    st.sampled_from(("", "  \n", [], [{"type": "text", "text": ""}]))
                )
            )
        )

    def empty_answer(self):
        self._add(AIMessage(self._draw(st.sampled_from(("", [])))))

    def none_content(self):
        kind = self._draw(st.sampled_from((HumanMessage, AIMessage, SystemMessage)))
        message = kind("")
        message.content = (
            None  # a provider adapter that does not validate leaves this behind
        )
        self._add(message)

    def surrogate(self):
        self._add(HumanMessage(self._text("lone \ud800 surrogate")))

    def blocks(self):
        self._add(
            AIMessage(
                [{"type": "text", "text": self._text("block")}, self._text("bare")]
            )
        )

    def image(self):
        image = {"type": "image", "base64": "QUJD" * 2000, "mime_type": "image/png"}
        self._add(HumanMessage([{"type": "text", "text": self._text("look")}, image]))

    def reasoning(self):
        call_id = self._call_id()
        thought = {
            "type": "reasoning",
            "reasoning": self._text("thought"),
            "extras": {"signature": "c2ln"},
        }
        content = [thought, {"type": "text", "text": self._text("aloud")}]
        self._add(
            AIMessage(
                content,
                tool_calls=[self._tool_call(call_id, {"q": self._text("query")})],
            )
        )
        self._result(call_id)

    def invalid_call(self):
        call_id = self._call_id()
        broken = InvalidToolCall(
            name="read",
            args="{not json",
            id=call_id,
            error="bad",
            type="invalid_tool_call",
        )
        self._add(AIMessage("", invalid_tool_calls=[broken]))
        self._result(call_id)

    def _calls(self, ids):
        calls = [
            self._tool_call(
                call_id, {"path": self._text("path"), "n": [1, {"deep": "x"}]}
            )
            for call_id in ids
        ]
        self._add(
            AIMessage(self._draw(st.sampled_from(("", "Looking."))), tool_calls=calls)
        )
        self._last_call = (calls[-1]["name"], calls[-1]["args"])

    def _tool_call(self, call_id, args):
        return ToolCall(name="read", args=args, id=call_id, type="tool_call")

    def _result(self, call_id):
        status = self._draw(st.sampled_from(("success", "success", "success", "error")))
        self._add(
            ToolMessage(self._text("result"), tool_call_id=call_id, status=status)
        )

    def _call_id(self):
        """Return a fresh id, or one that an earlier step already used."""
        return self._draw(
            st.sampled_from(("c0", f"c{self._next()}", f"c{self._next()}"))
        )

    def _text(self, what):
        return f"{what} {self._next()} " + "lorem " * (
            self._draw(st.sampled_from(self._sizes)) // 6
        )

    def _next(self):
        self._serial += 1
        return self._serial

    def _add(self, message):
        self.messages.append(message)


def _message_tokens(message):
    content = message.content
    blocks = content if isinstance(content, list) else [content or ""]
    chars = sum(_block_chars(block) for block in blocks)
    if isinstance(message, AIMessage):
        chars += sum(
            len(json.dumps(call["args"], ensure_ascii=False))
            for call in message.tool_calls
        )
        chars += sum(len(call["args"] or "") for call in message.invalid_tool_calls)
    return FRAME_TOKENS - (-chars // CHARS_PER_TOKEN)


def _block_chars(block):
    if isinstance(block, str):
        return len(block)
    known = block.get("text") or block.get("reasoning")
    return len(known) if isinstance(known, str) else MEDIA_TOKENS * CHARS_PER_TOKEN
