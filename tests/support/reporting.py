"""A provider whose exact counts are off from ours in a known way, and a conversation that reports them."""

import random
from hashlib import blake2b
from types import SimpleNamespace

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextOverflow,
    ModelLimits,
    TokenEstimator,
)
from langchain_ctxwin.core.measuring import after_measure, from_answer, refused

COUNTER = TokenEstimator("openai")
BASE = COUNTER([])
PROMPT = "You are a careful assistant of a small library. " * 60
WORDS = (
    "alpha",
    "beta",
    "window",
    "token",
    "file",
    "class",
    "return",
    "json",
    "value",
    "12",
    "345",
    "(x)",
    "-> y;",
)
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "Where it is."}},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"read_{n}",
            "description": "Reads a file.",
            "parameters": PARAMETERS,
        },
    }
    for n in range(4)
]
HONEST = object()
NOISE = 0.05


class Provider:
    """Counts exactly: a hidden constant, a constant per tool, and a tokenizer that is off by a share of each text."""

    def __init__(self, constant=400, per_tool=30, slope=0.12, *, noise=NOISE):
        self.constant, self.per_tool, self.slope, self.noise = (
            constant,
            per_tool,
            slope,
            noise,
        )

    def __call__(self, request, tools):
        tool_tokens = COUNTER([], tools=tools) - BASE if tools else 0
        texts = sum(self._message(message) for message in request)
        return round(
            BASE + self.constant + tool_tokens + self.per_tool * len(tools) + texts
        )

    def _message(self, message):
        shown = repr(
            (message.type, message.content, getattr(message, "tool_calls", None))
        )
        error = random.Random(blake2b(shown.encode()).digest()).gauss(0, self.noise)  # noqa: S311  # repeatable
        return (COUNTER([message]) - BASE) * (1 + self.slope + error)


class Chat:
    """A conversation as an agent leads it: a question, two tool steps, an answer, and so on."""

    def __init__(
        self, provider=None, *, seed=0, window=200_000, tools=TOOLS, model=None
    ):
        self.provider, self.tools, self.model = provider or Provider(), tools, model
        # counted spans stay in the view
        config = ContextConfig(output_reserve=0, summarize="off", keep=0.9)
        self.engine = ContextEngine(
            ModelLimits(context_window=window), counter=COUNTER, config=config
        )
        self.rng = random.Random(seed)  # noqa: S311  # repeatable
        self.messages, self.state, self.serial = [], {}, 0

    def measure(self, **changes):
        given = {
            "tools": self.tools,
            "session": self.state,
            "model": self.model,
        } | changes
        return self.engine.measure(list(self.messages), system_prompt=PROMPT, **given)

    def add(self, message, words=None):
        self.serial += 1
        count = words or self.rng.randint(5, 250)
        message.content = " ".join(self.rng.choice(WORDS) for _ in range(count))
        message.id = f"{message.type}{self.serial}"
        self.messages.append(message)

    def ask(self, words=None):
        """Add what the model has to answer, unless it is there; return the window, compacted if it has to be."""
        last = self.messages[-1] if self.messages else None
        if isinstance(last, AIMessage) and last.tool_calls:
            self.add(ToolMessage("", tool_call_id=last.tool_calls[0]["id"]), words)
        elif last is None or isinstance(last, AIMessage):
            self.add(HumanMessage(""), words)
        window = self.measure()
        compaction = self.engine.emergency(window)
        if compaction is None:
            return window
        self.state |= self.engine.apply(compaction, window)
        return self.measure()

    def answer(self, window, tokens=HONEST, *, by="", output=5):
        """Answer, learn, and return why the reported size was not believed."""
        name = {"name": "read_0", "args": {"path": "a"}, "id": f"c{self.serial}"}
        calls = [name] if self.serial % 5 != 4 else []
        reply = AIMessage(
            "", tool_calls=calls, response_metadata={"model_name": by} if by else {}
        )
        tokens = self.true(window) if tokens is HONEST else tokens
        if tokens is not None:
            reply.usage_metadata = {
                "input_tokens": tokens,
                "output_tokens": output,
                "total_tokens": 0,
            }
        self.add(reply, self.rng.randint(5, 60))
        counts, ignored = from_answer(window, reply)
        self.state |= after_measure(window).to_json() | {"context_counts": counts}
        return ignored

    def talk(self, steps=20, **answer):
        """Lead it on honestly; return the windows that were answered."""
        windows = []
        for _ in range(steps):
            windows.append(self.ask())
            assert self.answer(windows[-1], **answer) == ""
        return windows

    def compacted(self):
        """Ask, and return the window after a compaction that some of the counted history survives."""
        window = self.ask()
        compaction = self.engine.emergency(
            window, target_tokens=int(0.8 * window.total_tokens)
        )
        self.state |= self.engine.apply(compaction, window)
        return self.measure()

    def refused(self, window, *, limit=None, actual=None):
        """Recover from a refusal with these sizes; return the window that is sent next."""
        overflow = ContextOverflow(limit=limit, actual=actual, kind="input")
        learned = self.engine.learn(window, overflow)
        self.state |= self.engine.shrunk(learned, window).session.to_json()
        return self.measure()

    def uncut(self, window, stated):
        """Measure a refused request again, as a recovery does before it decides what has to leave."""
        counts = refused(
            window, ContextOverflow(limit=None, actual=stated, kind="input")
        )
        return self.measure(session=self.state | {"context_counts": counts})

    def true(self, window):
        return self.provider(self.engine.build(window), self.tools)

    def error(self, window):
        return abs(window.total_tokens / self.true(window) - 1)

    def plain_error(self, window):
        return abs(window.estimates.total_tokens / self.true(window) - 1)


def model(name, window=200_000):
    """Return what the engine reads of a chat model."""
    return SimpleNamespace(model=name, profile={"max_input_tokens": window})
