"""Is the quality of many requests measured completely, and judged as the thresholds say?"""

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_ctxwin import ConfigError, ModelInfo
from langchain_ctxwin.observe import DEFAULT_GATES, Gate, RequestRecord, quality_report
from langchain_ctxwin.observe.gates import MEASURES, Ratio
from langchain_ctxwin.routing.fallbacks import TOO_SMALL

REPORT = {"input_limit": 6_000, "total_tokens": 1_100, "tool_tokens": 300, "reserved_tokens": 2_000}
USAGE = {"input_tokens": 1_000, "output_tokens": 50, "total_tokens": 1_050}
ROUTE = {"model": "small", "reason": "cheapest that fits", "rejected": {}, "fallbacks": 1, "estimated_cost": "0.0012"}

TOKENS = st.none() | st.integers(0, 10**6)
USD = st.none() | st.decimals(0, 1_000, places=6)
SIZES = ("input_tokens", "output_tokens", "tool_tokens", "reserved_tokens")
RECORDS = st.lists(
    st.builds(
        RequestRecord,
        model=st.just("any"),
        input_limit=st.none() | st.integers(1, 10**6),
        reason=st.sampled_from(["", "cheapest that fits", "sticky", "largest window"]),
        fallbacks=st.none() | st.integers(0, 2),
        overflows=st.integers(0, 1),
        succeeded=st.booleans(),
        optimal=st.none() | st.booleans(),
        **dict.fromkeys(SIZES, TOKENS),
        **dict.fromkeys(("cost", "largest_cost"), USD),
    ),
    max_size=4,
)


def measures(records):
    """The measures that every report has."""
    return {name: ratio for name, ratio in quality_report(records).measures.items() if name in MEASURES}


def routing_shares(records):
    found = quality_report(records).measures
    return {name.removeprefix("routing/"): ratio for name, ratio in found.items() if name not in MEASURES}


def record(**stated):
    """A request of 1,000 of 4,000 tokens, unless told otherwise."""
    return RequestRecord(**{"model": "any", "input_limit": 4_000, "input_tokens": 1_000, **stated})


def answer(*, usage=USAGE, **metadata):
    """An answer with its usage and metadata."""
    return AIMessage("hi", usage_metadata=usage, response_metadata=metadata)


def unchecked(usage):
    """An answer whose usage has a form that the message class would refuse."""
    return answer(usage=None).model_copy(update={"usage_metadata": usage})


def info(**prices):
    """A model with prices per million tokens."""
    return ModelInfo(name="any", **{name: Decimal(price) for name, price in prices.items()})


NOTHING_KNOWN = {"model": "", "input_limit": None, "input_tokens": None, "tool_tokens": None, "fallbacks": None}
ROUTED = {"model": "small", "reason": "cheapest that fits", "fallbacks": 1, "cost": Decimal("0.0012")}
SIZED = {"input_limit": 6_000, "tool_tokens": 300, "reserved_tokens": 2_000}
ODD = unchecked({"input_tokens": None, "output_tokens": 1.5})
ODD.response_metadata["route"] = {"model": 7, "reason": None, "fallbacks": "two", "estimated_cost": "much"}
ODD_REPORT = {"input_limit": "6k", "total_tokens": -1, "tool_tokens": True, "reserved_tokens": 10**12}


@pytest.mark.parametrize(
    ("message", "report", "expected"),
    [
        (
            answer(route=ROUTE, model_name="served"),
            REPORT,
            {**SIZED, **ROUTED, "input_tokens": 1_000, "output_tokens": 50},
        ),
        (answer(usage=None), REPORT, {**SIZED, "input_tokens": 1_100}),  # our own count
        (answer(usage=None, model_name="served"), None, {"model": "served"}),
        (ODD, ODD_REPORT, {}),
        (answer(usage=None, route="small"), None, {}),
    ],
    ids=["all", "no usage", "no report", "impossible", "odd route"],
)
def test_a_record_has_what_an_answer_and_its_report_state(message, report, expected):
    """And the rest is unknown, as are metadata that cannot be."""
    assert RequestRecord.of(message, report=report) == RequestRecord(**{**NOTHING_KNOWN, **expected})


@pytest.mark.parametrize(
    ("stated", "field", "kept"),
    [
        ({"reason": "cheapest that fits (chance 0.91, $0.0012)"}, "reason", "cheapest that fits"),
        ({"reason": "largest window: nothing else fits 9,000 tokens"}, "reason", "largest window"),
        ({"reason": "asked for by name"}, "reason", "asked for by name"),
        *(({"estimated_cost": odd}, "cost", None) for odd in ("-1", "NaN", "Infinity", "", None, 0.5)),
    ],
)
def test_reasons_are_kept_without_their_figures_and_estimates_where_they_are_prices(stated, field, kept):
    assert getattr(RequestRecord.of(answer(route={**ROUTE, **stated})), field) == kept


def test_candidates_that_refused_the_request_are_overflows():
    """What a route lists names the reason; a number of candidates, or another failure, does not."""
    listed = [f"small: {TOO_SMALL}", "medium: APITimeoutError, status 504", f"large: {TOO_SMALL}", 7]
    made = [RequestRecord.of(answer(route={**ROUTE, "fallbacks": given})) for given in (listed, 3, None)]
    assert [(one.overflows, one.fallbacks) for one in made] == [(2, 4), (0, 3), (0, None)]
    assert measures(made[:1])["limit_compliance"] == Ratio(numerator=0, denominator=1, requests=1)


PRICED = {"input_price": "1", "output_price": "10", "cache_read_price": "0.1"}
LARGEST = {"input_price": "2", "output_price": "20"}


@pytest.mark.parametrize(
    ("usage", "prices", "costs"),
    [
        ({**USAGE, "input_token_details": {"cache_read": 400}}, (PRICED, LARGEST), ("0.00114", "0.003")),
        (USAGE, (None, LARGEST), (None, "0.003")),  # an estimate is not set against a bill
        (USAGE, ({}, None), (None, None)),  # an unknown price is not free
        (USAGE, ({"input_price": "1"}, None), (None, None)),
        (USAGE, ({"output_price": "1"}, None), (None, None)),
        (None, (PRICED, None), (None, None)),  # our own count is no bill
    ],
)
def test_the_cost_is_that_of_the_usage(usage, prices, costs):
    own, largest = (None if stated is None else info(**stated) for stated in prices)
    made = RequestRecord.of(answer(usage=usage, route=ROUTE), report=REPORT, info=own, largest=largest)
    assert [made.cost, made.largest_cost] == [cost and Decimal(cost) for cost in costs]


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"input_limit": 0}, "input_limit=0: give a whole number of tokens, at least 1"),
        ({"input_tokens": -1}, "input_tokens=-1: give a whole number"),
        ({"fallbacks": True}, "fallbacks=True: give a whole number"),
        ({"overflows": None}, "overflows=None: give a whole number"),
        ({"cost": 0.5}, "cost=0.5: give USD as a Decimal"),
        ({"largest_cost": Decimal("NaN")}, r"largest_cost=Decimal\('NaN'\): give USD as a Decimal"),
    ],
)
def test_a_record_of_impossible_values_is_refused(stated, said):
    with pytest.raises(ConfigError, match=said):
        record(**stated)


USD_PAIRS = [("0.25", "1.00"), ("0.50", "0.50"), ("99", None)]


@pytest.mark.parametrize(
    ("measure", "stated", "expected"),
    [
        (
            "limit_compliance",  # the limit itself is allowed; a refusal is a violation, whatever the counts say
            [
                *({"input_tokens": tokens} for tokens in (4_000, 4_001, None)),
                *({"overflows": 1, "input_tokens": tokens} for tokens in (1_000, None)),
            ],
            (1, 4, 4, 1),
        ),
        (
            "utilization",
            [{}, {"input_limit": 12_000, "input_tokens": 7_000}, {"input_limit": None}],
            (8_000, 16_000, 2, 1),
        ),
        (
            "cost_against_largest",
            [{"cost": Decimal(own), "largest_cost": most and Decimal(most)} for own, most in USD_PAIRS],
            (Decimal("0.75"), Decimal("1.50"), 2, 1),
        ),
        (
            "fallback_success",  # a failure with nobody to fall back on counts; without any failure nothing does
            [
                *({"fallbacks": 2}, {"fallbacks": 2}, {"fallbacks": 1, "succeeded": False}),
                *({"succeeded": False, "fallbacks": None}, {"fallbacks": None}, {}),
            ],
            (2, 4, 4, 1),
        ),
        ("optimal_routing", [{"optimal": optimal} for optimal in (True, True, False, None)], (2, 3, 3, 1)),
        (
            "token_efficiency",  # neither tool definitions nor failures are useful, and both are consumed
            [
                *({"tool_tokens": 400, "output_tokens": 100}, {"succeeded": False}, {"output_tokens": None}),
                *({"tool_tokens": 1_500, "output_tokens": 0}, {"tool_tokens": None, "output_tokens": 100}),
            ],
            (700, 3_100, 3, 2),
        ),
        (
            "reserve_waste",  # an answer longer than its reserve wastes nothing
            [
                *({"reserved_tokens": 2_000, "output_tokens": 500}, {"reserved_tokens": 1_000, "output_tokens": 1_200}),
                *({"reserved_tokens": 1_000}, {"output_tokens": 1_000}),
            ],
            (1_500, 3_000, 2, 2),
        ),
    ],
)
def test_a_measure_sums_what_requests_state(measure, stated, expected):
    names = ("numerator", "denominator", "requests", "unknown")
    assert measures(record(**one) for one in stated)[measure] == Ratio(**dict(zip(names, expected, strict=True)))


def test_routing_is_shared_by_reason():
    shares = routing_shares([record(reason=reason) for reason in ("fits", "sticky", "", "sticky")])
    assert list(shares.items()) == [
        ("sticky", Ratio(numerator=2, denominator=3, requests=3, unknown=1)),
        ("fits", Ratio(numerator=1, denominator=3, requests=3, unknown=1)),
    ]


def test_a_cost_over_nothing_is_above_every_bound():
    assert measures([record(cost=Decimal(0), largest_cost=Decimal(0))])["cost_against_largest"].value is None
    report = quality_report([record(cost=Decimal(5), largest_cost=Decimal(0), optimal=True)])
    assert (report.failed, report.passed) == (("cost_against_largest",), False)
    assert "boundless" in report.table()


@settings(max_examples=40)
@given(RECORDS, RECORDS)
def test_batches_can_be_added(one, other):
    parts, whole = (measures(one), measures(other)), measures([*one, *other])
    assert {name: parts[0][name] + parts[1][name] for name in whole} == whole


@settings(max_examples=40)
@given(RECORDS)
def test_no_request_is_left_out_and_parts_are_shares(records):
    """Every request is counted or unknown; only fallbacks do not concern all. Those of the routing add up to one."""
    found, routing = measures(records), routing_shares(records).values()
    assert sum(share.numerator for share in routing) == next((share.denominator for share in routing), 0)
    assert all(share.requests + share.unknown == len(records) for share in routing)
    never_failed = sum(request.succeeded and request.fallbacks == 0 for request in records)
    for name, ratio in found.items():
        concerned = len(records) - (never_failed if name == "fallback_success" else 0)
        assert ratio.requests + ratio.unknown == concerned, name
    shares = ("limit_compliance", "fallback_success", "optimal_routing", "token_efficiency", "reserve_waste")
    assert all(found[name].value is None or 0 <= found[name].value <= 1 for name in shares)


def test_the_default_gates_are_the_stated_goals():
    """No violation, nineteen of twenty failures survived, a fifth saved, six of seven choices the best."""
    assert dict(DEFAULT_GATES) == {
        "limit_compliance": Gate(at_least=1.0),
        "fallback_success": Gate(at_least=0.95),
        "cost_against_largest": Gate(at_most=0.8),
        "optimal_routing": Gate(at_least=0.85),
    }


OF_TWENTY = {"denominator": 20, "requests": 20}


@pytest.mark.parametrize(
    ("gate", "ratio", "verdict"),
    [
        *((Gate(at_least=0.95), Ratio(numerator=found, **OF_TWENTY), found == 19) for found in (18, 19)),
        *((Gate(at_most=0.8), Ratio(numerator=found, **OF_TWENTY), found == 16) for found in (16, 17)),
        *((Gate(at_least=0.5, at_most=0.6), Ratio(numerator=found, **OF_TWENTY), found == 12) for found in (12, 13)),
        (Gate(at_least=1.0), Ratio(numerator=19, denominator=19, requests=19, unknown=1), True),  # enough is known
        (Gate(at_least=1.0), Ratio(numerator=18, denominator=18, requests=18, unknown=1), None),
        (Gate(at_least=1.0), Ratio(numerator=0, denominator=1, requests=1, unknown=99), False),  # known to miss
        (Gate(at_least=1.0), Ratio(unknown=1), None),
        (Gate(at_least=1.0), Ratio(), True),  # nobody is concerned
        (Gate(at_least=0.5), Ratio(numerator=1, requests=1), True),  # boundless
    ],
)
def test_a_gate_includes_its_threshold_and_needs_evidence_to_pass(gate, ratio, verdict):
    assert gate.passes(ratio) is verdict


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        *(({}, "give"), ({"at_least": -0.1}, "give"), ({"at_most": float("nan")}, "give")),
        ({"at_least": 1, "min_known": -1}, "give"),
        ({"at_least": 0.9, "at_most": 0.1}, r"at_least=0.9 is above at_most=0.1"),
    ],
)
def test_a_gate_that_nothing_can_miss_or_pass_is_refused(bounds, said):
    with pytest.raises(ConfigError, match=said):
        Gate(**bounds)


def test_a_gate_for_no_measure_is_refused():
    with pytest.raises(ConfigError, match="gates for 'compliance': no such measure, use limit_compliance, "):
        quality_report([], gates={"compliance": Gate(at_least=1.0)})


def test_a_share_of_the_routing_can_be_judged():
    records = [record(reason="sticky"), record(reason="largest window")]
    gates = {"routing/largest window": Gate(at_most=0.4), "routing/cheapest": Gate(at_least=0.1)}
    assert quality_report(records, gates=gates).failed == tuple(gates)
    kind = {"routing/largest window": Gate(at_most=0.5), "routing/cheapest": Gate(at_most=0.0)}
    assert quality_report(records, gates=kind).passed is True


@pytest.mark.parametrize(
    ("records", "passed", "failed", "undecided"),
    [
        ([record(optimal=True, cost=Decimal(1), largest_cost=Decimal(2))], True, (), ()),
        ([record(optimal=True)], None, (), ("cost_against_largest",)),
        ([record(overflows=1)], False, ("limit_compliance",), ("cost_against_largest", "optimal_routing")),
        ([], None, (), tuple(DEFAULT_GATES)),
    ],
    ids=["passed", "undecided", "failed", "no requests"],
)
def test_a_report_passes_when_every_gate_does(records, passed, failed, undecided):
    report = quality_report(iter(records))
    assert (report.passed, report.failed, report.undecided) == (passed, failed, undecided)


def test_the_table_shows_amounts_gates_and_verdicts():
    cheap = {"cost": Decimal("0.00000012"), "largest_cost": Decimal("0.00000048")}
    records = [record(reason="sticky", output_tokens=100, tool_tokens=250, **cheap), record(input_tokens=4_500)]
    assert quality_report(records).table().splitlines() == [
        "measure                 value                   amounts  unknown  gate       verdict",
        "limit_compliance       50.00%                    1 of 2        0  >= 100.0%  failed",
        "fallback_success      unknown                    0 of 0        0  >= 95.0%   passed",
        "cost_against_largest   25.00%  0.00000012 of 0.00000048        1  <= 80.0%   unknown",
        "optimal_routing       unknown                    0 of 0        2  >= 85.0%   unknown",
        "utilization            68.75%            5,500 of 8,000        0",
        "token_efficiency       77.27%              850 of 1,100        1",
        "reserve_waste         unknown                    0 of 0        2",
        "routing/sticky        100.00%                    1 of 1        1",
    ]


def test_the_values_of_a_report_are_exact():
    """Money is text, a gate stands beside its verdict, and all of it survives being written down."""
    gate = {"cost_against_largest": Gate(at_most=0.5)}
    values = quality_report([record(cost=Decimal("0.10"), largest_cost=Decimal("0.40"))], gates=gate).to_dict()
    ratio = {"value": 0.25, "numerator": "0.10", "denominator": "0.40", "requests": 1, "unknown": 0}
    assert values["measures"]["cost_against_largest"] == ratio
    assert (values["requests"], values["passed"]) == (1, True)
    assert json.loads(json.dumps(values)) == values
    assert values["gates"] == {
        "cost_against_largest": {"at_least": None, "at_most": 0.5, "min_known": 0.95, "passed": True}
    }
