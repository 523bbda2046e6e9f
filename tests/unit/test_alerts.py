"""Is an operator told once when something drifts, once when it is over, and never at the cost of a turn?"""

import pytest

from langchain_ctxwin import (
    ConfigError,
)
from langchain_ctxwin.observe import (
    AlertConfig,
    AlertEvent,
    Alerts,
    MemorySink,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)
from langchain_ctxwin.observe import alerts as module

SMALL = AlertConfig(utilization_steps=2, window=4, least=2, failed_summaries=2)
SECRET = "xyzzy"  # noqa: S105  # a word to look for


def step(fill=0.5, *, thread="1", missed=0.0):
    """Return a request that takes this share of its limit, and whose count misses by that."""
    reported = round(1_000 * fill)
    return StepEvent(
        thread=thread,
        model="m",
        input_limit=1_000,
        reported_tokens=reported,
        estimated_tokens=round(reported * (1 - missed)),
    )


def result(is_oversized):
    return ToolResultEvent(tool="read", is_oversized=is_oversized)


def routed(*fallbacks):
    """Return a request of a routed model, of which these candidates failed."""
    return StepEvent(
        thread="r", model="r", route={"model": "r", "fallbacks": fallbacks}
    )


def told(events, config=SMALL):
    """Return what is told of events."""
    sink = MemorySink()
    alerts = Alerts(config, then=sink.emit)
    for event in events:
        alerts.emit(event)
    return sink.of(AlertEvent)


def short(alerts):
    return [
        (one.alert, one.thread, one.model, one.value, one.threshold, one.is_cleared)
        for one in alerts
    ]


failed, ready = (
    SummaryEvent(status="failed", model="s"),
    SummaryEvent(status="ready", model="s"),
)
CASES = {
    "utilization": (
        [step(0.95), step(0.9), step(0.96), step(0.97), step(0.99), step(0.4)],
        [("1", "", 0.96, 0.9, False), ("1", "", 0.4, 0.9, True)],
    ),
    "accuracy": (
        [*(step(missed=share) for share in (0.1, 0.3, 0.3, 0, 0))],
        [("", "m", 0.8, 0.85, False), ("", "m", 0.85, 0.85, True)],
    ),
    "failed_summaries": (
        [failed, SummaryEvent(status="refused", model="s"), ready, failed],
        [("", "s", 2, 2, False), ("", "s", 1, 2, True)],
    ),
    "oversized_results": (
        [*[result(one) for one in (False, True, False, False, False, False)]],
        [("", "", 0.5, 0.05, False), ("", "", 0, 0.05, True)],
    ),
    "fallbacks": (
        [routed("a: down"), routed(), step()],
        [("", "", 0.5, 0.1, False)],
    ),
    "overflows": (
        [step(), OverflowEvent(model="m", attempt=1), OverflowEvent(model="m")],
        [("", "", 0.5, 0.05, False)],
    ),
}


@pytest.mark.parametrize("alert", CASES)
def test_each_measure_is_told_with_its_value_once_until_it_clears(alert):
    """And nothing of it is told where it is off."""
    events, expected = CASES[alert]
    found = [one for one in told(events) if one.alert == alert]
    assert short(found) == [(alert, *facts) for facts in expected]
    assert all(one.detail for one in found)
    off = SMALL.model_copy(update={alert: None})
    assert [one for one in told(events, off) if one.alert == alert] == []


def test_every_threshold_has_a_case():
    """A threshold without a test would be believed to work."""
    settings_alone = {"utilization_steps", "window", "least"}
    assert set(AlertConfig.model_fields) - settings_alone == set(CASES)
    assert set(module.RULES) == set(CASES)


def test_what_is_done_about_an_alert_may_raise():
    """It hears of all of them in order nevertheless."""
    taken = []

    def page(alert):
        taken.append(alert)
        raise RuntimeError

    alerts = Alerts(AlertConfig(utilization_steps=1), then=page)
    alerts.emit(step(0.95))
    alerts.emit(step(0.97, thread="2"))
    assert [one.thread for one in taken] == ["1", "2"]
    assert taken == list(alerts.active)


def test_a_threshold_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="utilization=90: Input should be less than"):
        AlertConfig(utilization=90)
