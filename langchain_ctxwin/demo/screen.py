"""What does a person see while the agent works? A gauge per step, a line per compaction, a table at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.demo.checks import Verdict
from langchain_ctxwin.demo.gauge import bar, footer, legend
from langchain_ctxwin.demo.ledger import Ledger
from langchain_ctxwin.demo.narration import (
    BAD,
    REASON,
    Part,
    conclusion,
    explain,
    figures,
    intent,
    judgement,
    safe,
    spoken,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

PLAIN_WIDTH = 110
"""Characters of a line that is not written to a terminal."""

INDENT = " " * 5
"""What belongs to a step stands under its gauge."""

GAUGE_CHARS = 40
"""Longest gauge: a cell is then about 200 tokens of a small window. On a narrow terminal it takes a third of a line."""


@dataclass(slots=True, kw_only=True)
class Screen:
    """Prints the conversation as it happens; plain lines where the output is no terminal."""

    console: Console
    report: Mapping[str, Any] | None = None
    """The last measure of the next request."""

    live: Live | None = None

    @classmethod
    def standard(cls) -> Screen:
        """Write to the standard output.

        Raises:
            ImportError: rich is not installed.
        """
        from rich.console import Console  # noqa: PLC0415  # extra `cli`

        console = Console(highlight=False, emoji=False)
        if not console.is_terminal:
            console = Console(highlight=False, emoji=False, width=PLAIN_WIDTH)
        return cls(console=console)

    @contextmanager
    def opened(self, *lines: str) -> Iterator[None]:
        """Print the opening lines and keep the current gauge at the bottom of a terminal."""
        from rich.live import Live  # noqa: PLC0415  # extra `cli`

        for line in lines:
            self._print((line, ""))
        self._print(*legend(is_plain=self.is_plain))
        if self.is_plain:
            yield
            return
        with Live("", console=self.console, transient=True) as self.live:
            yield
        self.live = None

    @property
    def is_plain(self) -> bool:
        """True when the output is a file or a pipe."""
        return not self.console.is_terminal

    def asked(self, number: int, question: str) -> None:
        """Begin a turn."""
        self._print()
        self._print((f"Turn {number}", "bold"), (f"  {question}", ""))

    def measured(self, report: Mapping[str, Any] | None) -> None:
        """Keep the measure of the next request."""
        self.report = report or self.report

    def stepped(self, ledger: Ledger, message: AIMessage) -> None:
        """Print one model call: the request's regions, its true size, and what the model does next."""
        if self.report is None:
            return
        number = f"{ledger.steps:>4} "
        used = f" {ledger.last_tokens / ledger.input_limit:4.0%} {ledger.last_tokens:>6,}  "
        width = min(GAUGE_CHARS, self.console.width // 3)
        room = self.console.width - width - len(number) - len(used)
        gauge = bar(self.report, width, is_plain=self.is_plain)
        self._print((number, REASON), *gauge, (used, "bold"), (safe(intent(message), room), ""))
        if self.live:
            self.live.update(_text(footer(self.report)))

    def happened(self, event: Mapping[str, Any]) -> None:
        """Explain one event of the package in one line."""
        self._print((INDENT, ""), *explain(event))

    def answered(self, answer: str, verdict: Verdict, *, is_strict: bool) -> None:
        """Print the answer and whether the file system agrees."""
        self._print((f"{INDENT}=> {spoken(answer)}", "bold"))
        self._print((f"{INDENT}   ", ""), *judgement(verdict, is_strict=is_strict))

    def finished(self, ledger: Ledger) -> None:
        """Print the final table and what failed."""
        self._print()
        self.console.print(_table(figures(ledger)))
        for failure in ledger.failures:
            self._print((f"FAILED: {failure}", BAD))
        if not ledger.failures:
            self._print((conclusion(ledger), "bold green"))

    def _print(self, *parts: Part) -> None:
        self.console.print(_text(parts), soft_wrap=True)


def _text(parts: Iterable[Part]) -> Text:
    from rich.text import Text  # noqa: PLC0415  # extra `cli`

    return Text.assemble(*((safe(text), style) for text, style in parts), no_wrap=True, overflow="ellipsis")


def _table(rows: list[tuple[str, str]]) -> Table:
    from rich.table import Table  # noqa: PLC0415  # extra `cli`

    table = Table(title="The conversation in figures", show_header=False, title_justify="left", title_style="bold")
    table.add_column(style="cyan")
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    return table
