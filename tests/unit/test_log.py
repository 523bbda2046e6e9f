"""Where do events go? To the standard library's logger, unless an application has structlog for them."""

import errno
import json
import logging
import subprocess
import sys
from contextlib import suppress

import pytest
import structlog
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ContextWindowError,
    ModelLimits,
    ToolResultConfig,
    ToolResultGuard,
)
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.summarize.jobs import SummaryJobs, SummaryStore
from langchain_ctxwin.summarize.model import Written
from langchain_ctxwin.util.log import log, reason_of
from support.agents import agent_on, ask, model_of

SECRET = "INV-4711 of Ms. Heron"  # noqa: S105  # what somebody said
PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def _plain_structlog():
    """Events go to the standard library, whatever a command that another test ran in this process has configured."""
    structlog.reset_defaults()


def compact():
    """Run a step that logs a compaction."""
    nodes = ContextNodes(
        ContextEngine(
            ModelLimits(context_window=600), config=ContextConfig(output_reserve=0)
        )
    )
    talk = [
        m
        for n in range(9)
        for m in (HumanMessage(f"Tell {n} {'word ' * 60}"), AIMessage("So."))
    ]
    nodes.force_compress.invoke({"messages": [*talk, HumanMessage("And?")]})


def events(caplog):
    """Names of what was logged: structlog's line has the time and the level before it."""
    return [record.getMessage().split()[4] for record in caplog.records]


def test_events_are_records_of_the_standard_library(caplog):
    """Of the package's own logger, with what belongs to the event."""
    with caplog.at_level(logging.INFO, "langchain_ctxwin"):
        compact()
    (record,) = (r for r in caplog.records if "context.compacted" in r.getMessage())
    assert (record.name, record.levelname) == ("langchain_ctxwin", "INFO")
    assert "tokens_after=" in record.getMessage()


def fails(*_, **__):
    """What any collaborator may raise: the text quotes what it was given."""
    raise ValueError(f"cannot read {SECRET}\n{SECRET}")


class FailingStore(InMemoryStore):
    batch = abatch = fails


class FailingSink:
    emit = fails


class FailingResults:
    put = get = delete = fails


@tool
def rows() -> str:
    """List all rows there are."""
    return json.dumps([{"id": n, "text": "word " * 30} for n in range(500)])


EXPECTED = {
    "context.summary_refused", "context.summary_failed", "summaries.not_stored",
    "summaries.not_read", "tool_result.not_stored",
    "decompose.part_failed",
}  # fmt: skip
# of a failure that lasts only the class is ever written
LASTING = {"metrics.sink_failed"}


def all_fail():
    """Let everything that is given to this package fail, in a run that goes on."""
    for summarize in ("inline", "background"):
        config = ContextConfig(
            output_reserve=0, summarize=summarize, trigger=0.5, prepare=0.3, keep=0.2
        )
        jobs = SummaryJobs()
        options = {
            "config": config,
            "summarizer": fails,
            "sinks": [FailingSink()],
            "jobs": jobs,
        }
        agent = agent_on("nodes", model_of(900), **options)
        for _ in range(8):
            ask(agent, "word " * 60)
            assert jobs.drain(PATIENCE_SECONDS) == 0
    store = SummaryStore(FailingStore(), "thread")
    store.put("key", Written(text="x"))
    store.get("key")
    ToolResultGuard(ToolResultConfig(max_tokens=100), store=FailingResults()).wrap(
        [rows]
    )[0].invoke({})
    graph = create_map_reduce_graph(
        RunnableLambda(fails), limits=ModelLimits(1_600, requested_output_tokens=400)
    )
    with suppress(ContextWindowError):
        graph.invoke({"question": "What is said?", "documents": ["word " * 3_000]})


def test_no_text_of_an_error_is_written_at_level_warning_and_above(caplog):
    """Errors quote what they were given; the class tells one from another."""
    with caplog.at_level(logging.DEBUG, "langchain_ctxwin"):
        all_fail()
    assert {*events(caplog)} >= EXPECTED | LASTING
    assert SECRET not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


def test_a_structlog_that_is_configured_gets_them(caplog):
    """With the processors of the application."""
    seen = []

    def process(_, level, event):
        seen.append((event["event"], level))
        raise structlog.DropEvent

    structlog.configure(processors=[process])
    try:
        with caplog.at_level(logging.INFO, "langchain_ctxwin"):
            compact()
    finally:
        structlog.reset_defaults()
    assert ("context.compacted", "info") in seen
    assert caplog.records == []


PROGRAM = """
import json
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin import ToolResultConfig
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_ctxwin.util.log import log

@tool
def rows() -> str:
    "List."
    return json.dumps([{"id": n, "text": "word " * 30} for n in range(500)])

guarded, _ = ToolResultGuard(ToolResultConfig(max_tokens=500)).wrap([rows])
guarded.invoke({})
log.warning("something.to_act_on")
print(json.dumps("the answer"))
"""


def test_warnings_alone_are_written_to_stderr_by_default():
    """Nobody has to configure anything to hear them, and standard output may be the channel of a protocol."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == "the answer"
    assert done.stderr.split()[2:] == ["[warning", "]", "something.to_act_on"]


def test_an_error_of_the_system_is_told_by_its_class_alone(caplog):
    """Its text may be anybody's."""
    with caplog.at_level(logging.DEBUG, "langchain_ctxwin"):
        error = ConnectionRefusedError(errno.ECONNREFUSED, f"cannot send {SECRET}")
        log.warning("store.failed", error=reason_of(error))
    assert SECRET not in caplog.text
    assert "ConnectionRefusedError" in caplog.text
