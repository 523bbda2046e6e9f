"""What happens in a scenario? Turns of user messages, tool calls with their results, and facts planted on the way.

Each scenario is a function of the window, so that it presses on a small and on a large one.
"""

# ruff: noqa: RUF001  # Chinese text has commas of its own
from __future__ import annotations

import base64
import json
import random
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, create_model

import exact

Content = str | list[Any]
KEY_SENTENCE = re.compile(r"(?:Fact [A-Z]{2}-\d{4}|Standing rule \d): [^.]*\.")
"""What a good summarizer would keep."""

ANSWER_TOKENS = 60
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


SUBJECTS = """
The billing service
Our night shift
The regional warehouse
A returning customer
The import job
The audit team
The second replica
The carrier in Rotterdam
The mobile client
A contractor
The invoice parser
The staging cluster
The help desk
The payment gateway
The search index
""".strip().split("\n")
VERBS = """
rejected
delayed
confirmed
duplicated
rescheduled
escalated
archived
overlooked
recalculated
forwarded
restored
questioned
postponed
approved
measured
""".strip().split("\n")
OBJECTS = """
the quarterly statement
three pallets of spare parts
an expired certificate
the loyalty discount
a batch of refunds
the maintenance window
forty orphaned records
the retry policy
a customs form
the session table
an unsigned contract
the delivery note
a memory leak
the exchange rate
""".strip().split("\n")
ENDINGS = """
because nobody had updated the shared calendar
after the second reminder
without telling the other office
although the contract says otherwise
while the backup was still running
before the weekend
so the numbers no longer match
and asked for a written explanation
within eleven minutes
despite the new procedure
as the handbook recommends
for reasons that remain unclear
""".strip().split("\n")
CHINESE = """
客户询问订单什么时候可以送达，并希望在周末之前收到。
我们把缓存放在网关后面，延迟在一小时内降低了三分之一。
请在回答第二个问题之前仔细阅读附件中的说明。
数据库升级之后，所有服务都需要重新启动一次。
华东仓库本周的出库量比上周减少了百分之十二，主要原因是节假日。
财务部门要求在月底之前提交全部报销单据和合同扫描件。
该接口在高峰期偶尔超时，重试两次之后通常可以恢复正常。
客服团队建议把退款流程简化，并在页面上显示预计到账时间。
供应商已经确认新的交货日期，但是价格需要重新商议。
""".strip().split("\n")

Step = tuple[ToolCall, ...]


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


@dataclass(slots=True)
class Scenario:
    """What happens, written turn by turn."""

    rng: random.Random
    turns: list[Turn] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    results: dict[str, Content] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    """Of the turn that is written."""

    tools: Sequence[BaseTool] = ()

    def step(self, *results: Content, fact: bool = True, note_tokens: int = 0) -> None:
        """One AI message with a call per result; a fact goes into the middle of the first text."""
        calls = []
        for number, result in enumerate(results):
            key = f"{len(self.turns)}.{len(self.steps)}.{number}"
            self.results[key] = self.planted(result) if fact and number == 0 else result
            note = prose(self.rng, note_tokens) if note_tokens else ""
            args, call_id = {"key": key, "note": note}, f"call_{key}".replace(".", "_")
            calls.append(ToolCall(name=f"tool_{number % 5}", args=args, id=call_id))
        self.steps.append(tuple(calls))

    def turn(self, user: Content | None = None) -> None:
        """Close the turn; the first and the fourth user message state a rule."""
        rule = RULES[len(self.turns) // 3] if len(self.turns) in {0, 3} else ""
        asked = prose(self.rng, 40) if user is None else user
        if rule:
            asked = (
                [*asked, {"type": "text", "text": rule}]
                if isinstance(asked, list)
                else f"{asked} {rule}"
            )
        answer = prose(self.rng, ANSWER_TOKENS)
        self.turns.append(
            Turn(user=asked, steps=tuple(self.steps), answer=answer, rule=rule)
        )
        self.steps = []

    def fact(self, *, step: int | None = None) -> str:
        """A sentence with a code that nothing else contains."""
        code = f"{self.rng.choice('BCDFGH')}{self.rng.randint(10_000, 99_999)}-{len(self.facts):03d}"
        at = len(self.steps) if step is None else step
        self.facts.append(Fact(code=code, turn=len(self.turns), step=at))
        return f"Fact KX-{len(self.facts):04d}: the reference of {self.rng.choice(OBJECTS)} is {code}."

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
            Field(default="", description=prose(rng, OPTION_TOKENS - 10)),
        )
        fields: dict[str, Any] = {f"option_{i}": option for i in range(options)}
        schema = create_model(f"Arguments{number}", __base__=_Arguments, **fields)
        bare = exact.tools_tokens(
            [convert_to_openai_tool(_tool(f"tool_{number}", "", results, schema))]
        )
        made.append(
            _tool(
                f"tool_{number}",
                prose(rng, max(1, tokens - bare)),
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

SHARE_OF_WINDOW = 16
"""The longest summary is a sixteenth of the window, for every manager."""


def input_limit(window: int) -> int:
    return window - window // RESERVE_SHARE


def long_run(writer: Scenario, _: int) -> None:
    """60 turns of two lookups."""
    for turn in range(60):
        for number, kind in enumerate((prose, log)):
            writer.step(
                kind(writer.rng, writer.rng.randint(150, 700)),
                fact=(turn + number) % 4 == 0,
            )
        writer.turn()


def parallel(writer: Scenario, _: int) -> None:
    """Six calls in each step."""
    for _turn in range(12):
        for _step in range(3):
            writer.step(*(prose(writer.rng, 220) for _ in range(6)))
        writer.turn()


def huge_results(writer: Scenario, _: int) -> None:
    """Every other turn a result of 40,000 tokens, with facts near its start and end."""
    for turn in range(10):
        writer.step(prose(writer.rng, 400))
        if turn % 2:
            huge = log(writer.rng, HUGE_TOKENS)
            writer.step(
                writer.planted(writer.planted(huge, at=0.005), at=0.995), fact=False
            )
        writer.turn()


def media(writer: Scenario, window: int) -> None:
    """Images from users and tools, PDFs from users."""
    rng, pages = writer.rng, 3 if window > 16_384 else 1
    for turn in range(15):
        blocks = [{"type": "text", "text": f"{prose(rng, 40)} {writer.fact(step=-1)}"}]
        if turn % 3 == 1:
            blocks.append(
                {
                    "type": "file",
                    "base64": pdf(rng, pages),
                    "mime_type": "application/pdf",
                }
            )
        elif turn % 3 == 2:
            blocks.append(
                {
                    "type": "image",
                    "base64": png(rng, 1024, 768),
                    "mime_type": "image/png",
                }
            )
        picture = {
            "type": "image",
            "base64": png(rng, 800, 600),
            "mime_type": "image/png",
        }
        writer.step([{"type": "text", "text": prose(rng, 120)}, picture])
        writer.step(prose(rng, 300))
        writer.turn(blocks)


def in_chinese(writer: Scenario, _: int) -> None:
    """Users and tools write Chinese."""
    for _turn in range(25):
        for _step in range(2):
            writer.step(chinese(writer.rng, writer.rng.randint(300, 900)))
        writer.turn(chinese(writer.rng, 40))


def json_rows(writer: Scenario, _: int) -> None:
    """Tools return rows with long ids and numbers."""
    for _turn in range(20):
        for _step in range(2):
            writer.step(rows(writer.rng, writer.rng.randint(500, 1_800)))
        writer.turn()


def long_message(writer: Scenario, window: int) -> None:
    """A user message of more than half of the input limit, one of 40,000 tokens, and short ones around them."""
    for turn in range(9):
        asked = None
        if turn in {2, 6}:
            asked = f"{prose(writer.rng, input_limit(window) * 11 // 20)} {writer.fact(step=-1)}"
        if turn == 4:
            asked = f"{writer.fact(step=-1)} {log(writer.rng, HUGE_TOKENS)}"
        for _step in range(2):
            writer.step(prose(writer.rng, 350))
        writer.turn(asked)


def many_tools(writer: Scenario, window: int) -> None:
    """40 tools whose definitions take half of the input limit."""
    for _turn in range(25):
        writer.step(prose(writer.rng, writer.rng.randint(200, 700)))
        writer.turn()
    tokens = input_limit(window) // 2 // 40
    writer.tools = large_tools(writer.results, count=40, tokens=tokens, rng=writer.rng)


def one_turn(writer: Scenario, _: int) -> None:
    """One turn of 120 steps, some of which write long notes."""
    for step in range(120):
        note_tokens = 150 if step % 4 == 0 else 0
        writer.step(
            prose(writer.rng, writer.rng.randint(200, 600)),
            fact=step % 4 == 1,
            note_tokens=note_tokens,
        )
    writer.turn()


def clock(writer: Scenario, window: int) -> None:
    """Turns of four calls that fill the window several times."""
    size = input_limit(window) // 12
    for _turn in range(9):
        for _step in range(3):
            writer.step(prose(writer.rng, size))
        writer.turn()


SCENARIOS: dict[str, Callable[[Scenario, int], None]] = {
    "long_run": long_run,
    "parallel": parallel,
    "huge_results": huge_results,
    "media": media,
    "chinese": in_chinese,
    "json_rows": json_rows,
    "long_message": long_message,
    "many_tools": many_tools,
    "one_turn": one_turn,
    "clock": clock,
}


def scenario(name: str, window: int) -> Scenario:
    made = Scenario(random.Random(name))  # noqa: S311  # reproducible, not secret
    SCENARIOS[name](made, window)
    made.tools = made.tools or plain_tools(made.results)
    return made


# ---- what tools and users say: made-up texts of a wanted length, reproducible from a seed ---------------------------

Sentence = Callable[[random.Random], str]


def fit(rng: random.Random, sentence: Sentence, tokens: int, joint: str = " ") -> str:
    """Sentences until `tokens` is reached."""
    found, size = [], 0
    while size < tokens:
        found.append(sentence(rng))
        size += exact.text_tokens(found[-1])
    return joint.join(found)


def prose(rng: random.Random, tokens: int) -> str:
    return fit(rng, _english, tokens)


def chinese(rng: random.Random, tokens: int) -> str:
    return fit(rng, lambda r: r.choice(CHINESE), tokens, "")


def rows(rng: random.Random, tokens: int) -> str:
    """A JSON document of rows with long ids and numbers."""
    return '{"rows": [' + fit(rng, _row, tokens, ", ") + "]}"


def log(rng: random.Random, tokens: int) -> str:
    return fit(rng, _log_line, tokens, "\n")


def png(rng: random.Random, width: int, height: int) -> str:
    """Base64 of the head of an image of this size, and of noise, so that its data is long."""
    head = struct.pack(">8sI4sII", b"\x89PNG\r\n\x1a\n", 13, b"IHDR", width, height)
    return base64.b64encode(head + rng.randbytes(width * height // 24)).decode()


def pdf(rng: random.Random, pages: int, page_bytes: int = 45_000) -> str:
    """Base64 of a document with `pages` page objects."""
    body = b"".join(
        b"1 0 obj <</Type /Page\n>> endobj\n" + rng.randbytes(page_bytes)
        for _ in range(pages)
    )
    return base64.b64encode(b"%PDF-1.7\n" + body.replace(b"%PDF", b"")).decode()


def _english(rng: random.Random) -> str:
    number = f" (case {rng.randint(100, 99_999)})" if rng.random() < 0.3 else ""
    return f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(OBJECTS)} {rng.choice(ENDINGS)}{number}."


def _row(rng: random.Random) -> str:
    row = {
        "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)), "name": rng.choice(OBJECTS),
        "amount": round(rng.random() * 9_999, 4), "paid": rng.random() < 0.5, "owner": rng.choice(SUBJECTS),
        "created_at": f"2025-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T08:{rng.randint(10, 59)}:00Z",
    }  # fmt: skip
    return json.dumps(row)


def _log_line(rng: random.Random) -> str:
    when = f"2025-03-1{rng.randint(0, 9)} 08:{rng.randint(10, 59)}:{rng.randint(10, 59)},{rng.randint(100, 999)}"
    return f"{when} INFO [worker-{rng.randint(1, 9)}] {_english(rng)} ({rng.randint(1, 900)} ms)"
