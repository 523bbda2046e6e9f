"""Does a replay read what was recorded, send what an agent would send, and count what that costs and loses?"""

import json
import re

import pytest
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ModelLimits,
    TokenEstimator,
    create_context_agent,
)
from langchain_ctxwin.cli import main
from langchain_ctxwin.counting import VocabularyCounter
from langchain_ctxwin.replay import Policy, ReplayResult, compare, replay
from langchain_ctxwin.replay.command import page
from langchain_ctxwin.replay.playing import PLAIN, candidates, recommended
from langchain_ctxwin.replay.reading import Conversation
from langchain_ctxwin.testing import ScriptedChatModel

WINDOW = 2_000
THREAD = {"configurable": {"thread_id": "recorded"}}


def recording(turns=30, name="one"):
    """A recorded agent that looks things up, and needs at the end what it saw at the beginning."""
    messages = [SystemMessage("You are a clerk.")]
    for n in range(turns):
        wanted = f"INV-{n * 7919 % 10_000:05d}"
        call = {
            "name": "find",
            "args": {"invoice": f"INV-{max(0, n - 9) * 7919 % 10_000:05d}"},
            "id": f"c{n}",
        }
        messages += [
            HumanMessage(f"What of {wanted}? " + "river mill heron " * 12),
            AIMessage("", tool_calls=[call]),
            ToolMessage(
                f"{wanted} was paid. " + "boat pier " * 20, tool_call_id=f"c{n}"
            ),
            AIMessage(f"It was paid, number {n}."),
        ]
    return conversation_of(messages, name)


def conversation_of(messages, name="one"):
    named = tuple(
        message.model_copy(update={"id": f"{name}-{i}"})
        for i, message in enumerate(messages)
    )
    return Conversation(name=name, messages=named)


@tool
def find(invoice: str) -> str:
    """Find an invoice."""
    return f"{invoice} was paid. " + "boat pier " * 30


def test_a_replay_sends_what_the_agent_sent():
    """Request by request: the conversation of a live agent is recorded, and replayed by the same settings."""
    count = VocabularyCounter("o200k_base")

    def answer(messages, tools):
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("It was paid. " * 5)
        asked = {"invoice": messages[-1].text[-9:]}
        call = {"name": "find", "args": asked, "id": messages[-1].id}
        return AIMessage("", tool_calls=[call])

    reserve = WINDOW // 4
    model = ScriptedChatModel(
        window=WINDOW, max_tokens=reserve, script=answer, counter=count
    )
    limits = ModelLimits(context_window=WINDOW, requested_output_tokens=reserve)
    options = {"counter": TokenEstimator("openai"), "checkpointer": InMemorySaver()}
    agent = create_context_agent(
        model,
        [find],
        system_prompt="You are a clerk.",
        limits=limits,
        recall=False,
        **options,
    )
    for n in range(30):
        agent.invoke(
            {
                "messages": [
                    HumanMessage(f"{'river mill ' * 15} INV-{n:05d}", id=f"q{n}")
                ]
            },
            THREAD,
        )
    history = [
        SystemMessage("You are a clerk."),
        *agent.get_state(THREAD).values["messages"],
    ]
    sent = []
    recorded = Conversation(name="live", messages=tuple(history), tools=(find,))
    result = replay(
        recorded,
        Policy.named("balanced"),
        WINDOW,
        heard=lambda one: sent.append(one.request),
    )

    def payload(requests):
        return [
            [(m.type, m.text, getattr(m, "tool_calls", None)) for m in request]
            for request in requests
        ]

    assert payload(sent) == payload([request.messages for request in model.answered])
    assert result.requests == len(model.answered) == 60
    compactions = agent.get_state(THREAD).values["context_guard"]["compactions"]
    # one that is behind the last answer is in no request
    assert 2 < result.compactions <= compactions
    assert result.over_limit == len(model.refusals)


class FailsForBad:
    """A policy that fails for one conversation."""

    def __init__(self, room, size):
        pass

    def __call__(self, history):
        if history[0].id.startswith("bad"):
            raise LookupError("no such luck\nat all")
        return list(history)


def test_results_add_up_and_a_conversation_that_cannot_be_replayed_is_told_and_left_out():
    faults = []
    good = [recording(10, f"n{n}") for n in range(3)]
    policies = [
        Policy.named("balanced"),
        Policy.named("drop-to-half"),
        Policy(name="odd", make=FailsForBad),
    ]
    last = compare([*good, recording(2, "bad")], policies, WINDOW, tell=faults.append)
    for policy, total in zip(policies, last, strict=True):
        each = [replay(one, policy, WINDOW) for one in good]
        assert total == sum(each[1:], each[0])
    assert faults == ["left out bad: its replay failed (LookupError: no such luck)"]


def test_the_output_reserve_of_settings_is_kept():
    sent, mine = [], Policy(name="mine", config=ContextConfig(output_reserve=1_200))
    replay(recording(), mine, WINDOW, heard=sent.append)
    assert max(one.tokens for one in sent if one.fits) <= 800


class Everything:
    """Shows all there is."""

    def __call__(self, history):
        return list(history)


def test_what_cannot_be_sent_shows_nothing_and_costs_nothing():
    unmanaged = replay(
        recording(), Policy(name="all", make=lambda *_: Everything()), WINDOW
    )
    managed = replay(recording(), Policy.named("balanced"), WINDOW)
    assert unmanaged.unsent == unmanaged.to_dict()["unsent"] == unmanaged.over_limit > 0
    assert unmanaged.needed == managed.needed
    assert unmanaged.sufficiency < 0.5
    assert unmanaged.billed_per_request == unmanaged.billed_tokens / unmanaged.sent


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_policy_never_splits_a_call_from_its_result(name):
    history = recording().messages[1:]
    policy = PLAIN[name](200, lambda message: len(message.text) // 9 + 4)
    for stop in range(1, len(history) + 1):
        shown = policy(history[:stop])
        assert len(shown) <= 40
        assert not isinstance(shown[0], ToolMessage)


def test_the_cheapest_of_those_that_lose_nothing_is_recommended():
    about = {"policy": "", "window": 1, "requests": 10, "sent": 10, "needed": 100}
    results = [
        ReplayResult(**about, shown=99, billed_tokens=900),
        ReplayResult(**about, shown=100, billed_tokens=1_000),
        ReplayResult(**about, shown=80, billed_tokens=100),
        ReplayResult(**{**about, "sent": 9}, shown=100, billed_tokens=10),
    ]
    assert recommended(results) is results[0]
    with pytest.raises(ConfigError, match="nothing to recommend by"):
        recommended([ReplayResult(**{**about, "needed": 0}, billed_tokens=3)])
    # of several that are as good, the first
    assert recommended([results[0], results[0]]) is results[0]
    assert candidates()[0].config == ContextConfig()


def data_of(text):
    """What a page holds."""
    found = re.search(
        r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL
    )
    return json.loads(found[1])


@pytest.mark.parametrize("name", ["balanced", "drop-to-half"])
def test_a_page_holds_every_request_and_why_the_rest_left(name):
    conversation, policy, sent = recording(), Policy.named(name), []
    replay(conversation, policy, WINDOW, heard=sent.append)
    data = data_of(page(conversation, policy, WINDOW))
    assert len(data["steps"]) == len(sent)
    for step, one in zip(data["steps"], sent, strict=True):
        assert step["shown"] == [
            n
            for n, m in enumerate(conversation.messages[1:])
            if m.id in {r.id for r in one.request}
        ]
        assert step["tokens"] == one.tokens <= data["limit"]
    if name == "balanced":
        assert (
            sum(bool(step["reason"]) for step in data["steps"])
            == data["result"]["compactions"]
        )
        assert any("<record>" in note for note in data["steps"][-1]["notes"])


def test_a_page_loads_nothing_and_runs_nothing_that_somebody_said():
    evil = "</script><script>alert(1)</script><!--<script>"
    messages = [HumanMessage(evil), AIMessage("x"), HumanMessage(evil), AIMessage("y")]
    text = page(conversation_of(messages, evil), Policy.named("balanced"), WINDOW)
    assert data_of(text)["name"] == evil
    assert "alert(1)</script>" not in text
    assert not re.search(r"""(src|href)=|@import|url\(|fetch\(""", text)


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "runs.jsonl"
    rows = [
        {"id": f"r{n}", "messages": convert_to_openai_messages(recording(25).messages)}
        for n in range(2)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n{half")
    return path


def run(capsys, *arguments):
    code = main(["replay", "--window", str(WINDOW), *map(str, arguments)])
    return code, capsys.readouterr()


def test_the_command_prints_a_table(recorded, capsys):
    code, out = run(capsys, recorded)
    assert code == 1  # one line is no JSON, and missing from the figures
    lines = out.out.splitlines()
    assert lines[0] == f"2 conversations, 100 requests, a window of {WINDOW:,} tokens"
    assert [line.split()[0] for line in lines[2:5]] == ["balanced", *PLAIN]
    assert f"{recorded}:3: no JSON" in out.err.splitlines()[0]


def test_settings_of_a_file_are_a_row(recorded, capsys, tmp_path):
    (tmp_path / "mine.toml").write_text("keep = 0.3\n")
    policies = ("--policy", "lean", "--policy", tmp_path / "mine.toml")
    rows = run(capsys, recorded, *policies)[1].out.splitlines()[2:4]
    assert [row.split()[0] for row in rows] == ["lean", str(tmp_path / "mine.toml")]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["gone.jsonl"], "does not exist"),
        (["--policy", "magic"], "give one of balanced, lean, roomy, keep-last"),
        (["--recommend", "--window", "900000"], "nothing to recommend by"),
        (["--policy", "lean", "--html", "gone/page.html"], "--html gone/page.html: No"),
        (["--step", "1"], "several conversations, choose one with --thread: r0, r1"),
        (["--thread", "r2"], "no conversation of this name"),
        (["--thread", "r0", "--step", "99"], "has 50 requests"),
    ],
)
def test_the_command_says_what_it_cannot_do(
    recorded, capsys, tmp_path, monkeypatch, arguments, why
):
    monkeypatch.chdir(tmp_path)
    files = [] if "jsonl" in arguments[0] else [recorded.name]
    code, out = run(capsys, *files, *arguments)
    assert code == 2
    assert why in out.err


def test_one_request_is_shown_and_why_messages_left_before_it(recorded, capsys):
    out = run(capsys, recorded, "--thread", "r0", "--step", "40")[1].out
    assert "r0 under balanced: request 40 of 50" in out
    assert "left before request" in out
    assert "<record>" in out


def test_a_recommendation_is_a_file_that_can_be_used_and_is_drawn(
    recorded, capsys, tmp_path
):
    row = {"id": "r0", "messages": convert_to_openai_messages(recording(14).messages)}
    recorded.write_text(json.dumps(row) + "\n{half")
    code, out = run(capsys, recorded, "--recommend", "--html", tmp_path / "page.html")
    (tmp_path / "best.toml").write_text(out.out)
    assert code == 1
    assert ContextConfig.from_file(tmp_path / "best.toml") in [
        policy.config for policy in candidates()
    ]
    assert data_of((tmp_path / "page.html").read_text())["policy"] in out.out
    assert "drew r0: " in out.err
