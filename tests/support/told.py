"""Events of every type, as agents tell them, for who reads them: histories, reports, metrics."""

from dataclasses import replace
from decimal import Decimal

from langchain_ctxwin.core.events import ModelChangeEvent
from langchain_ctxwin.observe import (
    AlertEvent,
    CacheMissEvent,
    CompactionEvent,
    NoticeEvent,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)

NOON = 1_893_499_200.0  # of the first day of 2030
ABOUT = {"thread": "a", "model": "small", "time": NOON}
OTHER = {"thread": "b", "model": "large"}
CHOICE = {
    "model": "small",
    "reason": "cheapest (chance 1.00, $0.01)",
    "rejected": {"large": "dearer"},
    "fallbacks": [],
}
STEP = StepEvent(
    **ABOUT,
    provider="p",
    answer_id="1",
    regions={"system": 10, "tools": 100, "history": 290},
    input_limit=1_000,
    context_window=2_000,
    reserved_tokens=200,
    estimated_tokens=300,
    reported_tokens=400,
    cached_tokens=100,
    cache_write_tokens=60,
    output_tokens=50,
    cost=Decimal("0.04"),
    duration_seconds=0.25,
    compactions=1,
    finish_reason="stop",
    tools_offered=("read", "write"),
    tools_called=("read",),
    route=CHOICE,
    quality=1.0,
)
FULLER = replace(
    STEP,
    answer_id="2",
    estimated_tokens=800,
    reported_tokens=800,
    cached_tokens=0,
    cache_write_tokens=None,
    calls=2,
    cost=None,
    tools_called=(),
    quality=0.0,
)
COMPACTION = CompactionEvent(
    **ABOUT,
    kind="force",
    reason="over the limit",
    tokens_before=900,
    tokens_after=300,
    duration_seconds=0.5,
    left_messages=6,
)
RECOVERY = OverflowEvent(**ABOUT, attempt=2, stated_limit=1_000)
REFUSAL = OverflowEvent(
    **OTHER, reason="BudgetExceededError", total_tokens=1_100, input_limit=1_000
)
EVENTS = [
    STEP,
    COMPACTION,
    CompactionEvent(**ABOUT, kind="force"),
    CacheMissEvent(**ABOUT, changed="messages", missed_tokens=4_000),
    RECOVERY,
    FULLER,
    StepEvent(**OTHER, time=NOON + 86_400, estimated_tokens=70),
    REFUSAL,
    NoticeEvent(**OTHER, notice="usage_ignored", about={"reason": "far off"}),
    SummaryEvent(thread="a", status="started"),
    SummaryEvent(
        thread="a",
        status="ready",
        input_tokens=500,
        output_tokens=80,
        cost=Decimal("0.01"),
    ),
    ToolResultEvent(
        **ABOUT,
        tool="read",
        tokens=500,
        shown_tokens=100,
        is_oversized=True,
        is_reduced=True,
    ),
    AlertEvent(
        alert="accuracy", value=0.7, threshold=0.85, time=NOON, detail="of 20 requests"
    ),
    AlertEvent(
        alert="accuracy", value=0.9, threshold=0.85, time=NOON + 86_400, is_cleared=True
    ),
    ModelChangeEvent(
        model="small",
        field="input_price",
        before="1",
        after="2",
        source="catalog",
        time=NOON,
    ),
]
"""What happened in two days."""

EVERY = [
    *EVENTS,
    SummaryEvent(**ABOUT, status="failed", seconds=2.0, reason="TimeoutError"),
    replace(STEP, answer_id="4", route={**CHOICE, "fallbacks": ["tiny: TimeoutError"]}),
]
"""These, and all other types and names of events."""
