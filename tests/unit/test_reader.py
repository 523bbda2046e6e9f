"""Does a language model that reads requests say what they lose, and no more than its figures allow?"""

import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import ConfigError, ContextConfig
from langchain_ctxwin.replay.playing import Policy, replay
from langchain_ctxwin.replay.reader import (
    ALL,
    FAR,
    LanguageModel,
    Read,
    Surprise,
    read_conversation,
    regret,
)
from langchain_ctxwin.replay.reading import Conversation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import reader as benchmark  # stands beside the other benchmarks

WINDOW = 4_096


def read(policy, conversation, nats, group=ALL, tokens=10):
    sums = {group: (nats * tokens, tokens)}
    return Read(
        policy=policy,
        conversation=str(conversation),
        step=1,
        prompt_tokens=100,
        nats=sums,
    )


def reads_of(*differences):
    """One answer a conversation: of all of the history, and of a request that makes it so much less probable."""
    pairs = [
        (read("", at, 1.0), read("ours", at, 1.0 + more))
        for at, more in enumerate(differences)
    ]
    return [one for pair in pairs for one in pair]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        (
            [0.01, 0.0, -0.01] * 5,
            "not distinguishable from the full history (margin 0.05)",
        ),
        ([0.3, 0.2, 0.4] * 5, "worse than the full history"),
        ([0.5, -0.5, 0.1] * 5, "no verdict: the spread"),
        ([0.0, 0.0, 0.0], "no verdict: 3 conversations, 8 are the least"),
    ],
)
def test_a_verdict_says_no_more_than_the_interval(differences, verdict):
    found = regret(reads_of(*differences), "ours")
    assert found is not None
    assert found.low <= found.nats <= found.high
    assert found.verdict().startswith(verdict)


def test_regret_counts_the_steps_that_were_read_both_ways():
    reads = [*reads_of(0.5), read("ours", 7, 9.0), read("", 8, 1.0)]
    found = regret(reads, "ours")
    assert found is not None
    assert (found.nats, found.steps, found.conversations) == (pytest.approx(0.5), 1, 1)
    assert regret(reads, "ours", FAR) is None


def test_the_benchmark_judges_the_goals_by_what_was_read():
    """Of the request of this package alone, by all tokens and by the far values, where answers have some."""
    reads = reads_of(0.1, 0.2) + [
        read(policy, "far", nats, FAR) for policy, nats in (("", 1.0), ("ours", 1.3))
    ]
    reads += [read("drop-to-half", 0, 9.0)]
    assert [*benchmark.goals_of(reads)] == [
        (True, "regret of all 0.150: at most 0.16"),
        (False, "regret of far values 0.300: at most 0.26"),
    ]


def test_the_benchmark_says_whether_enough_rules_are_kept(capsys):
    benchmark.print_rules([])
    goal = "- MISSED rules kept at 10,923 tokens 0.00: at least 0.90"
    assert capsys.readouterr().out.strip() == goal


class EvenReader:
    """Finds all answers equally probable."""

    def surprise(self, prompt, answer, groups):
        return Surprise(
            prompt_tokens=len(prompt), nats={ALL: (1.0, 1)}, is_first_choice=False
        )


@pytest.mark.parametrize("lead", [[], [SystemMessage("Be kind.", id="s")]])
def test_answers_are_read_where_something_has_left(lead):
    """A request that has the whole history loses nothing, and would make the mean of all look better."""
    messages = list(lead)
    for at in range(40):
        call = {"name": "look", "args": {"q": f"A-{at}"}, "id": f"c{at}"}
        messages += [
            HumanMessage(f"Look for A-{at}.", id=f"u{at}"),
            AIMessage("", tool_calls=[call], id=f"a{at}"),
            ToolMessage("word " * 150, tool_call_id=f"c{at}", id=f"r{at}"),
            AIMessage("Done.", id=f"b{at}"),
        ]
    conversation = Conversation(name="long", messages=tuple(messages))
    ours, sent = Policy(name="ours", config=ContextConfig()), []
    replay(conversation, ours, WINDOW, heard=sent.append)
    whole = {s.history for s in sent if len(s.request) - bool(lead) == s.history}
    reads = [*read_conversation(EvenReader(), conversation, [ours], WINDOW)]
    assert whole
    assert reads
    assert whole.isdisjoint(one.step - len(lead) for one in reads)


def test_a_reader_says_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match="reader"):
        LanguageModel(tmp_path / "none.gguf")
