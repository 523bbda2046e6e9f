"""What happens in a scenario? Turns of user messages, tool calls with their results, and facts planted on the way.

Each scenario is a function of the window, so that it presses on a small and on a large one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, create_model

import exact
from arena_parts import texts

Content = str | list[Any]
KEY_SENTENCE = re.compile(r"(?:Fact [A-Z]{2}-\d{4}|Standing rule \d): [^.]*\.")
"""What a good summarizer would keep."""

OPTIONS = 4
OPTION_TOKENS = 30
"""Optional fields of a large tool."""

SYSTEM_PROMPT = (
    "You are an operations assistant. Use the tools to look things up before you answer, quote reference numbers "
    "exactly, and follow every standing rule that the user gives you."
)
RULES = (
    "Standing rule 1: never promise a delivery date before customs number 7741-A is cleared.",
    "Standing rule 2: amounts above 950 euros need the approval of Ms Okonkwo, write that down each time.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    tool: str
    key: str
    note: str = ""

    def made(self) -> ToolCall:
        args = {"key": self.key, "note": self.note}
        return ToolCall(
            name=self.tool, args=args, id=f"call_{self.key}".replace(".", "_")
        )


Step = tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    user: Content
    steps: tuple[Step, ...]
    answer: str
    rule: str = ""
    """A rule that the user message states and that holds from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    code: str
    turn: int
    step: int
    """The step whose result states it; -1 for the user message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    turns: tuple[Turn, ...]
    facts: tuple[Fact, ...]
    results: dict[str, Content]
    tools: tuple[BaseTool, ...]
    system_prompt: str = SYSTEM_PROMPT

    @property
    def calls(self) -> int:
        return sum(len(turn.steps) + 1 for turn in self.turns)


@dataclass(slots=True)
class Writer:
    """Writes a scenario turn by turn."""

    name: str
    rng: random.Random
    turns: list[Turn] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    results: dict[str, Content] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def step(self, *results: Content, fact: bool = True, note_tokens: int = 0) -> None:
        """One AI message with a call per result; a fact goes into the middle of the first text."""
        calls = []
        for number, result in enumerate(results):
            key = f"{len(self.turns)}.{len(self.steps)}.{number}"
            self.results[key] = self.planted(result) if fact and number == 0 else result
            note = texts.prose(self.rng, note_tokens) if note_tokens else ""
            calls.append(Call(tool=f"tool_{number % 5}", key=key, note=note))
        self.steps.append(tuple(calls))

    def turn(self, user: Content | None = None, *, answer_tokens: int = 60) -> None:
        """Close the turn; the first and the fourth user message state a rule."""
        rule = RULES[len(self.turns) // 3] if len(self.turns) in {0, 3} else ""
        asked = texts.prose(self.rng, 40) if user is None else user
        if rule:
            asked = (
                [*asked, {"type": "text", "text": rule}]
                if isinstance(asked, list)
                else f"{asked} {rule}"
            )
        answer = texts.prose(self.rng, answer_tokens)
        self.turns.append(
            Turn(user=asked, steps=tuple(self.steps), answer=answer, rule=rule)
        )
        self.steps = []

    def fact(self, *, step: int | None = None) -> str:
        """A sentence with a code that nothing else contains."""
        code = f"{self.rng.choice('BCDFGH')}{self.rng.randint(10_000, 99_999)}-{len(self.facts):03d}"
        at = len(self.steps) if step is None else step
        self.facts.append(Fact(code=code, turn=len(self.turns), step=at))
        return f"Fact KX-{len(self.facts):04d}: the reference of {self.rng.choice(texts.OBJECTS)} is {code}."

    def planted(self, content: Content, *, at: float = 0.5) -> Content:
        sentence = self.fact()
        if not isinstance(content, str):
            return [{"type": "text", "text": sentence}, *content]
        if content.startswith("{"):
            return content.replace("[", f'[{{"note": "{sentence}"}}, ', 1)
        middle = int(len(content) * at)
        gap = (
            next(
                (i for i in range(middle, len(content)) if content[i] in " \n。"),
                len(content),
            )
            + 1
        )
        return f"{content[:gap]} {sentence} {content[gap:]}"

    def done(
        self, tools: Callable[[dict[str, Content]], Sequence[BaseTool]] | None = None
    ) -> Scenario:
        made = (tools or plain_tools)(self.results)
        return Scenario(
            name=self.name,
            turns=tuple(self.turns),
            facts=tuple(self.facts),
            results=self.results,
            tools=tuple(made),
        )


class _Arguments(BaseModel):
    key: str = Field(description="Number of the record to look up")
    note: str = Field(default="", description="Why it is needed, for the log")


def plain_tools(results: dict[str, Content]) -> list[BaseTool]:
    return [
        _tool(
            f"tool_{i}",
            f"Look up records of kind {i} and return them in full.",
            results,
        )
        for i in range(5)
    ]


def large_tools(
    results: dict[str, Content], *, count: int, tokens: int, rng: random.Random
) -> list[BaseTool]:
    """Tools of about `tokens` tokens each, as the provider counts them; options where there is room for them."""
    made = []
    for number in range(count):
        options = OPTIONS if tokens > OPTIONS * OPTION_TOKENS * 2 else 0
        option = (
            str,
            Field(default="", description=texts.prose(rng, OPTION_TOKENS - 10)),
        )
        fields: dict[str, Any] = {f"option_{i}": option for i in range(options)}
        schema = create_model(f"Arguments{number}", __base__=_Arguments, **fields)
        bare = exact.tools_tokens(
            [convert_to_openai_tool(_tool(f"tool_{number}", "", results, schema))]
        )
        made.append(
            _tool(
                f"tool_{number}",
                texts.prose(rng, max(1, tokens - bare)),
                results,
                schema,
            )
        )
    return made


def _tool(
    name: str,
    description: str,
    results: dict[str, Content],
    schema: type[BaseModel] = _Arguments,
) -> BaseTool:
    def look_up(key: str, note: str = "", **_: str) -> Content:  # noqa: ARG001  # part of the schema
        return results[key]

    return StructuredTool.from_function(
        look_up, name=name, description=description, args_schema=schema
    )


# ---- the scenarios ---------------------------------------------------------------------------------------------------

HUGE_TOKENS = 40_000
"""A tool result and a user message that fit neither window."""

RESERVE_SHARE = 8
"""An eighth of the window is asked for as output."""


def input_limit(window: int) -> int:
    return window - window // RESERVE_SHARE


def long_run(writer: Writer, _: int) -> Scenario:
    """60 turns of two lookups."""
    for turn in range(60):
        for number, kind in enumerate((texts.prose, texts.log)):
            writer.step(
                kind(writer.rng, writer.rng.randint(150, 700)),
                fact=(turn + number) % 4 == 0,
            )
        writer.turn()
    return writer.done()


def parallel(writer: Writer, _: int) -> Scenario:
    """Six calls in each step."""
    for _turn in range(12):
        for _step in range(3):
            writer.step(*(texts.prose(writer.rng, 220) for _ in range(6)))
        writer.turn()
    return writer.done()


def huge_results(writer: Writer, _: int) -> Scenario:
    """Every other turn a result of 40,000 tokens, with facts near its start and end."""
    for turn in range(10):
        writer.step(texts.prose(writer.rng, 400))
        if turn % 2:
            huge = texts.log(writer.rng, HUGE_TOKENS)
            writer.step(
                writer.planted(writer.planted(huge, at=0.005), at=0.995), fact=False
            )
        writer.turn()
    return writer.done()


def media(writer: Writer, window: int) -> Scenario:
    """Images from users and tools, PDFs from users."""
    rng, pages = writer.rng, 3 if window > 16_384 else 1
    for turn in range(15):
        blocks = [
            {"type": "text", "text": f"{texts.prose(rng, 40)} {writer.fact(step=-1)}"}
        ]
        if turn % 3 == 1:
            blocks.append(
                {
                    "type": "file",
                    "base64": texts.pdf(rng, pages),
                    "mime_type": "application/pdf",
                }
            )
        elif turn % 3 == 2:
            blocks.append(
                {
                    "type": "image",
                    "base64": texts.png(rng, 1024, 768),
                    "mime_type": "image/png",
                }
            )
        picture = {
            "type": "image",
            "base64": texts.png(rng, 800, 600),
            "mime_type": "image/png",
        }
        writer.step([{"type": "text", "text": texts.prose(rng, 120)}, picture])
        writer.step(texts.prose(rng, 300))
        writer.turn(blocks)
    return writer.done()


def chinese(writer: Writer, _: int) -> Scenario:
    """Users and tools write Chinese."""
    for _turn in range(25):
        for _step in range(2):
            writer.step(texts.chinese(writer.rng, writer.rng.randint(300, 900)))
        writer.turn(texts.chinese(writer.rng, 40))
    return writer.done()


def json_rows(writer: Writer, _: int) -> Scenario:
    """Tools return rows with long ids and numbers."""
    for _turn in range(20):
        for _step in range(2):
            writer.step(texts.rows(writer.rng, writer.rng.randint(500, 1_800)))
        writer.turn()
    return writer.done()


def long_message(writer: Writer, window: int) -> Scenario:
    """A user message of more than half of the input limit, one of 40,000 tokens, and short ones around them."""
    for turn in range(9):
        asked = None
        if turn in {2, 6}:
            asked = f"{texts.prose(writer.rng, input_limit(window) * 11 // 20)} {writer.fact(step=-1)}"
        if turn == 4:
            asked = f"{writer.fact(step=-1)} {texts.log(writer.rng, HUGE_TOKENS)}"
        for _step in range(2):
            writer.step(texts.prose(writer.rng, 350))
        writer.turn(asked)
    return writer.done()


def many_tools(writer: Writer, window: int) -> Scenario:
    """40 tools whose definitions take half of the input limit."""
    for _turn in range(25):
        writer.step(texts.prose(writer.rng, writer.rng.randint(200, 700)))
        writer.turn()
    tokens = input_limit(window) // 2 // 40
    return writer.done(partial(large_tools, count=40, tokens=tokens, rng=writer.rng))


def one_turn(writer: Writer, _: int) -> Scenario:
    """One turn of 120 steps, some of which write long notes."""
    for step in range(120):
        note_tokens = 150 if step % 4 == 0 else 0
        writer.step(
            texts.prose(writer.rng, writer.rng.randint(200, 600)),
            fact=step % 4 == 1,
            note_tokens=note_tokens,
        )
    writer.turn()
    return writer.done()


def clock(writer: Writer, window: int) -> Scenario:
    """Played in real time: turns of four calls that fill the window several times."""
    size = input_limit(window) // 12
    for _turn in range(9):
        for _step in range(3):
            writer.step(texts.prose(writer.rng, size))
        writer.turn()
    return writer.done()


SCENARIOS: dict[str, Callable[[Writer, int], Scenario]] = {
    "long_run": long_run,
    "parallel": parallel,
    "huge_results": huge_results,
    "media": media,
    "chinese": chinese,
    "json_rows": json_rows,
    "long_message": long_message,
    "many_tools": many_tools,
    "one_turn": one_turn,
    "clock": clock,
}
CLOCK = "clock"


def scenario(name: str, window: int) -> Scenario:
    return SCENARIOS[name](Writer(name, random.Random(name)), window)  # noqa: S311  # reproducible, not secret
