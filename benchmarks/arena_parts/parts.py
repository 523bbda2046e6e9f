"""What is every manager given? The same model, summarizer, tools and prompt, and the room that they leave."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from arena_parts.provider import FakeProvider
from arena_parts.sizes import parts_of, total_tokens
from arena_parts.summarizer import FakeSummarizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    provider: FakeProvider
    summarizer: FakeSummarizer
    tools: list[BaseTool]
    system_prompt: str
    folder: str
    """Where a manager may write files; it is removed after the scenario."""

    @property
    def room_tokens(self) -> int:
        """Tokens left for messages, exactly: a careful user sets them for a peer that does not know them itself."""
        tools = [convert_to_openai_tool(tool) for tool in self.tools]
        fixed = total_tokens(parts_of([SystemMessage(self.system_prompt)], tools))
        return self.provider.window - self.provider.max_tokens - fixed
