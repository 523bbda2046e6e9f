"""The scenario: an agent answers questions about a folder, in a conversation much larger than its window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_ctxwin.agent.nodes import ContextNodes, add_context_nodes
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.demo import ruler
from langchain_ctxwin.demo.checks import verify
from langchain_ctxwin.demo.conversation import Conversation
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.ledger import Ledger, Recorder
from langchain_ctxwin.demo.note_taker import NoteTaker
from langchain_ctxwin.demo.offline_model import OfflineChatModel
from langchain_ctxwin.demo.questions import Interview, Question
from langchain_ctxwin.demo.screen import Screen
from langchain_ctxwin.demo.tools import FolderTools
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.graph.state import ContextInput, ContextOutput, ContextState
from langchain_ctxwin.models.registry import ModelRegistry
from langchain_ctxwin.models.sources import ExplicitSource
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel

SYSTEM_PROMPT = (
    "You explore a folder of files with tools. Paths are relative to the folder. Look before you answer, answer in one "
    "or two sentences, and say only what the tools returned. When a result is too long to be seen whole, read the part "
    "that you need."
)

SMALL, LARGE = "offline-small", "offline-large"
MADE_UP_PRICES = ("1", "10")
"""USD per million tokens of the two offline models: they cost nothing, but a router weighs prices."""

OUTPUT_SHARE = 8
"""The window divided by this is reserved for the answer: answers here are short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything one conversation needs."""

    folder: Folder
    interview: Interview
    conversation: Conversation

    @property
    def ledger(self) -> Ledger:
        """What was sent, and what came of it."""
        return self.conversation.ledger

    @classmethod
    def set_up(
        cls,
        folder: Folder,
        *,
        window_tokens: int,
        larger_tokens: int | None = None,
        seed: int = 0,
        model: BaseChatModel | None = None,
    ) -> Scene:
        """Build the agent; without a model the offline one explores.

        Args:
            folder: what is explored.
            window_tokens: window of the model.
            larger_tokens: window of a second, dearer offline model, to which requests go that the first cannot take.
            seed: another number asks other questions.
            model: a real chat model.

        Raises:
            ConfigError: the window leaves no room for input, or there are two windows for a real model.
        """
        limits = _limits(max(window_tokens, larger_tokens or 0))
        reserve = limits.output_reserve()
        chat = model or offline_model(window_tokens)
        if larger_tokens is not None:
            chat = two_models(window_tokens, larger_tokens, real=model)
        tools = FolderTools(folder).tools()
        definitions = [convert_to_openai_tool(tool) for tool in tools]
        ledger = Ledger(
            input_limit=limits.input_limit(reserve),
            fixed_tokens=ruler.text_tokens(SYSTEM_PROMPT) + ruler.FRAME_TOKENS + ruler.tools_tokens(definitions),
            has_strict_checks=model is None,
        )
        return cls(
            folder=folder,
            interview=Interview(folder, window_tokens=window_tokens, seed=seed),
            conversation=Conversation(
                graph=build_agent(chat, tools, limits, summarizer=model or NoteTaker()),
                ledger=ledger,
                recorder=Recorder(ledger, definitions),
            ),
        )

    def play(self, screen: Screen, *, steps: int) -> Ledger:
        """Ask until the model was called about `steps` times; a turn that began is finished.

        Raises:
            BudgetExceededError: the window is too small for what every request holds.
        """
        for question in self._questions(steps):
            check = partial(verify, question=question, folder=self.folder, rule_word=self.interview.rule_word)
            self.conversation.turn(question, screen, check)
        return self.ledger

    def _questions(self, steps: int) -> Iterator[Question]:
        yield self.interview.opening()
        for question in self.interview.questions():
            if self.ledger.steps >= steps:
                break
            yield question
        yield self.interview.closing()


def offline_model(window_tokens: int, name: str = "offline-explorer") -> OfflineChatModel:
    """Return the offline model with a window."""
    reserve = _limits(window_tokens).output_reserve()
    return OfflineChatModel(model=name, context_window=window_tokens, max_tokens=max(1, reserve))


def two_models(window_tokens: int, larger_tokens: int, *, real: BaseChatModel | None = None) -> RoutedChatModel:
    """Return a model that asks the offline model with the small window while that can take the requests.

    Raises:
        ConfigError: the second window is not larger, or a real model was given, too.
    """
    if real is not None:
        raise ConfigError("a second window is for the offline model: leave out --model or --larger-window")
    if larger_tokens <= window_tokens:
        raise ConfigError(f"--larger-window {larger_tokens:,} is not above --window {window_tokens:,}: raise it")
    models = {name: offline_model(tokens, name) for name, tokens in ((SMALL, window_tokens), (LARGE, larger_tokens))}
    facts = {
        name: {"context_window": chat.context_window, "input_price": price, "output_price": price}
        for (name, chat), price in zip(models.items(), MADE_UP_PRICES, strict=True)
    }
    return RoutedChatModel(ModelRouter(list(models.values()), ModelRegistry([ExplicitSource(facts)])))


def _limits(window_tokens: int) -> ModelLimits:
    return ModelLimits(window_tokens, max_output_tokens=max(1, window_tokens // OUTPUT_SHARE))


def build_agent(
    model: BaseChatModel, tools: Sequence[BaseTool], limits: ModelLimits, *, summarizer: Any = None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Wire the node set into a graph, as anybody would."""
    router = model.router if isinstance(model, RoutedChatModel) else None
    engine = ContextEngine(limits=model if router else limits, summarizer=summarizer)
    nodes = ContextNodes(engine, system_prompt=SYSTEM_PROMPT, tools=tools, router=router)
    builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    add_context_nodes(builder, nodes, model=model.bind_tools(tools))
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "budget_check")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "maybe_summarize"})
    builder.add_edge("tools", "budget_check")
    return builder.compile(checkpointer=InMemorySaver())
