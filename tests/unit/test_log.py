"""Where do events go? To the standard library's logger, unless an application has structlog for them."""

import json
import logging
import subprocess
import sys

import pytest
import structlog
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ContextConfig, ContextEngine, ContextNodes, ModelLimits
from langchain_ctxwin.util import log


def compact():
    """Run a step that logs a compaction."""
    nodes = ContextNodes(ContextEngine(ModelLimits(context_window=600), config=ContextConfig(output_reserve=0)))
    talk = [m for n in range(9) for m in (HumanMessage(f"Tell {n} {'word ' * 60}"), AIMessage("So."))]
    nodes.force_compress.invoke({"messages": [*talk, HumanMessage("And?")]})


def test_events_are_records_of_the_standard_library(caplog):
    """The message says all, `ctxwin` holds it as a dict, and the caller's line is the place."""
    with caplog.at_level(logging.INFO, "langchain_ctxwin"):
        compact()
        log.info("other.event", share="100 %")
    record, other = (r for r in caplog.records if r.ctxwin["event"] in {"context.compacted", "other.event"})
    assert record.name == "langchain_ctxwin"
    assert record.getMessage().startswith("context.compacted ")
    assert f"tokens_after={record.ctxwin['tokens_after']}" in record.getMessage()
    assert (other.getMessage(), other.filename) == ("other.event share='100 %'", "test_log.py")


def test_a_failure_of_the_application_brings_its_traceback(caplog):
    """As `logging.exception` does."""
    try:
        {}["theirs"]
    except KeyError:
        log.exception("config.callback_failed", path="a.toml")
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "config.callback_failed path='a.toml'")
    assert "KeyError: 'theirs'" in caplog.text


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
def test_what_nobody_wants_to_hear_is_not_written(caplog, level):
    """A level of the standard library holds."""
    with caplog.at_level(level, "langchain_ctxwin"):
        compact()
    assert not caplog.records


@pytest.mark.parametrize("answer", [structlog.DropEvent, BrokenPipeError])
def test_a_structlog_that_is_configured_gets_them(caplog, answer):
    """With the processors of the application; one that fails costs no turn, and the standard library is told."""
    seen = []

    def process(_, level, event):
        seen.append((event["event"], level))
        raise answer

    structlog.configure(processors=[process])
    try:
        with caplog.at_level(logging.INFO, "langchain_ctxwin"):
            compact()
    finally:
        structlog.reset_defaults()
    assert ("context.compacted", "info") in seen
    told = [record.ctxwin["event"] for record in caplog.records]
    assert told == ([event for event, _ in seen] if answer is BrokenPipeError else [])


PROGRAM = """
import json
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin import ToolResultConfig
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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == "the answer"
    assert done.stderr == "something.to_act_on\n"
