"""Does an engine follow settings that change, and does each request keep those that it started with?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.reload import ConfigFile

LIMITS = ModelLimits(context_window=1_000, max_output_tokens=100)


@pytest.fixture
def path(tmp_path):
    """A valid settings file."""
    path = tmp_path / "settings.toml"
    path.write_text("keep = 0.4\n")
    return path


def test_an_engine_follows_the_file_from_one_request_to_the_next(path):
    """A request that was measured keeps the settings that it started with."""
    settings = ConfigFile(path)
    engine = ContextEngine(LIMITS, config=settings)
    before = engine.measure([HumanMessage("hello")])
    path.write_text('constraints = ["Be brief."]\noutput_reserve = 200\n')
    settings.reload()
    after = engine.measure([HumanMessage("hello")])
    assert ["Be brief." in str(engine.build(window)) for window in (before, after)] == [False, True]
    assert [window.budget.input_limit for window in (before, after)] == [900, 800]
    again = engine.learn(before, ContextOverflow(limit=850, actual=860, kind="input"), is_stated=False)
    assert "Be brief." not in str(engine.build(again))


def test_the_plan_goes_by_the_settings_of_its_request(path):
    """Whatever the file says when the plan is made."""
    path.write_text("max_history_tokens = 20\n")
    settings = ConfigFile(path)
    engine = ContextEngine(LIMITS, config=settings)
    history = [HumanMessage(f"question {n} " * 5, id=f"m{n}") for n in range(8)]
    bounded = engine.measure(history)
    path.write_text("keep = 0.4\n")
    settings.reload()
    assert [engine.relieve(window) is None for window in (bounded, engine.measure(history))] == [False, True]


def test_settings_that_leave_the_model_no_input_are_passed_over(path):
    """They are valid by themselves, but not for this engine: it keeps those before and says so once."""
    settings = ConfigFile(path)
    engine = ContextEngine(LIMITS, config=settings)
    path.write_text("keep = 0.3\noutput_reserve = 5000\n")
    settings.reload()
    with capture_logs() as logs:
        limits = [engine.measure([HumanMessage("hello")]).budget.input_limit for _ in range(2)]
    assert (limits, engine.config.keep, [log["event"] for log in logs]) == ([900, 900], 0.4, ["config.refused"])


def test_nodes_build_a_request_anew_when_the_settings_changed(path):
    """What `build_messages` built by the settings before is not sent with the sizes of those now."""
    settings = ConfigFile(path)
    nodes = ContextNodes(ContextEngine(LIMITS, config=settings))
    state = {"messages": [HumanMessage("hello", id="m1")]}
    state |= nodes.build_messages.invoke(state)
    sent = []
    model = nodes.model_node(lambda messages: sent.append(messages) or AIMessage("hi"))
    model.invoke(state)
    path.write_text('constraints = ["Be brief."]\n')
    settings.reload()
    model.invoke(state)
    assert ["Be brief." in str(messages) for messages in sent] == [False, True]


def test_a_class_is_no_live_configuration():
    """An object is wanted, and the error says which."""
    with pytest.raises(ConfigError, match="pass a ContextConfig"):
        ContextEngine(LIMITS, config=ConfigFile)
