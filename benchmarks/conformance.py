"""What each context middleware fails of the conformance suite: ours, LangChain's, deepagents' and langmem's.

Peers that are not installed are left out: `pip install deepagents langmem`.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import tempfile
import warnings
from collections import Counter
from typing import Any

import pytest

from langchain_ctxwin import ModelLimits, create_context_agent
from langchain_ctxwin.conformance import SYSTEM_PROMPT, ContextMiddlewareTests
from langchain_ctxwin.middleware import ContextWindowMiddleware

TRIGGER_SHARE, KEEP_SHARE = 0.8, 0.3  # of the room; SummarizationMiddleware's documented example
SUMMARY_TOKENS = 256


def limits_of(model) -> ModelLimits:
    return ModelLimits(context_window=model.window, max_output_tokens=model.max_tokens)


def room_of(model) -> int:
    """What system prompt, tools and answer leave: most peers do not count them themselves."""
    return model.input_limit - len(SYSTEM_PROMPT) // 4 - 300


class OurMiddleware(ContextMiddlewareTests):
    def middleware(self, model, summarizer):
        return ContextWindowMiddleware(limits=limits_of(model), summarizer=summarizer)


class OurNodes(ContextMiddlewareTests):
    def agent(self, model, tools, summarizer, saver):
        options = {"limits": limits_of(model), "summarizer": summarizer, "checkpointer": saver}
        return create_context_agent(model, tools, system_prompt=SYSTEM_PROMPT, **options)


class Summarization(ContextMiddlewareTests):
    def middleware(self, model, summarizer):
        from langchain.agents.middleware import SummarizationMiddleware

        room = room_of(model)
        trigger, keep = ("tokens", int(TRIGGER_SHARE * room)), ("tokens", int(KEEP_SHARE * room))
        return SummarizationMiddleware(summarizer, trigger=trigger, keep=keep, trim_tokens_to_summarize=None)


class ContextEditing(ContextMiddlewareTests):
    def middleware(self, model, summarizer):  # noqa: ARG002  # it writes no summaries
        from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware

        return ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=int(TRIGGER_SHARE * room_of(model)))])


class DeepAgents(ContextMiddlewareTests):
    def middleware(self, model, summarizer):
        from deepagents.backends import FilesystemBackend
        from deepagents.middleware.summarization import SummarizationMiddleware

        room = room_of(model)
        trigger, keep = ("tokens", int(TRIGGER_SHARE * room)), ("tokens", int(KEEP_SHARE * room))
        backend = FilesystemBackend(root_dir=tempfile.mkdtemp(), virtual_mode=True)
        return SummarizationMiddleware(summarizer, backend=backend, trigger=trigger, keep=keep)


class LangMem(ContextMiddlewareTests):
    def agent(self, model, tools, summarizer, saver):
        from langchain_core.messages.utils import count_tokens_approximately
        from langgraph.prebuilt import create_react_agent
        from langgraph.prebuilt.chat_agent_executor import AgentState
        from langmem.short_term import SummarizationNode

        class State(AgentState):
            context: dict[str, Any]

        room = room_of(model)
        node = SummarizationNode(
            model=summarizer,
            max_tokens=int(TRIGGER_SHARE * room),
            max_summary_tokens=SUMMARY_TOKENS,
            token_counter=count_tokens_approximately,
            input_messages_key="messages",
            output_messages_key="llm_input_messages",
        )
        return create_react_agent(
            model, tools, prompt=SYSTEM_PROMPT, pre_model_hook=node, state_schema=State, checkpointer=saver
        )


PEERS = {
    "ours, middleware": (OurMiddleware, ""),
    "ours, nodes": (OurNodes, ""),
    "`SummarizationMiddleware`": (Summarization, ""),
    "`ContextEditingMiddleware`": (ContextEditing, ""),
    "deepagents": (DeepAgents, "deepagents"),
    "langmem": (LangMem, "langmem"),
}


class Results:
    """A pytest plugin that counts, by test, how many of its cases passed."""

    def __init__(self) -> None:
        self.passed, self.all, self.why = Counter(), Counter(), {}

    def pytest_runtest_logreport(self, report) -> None:
        if report.when != "call":
            return
        name = report.nodeid.rpartition("::")[2].partition("[")[0]
        self.all[name] += 1
        self.passed[name] += report.passed
        if report.failed:
            lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E  ")]
            self.why.setdefault(name, " ".join(lines[0].split()) if lines else "")


def results_of(suite: type) -> Results:
    """Run the suite as pytest would."""
    found = Results()
    options = ["-p", "no:cacheprovider", "-p", "no:terminal", "-W", "ignore", "-c", os.devnull]
    pytest.main(
        [*options, f"{__file__}::{suite.__name__}", "-o", "python_classes=*", "-o", "python_files=*.py"], [found]
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="peers whose name holds this")
    parser.add_argument("--why", action="store_true", help="say why each test fails first")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = {}
    for name, (suite, package) in PEERS.items():
        if arguments.only in name and not (package and importlib.util.find_spec(package) is None):
            found[name] = results_of(suite)
    tests = [name for name in vars(ContextMiddlewareTests) if name.startswith("test_")]
    print("| what has to hold | " + " | ".join(found) + " |")
    print("|" + "---|" * (1 + len(found)))
    for test in tests:
        cells = [f"{one.passed[test]} of {one.all[test]}" for one in found.values()]
        print(f"| {test.removeprefix('test_').replace('_', ' ')} | " + " | ".join(cells) + " |")
    totals = [f"{sum(one.passed.values())} of {sum(one.all.values())}" for one in found.values()]
    print("| all | " + " | ".join(totals) + " |")
    for name, one in found.items() if arguments.why else ():
        print(f"\n{name}:", *(f"{test}: {why[:200]}" for test, why in one.why.items()), sep="\n  ")


if __name__ == "__main__":
    main()
