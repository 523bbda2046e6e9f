"""Does an engine follow settings that change, and does each request keep those that it started with?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.reload import ConfigFile
from support.fakes import core_overflow

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


def test_two_conversations_with_equal_ids_do_not_share_settings(path):
    """Both were built before the change, one again after it: neither is sent as it was."""
    settings = ConfigFile(path)
    nodes = ContextNodes(ContextEngine(LIMITS, config=settings))
    states = [{"messages": [HumanMessage(text, id="m1")]} for text in ("hello", "goodbye")]
    for state in states:
        state.update(nodes.build_messages.invoke(state))
    path.write_text('constraints = ["Be brief."]\n')
    settings.reload()
    nodes.build_messages.invoke(states[1])
    requests = [nodes.model_input(state) for state in states]
    assert ["Be brief." in str(request) for request in requests] == [True, True]


def test_a_recovery_keeps_the_settings_that_its_request_began_with(path):
    """The file changes while the model is asked; the next request goes by it."""
    settings = ConfigFile(path)
    nodes = ContextNodes(ContextEngine(LIMITS, config=settings))
    sent = []

    def answer(messages):
        sent.append(messages)
        if len(sent) > 1:
            return AIMessage("hi")
        path.write_text('constraints = ["Be brief."]\noutput_reserve = 300\n')
        settings.reload()
        raise core_overflow(1_200, 1_000)

    history = [HumanMessage(f"question {n} " * 15, id=f"m{n}") for n in range(12)]
    state = {"messages": history}
    update = nodes.model_node(answer).invoke(state)
    nodes.model_node(answer).invoke(state | update | {"messages": [*history, HumanMessage("next", id="n")]})
    assert ["Be brief." in str(messages) for messages in sent] == [False, False, True]
    assert update["context_report"]["input_limit"] == 900


def test_a_class_is_no_live_configuration():
    """An object is wanted, and the error says which."""
    with pytest.raises(ConfigError, match="pass a ContextConfig"):
        ContextEngine(LIMITS, config=ConfigFile)
