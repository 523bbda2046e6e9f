"""What did the large results cost: what the tools returned, what of it was shown, and how much is kept?"""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.messages import ToolMessage

from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.demo import ruler
from langchain_ctxwin.demo.reader_model import READ_MORE
from langchain_ctxwin.tool_results.guard import MIN_TOKENS


@dataclass(slots=True, kw_only=True)
class Tally:
    """The figures of the large results of one conversation. All sizes are tokens unless they say otherwise."""

    raw_tokens: int
    """The payload as the tool returns it."""

    window_tokens: int
    largest_allowed: int
    """What one result may take at most, by the settings and the window."""

    shown_tokens: int = 0
    """What of all results was shown, all pages together."""

    largest_shown: int = 0
    results: int = 0
    """Results that were too large."""

    pages: int = 0
    """Pages that were read on."""

    errors: int = 0
    """Cursors that were refused."""

    store_bytes: int = 0
    """Most that was kept at once."""

    @classmethod
    def start(cls, text: str, config: ToolResultConfig, *, window_tokens: int, input_limit: int) -> Tally:
        """Begin with the payload and what the settings allow."""
        share = max(MIN_TOKENS, int(config.max_share * input_limit))
        return cls(
            raw_tokens=ruler.text_tokens(text),
            window_tokens=window_tokens,
            largest_allowed=min(config.max_tokens, share),
        )

    def add(self, message: ToolMessage) -> None:
        """Note a result as the agent got it."""
        tokens = ruler.text_tokens(message.text)
        is_error = message.status == "error"
        self.shown_tokens += tokens
        self.largest_shown = max(self.largest_shown, tokens)
        self.errors += is_error
        self.pages += message.name == READ_MORE and not is_error
        self.results += message.name != READ_MORE

    @property
    def failures(self) -> list[str]:
        """Checks that did not hold, one line each."""
        if self.largest_shown <= self.largest_allowed:
            return []
        return [f"a page of {self.largest_shown:,} tokens is over the {self.largest_allowed:,} that it may take"]

    @property
    def figures(self) -> list[tuple[str, str]]:
        """The figures by name."""
        share = f"{self.shown_tokens / self.raw_tokens:.1%} of one payload" if self.raw_tokens else "none"
        return [
            ("the payload", f"{self.raw_tokens:,} tokens, {self.raw_tokens / self.window_tokens:.0f} times the window"),
            ("results that were too large", str(self.results)),
            ("pages read on, cursors refused", f"{self.pages}, {self.errors}"),
            ("largest result shown, allowed", f"{self.largest_shown:,} of {self.largest_allowed:,} tokens"),
            ("shown of all results together", f"{self.shown_tokens:,} tokens ({share})"),
            ("kept in the store, at most", f"{self.store_bytes / 1000:,.0f} kB, compressed"),
        ]
