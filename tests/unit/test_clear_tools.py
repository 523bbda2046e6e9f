"""What is told of a compaction, and which results are cleared before anything leaves?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
)
from langchain_ctxwin.core.provider_blocks import text_of
from support import agents
from support.agents import (
    WORD,
    agent_on,
    compacted,
    model_of,
)

LIMIT = 1_000


def engine_of(*, window=LIMIT, summarizer=None, sinks=(), **config):
    return agents.engine_of(window, None, summarizer, sinks=sinks, **config)


def ids(window):
    return [message.id for message in window.messages]


# --- tools whose results are cleared first


def parallel(number, **texts):
    """One call of each tool, in parallel, with their results."""
    calls = [{"name": name, "args": {}, "id": f"{name}{number}"} for name in texts]
    ids = {
        name: {
            "tool_call_id": f"{name}{number}",
            "id": f"{name}-{number}",
            "name": name,
        }
        for name in texts
    }
    results = [ToolMessage(text, **ids[name]) for name, text in texts.items()]
    return [AIMessage("", tool_calls=calls, id=f"a{number}"), *results]


PLAN, LOG = WORD * 300, WORD * 900
HISTORY = [HumanMessage("Compare them.", id="q"), *parallel(1, plan=PLAN, log=LOG)]


def fitted(history, window, **config):
    """The request after what has to leave left, by message id, and the state."""
    after, state = compacted(engine_of(window=window, **config), history)
    assert after.over_by == 0
    return {message.id: text_of(message.content) for message in after.messages}, state


def test_old_results_of_cleared_tools_go_first_and_those_of_others_stay():
    history = [
        HISTORY[0],
        *parallel(1, log=WORD * 500, plan=WORD * 100),
        *parallel(2, plan="short"),
    ]
    shown, _ = fitted(history, 600, clear_tools=("log",), keep=0.9)
    assert shown["log-1"].startswith("[Tool result cleared")
    assert shown["plan-1"] == WORD * 100


def test_a_tool_is_told_by_its_own_call_where_a_server_gives_all_calls_one_id():
    history = [HISTORY[0]]
    for number, name in enumerate(["plan", "log", "log"]):
        call = {"name": name, "args": {}, "id": "same"}
        result = ToolMessage(WORD * 200, tool_call_id="same", id=f"r{number}")
        history += [AIMessage("", tool_calls=[call], id=f"a{number}"), result]
    shown, _ = fitted(history, 600, clear_tools=("log",), keep=0.9)
    assert [shown["r0"], shown["r2"]] == [WORD * 200] * 2
    assert shown["r1"].startswith("[Tool result cleared")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"clear_tools": [""]}, "clear_tools.0='': String should match pattern"),
        ({"clear_tools": 3}, "clear_tools=3"),
    ],
)
def test_settings_that_cannot_hold_are_refused_with_what_to_do(config, told):
    with pytest.raises(ConfigError) as raised:
        agent_on("nodes", model_of(700), [], config=ContextConfig(**config))
    assert told in str(raised.value)
