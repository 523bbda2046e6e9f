"""Which scenarios are played? Each is a function of the window, so that it presses on a small and on a large one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from arena_parts import texts
from arena_parts.script import Scenario, Writer, large_tools

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
            writer.step(kind(writer.rng, writer.rng.randint(150, 700)), fact=(turn + number) % 4 == 0)
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
            writer.step(writer.planted(writer.planted(huge, at=0.005), at=0.995), fact=False)
        writer.turn()
    return writer.done()


def media(writer: Writer, window: int) -> Scenario:
    """Images from users and tools, PDFs from users."""
    rng, pages = writer.rng, 3 if window > 16_384 else 1
    for turn in range(15):
        blocks = [{"type": "text", "text": f"{texts.prose(rng, 40)} {writer.fact(step=-1)}"}]
        if turn % 3 == 1:
            blocks.append({"type": "file", "base64": texts.pdf(rng, pages), "mime_type": "application/pdf"})
        elif turn % 3 == 2:
            blocks.append({"type": "image", "base64": texts.png(rng, 1024, 768), "mime_type": "image/png"})
        picture = {"type": "image", "base64": texts.png(rng, 800, 600), "mime_type": "image/png"}
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
        writer.step(texts.prose(writer.rng, writer.rng.randint(200, 600)), fact=step % 4 == 1, note_tokens=note_tokens)
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
