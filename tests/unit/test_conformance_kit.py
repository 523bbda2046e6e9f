"""Do extracted summaries keep planted rules and facts, by the measure of a public conformance kit?

The kit looks for telling words, beside which it puts 60 characters of talk. The words of people stay whole in the
record, so a tenth of a conversation cannot hold them all: a list of bare words would score higher, and tell less.
"""

import pytest
from compaction_kit.compacted import CompactedContext
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.runner import run_conformance
from compaction_kit.semantic_corpus import (
    build_semantic_heldout_session,
    build_semantic_session,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_ctxwin import CharRatioCounter, ExtractiveSummarizer

SEEDS = range(1, 9)
ROUNDS = 5
MESSAGES = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}
CHARACTERS = CharRatioCounter(1.0)


class Ours:
    """Shows the summarizer to the kit: the first round compacts the conversation, later ones only its summary."""

    name = "extractive"

    def __init__(self):
        self.summary = ""

    def compact(self, turns, round_num=1, budget_chars=1):
        is_summary = bool(self.summary) and [turn.text for turn in turns] == [
            self.summary
        ]
        self.summary = summarize(
            [] if is_summary else turns, self.summary, budget_chars
        )
        return CompactedContext(
            text=self.summary, compactor_name=self.name, round_num=round_num
        )


def summarize(turns, previous, max_chars):
    messages = [MESSAGES[turn.role](turn.text) for turn in turns]
    return ExtractiveSummarizer(counter=CHARACTERS).summarize(
        messages, previous=previous, max_tokens=max_chars
    )


def measured(build, budget):
    """Shares of the planted statements that survived, and of the replaced values that are still shown."""
    survived = stale = 0
    planted = []
    for seed in SEEDS:
        session, canaries = build(seed)[:2]
        last = run_conformance(
            session, Ours(), rounds=ROUNDS, canaries=canaries, budget_fraction=budget
        ).rounds[-1]
        assert last.within_budget
        survived += sum(last.survived.values())
        stale += sum(is_stale(canary, last.context.text) for canary in canaries)
        planted += canaries
    return survived / len(planted), stale / sum(
        bool(canary.superseded_tokens) for canary in planted
    )


def is_stale(canary, text):
    return any(token.lower() in text.lower() for token in canary.superseded_tokens)


@pytest.mark.parametrize(
    ("build", "tenth", "fifth", "third"),
    [
        (build_random_session, 0.44, 0.95, 1.0),
        # other subjects and wordings each time, beside equal-looking statements
        (build_generated_session, 0.37, 0.75, 0.99),
        # items of similar wording, and what was said in other words later
        (build_semantic_session, 0.7, 0.85, 1.0),
        (build_semantic_heldout_session, 0.63, 0.85, 1.0),
    ],
)
def test_planted_statements_survive_five_rounds(build, tenth, fifth, third):
    """At a tenth, a fifth and a third of the conversation's size; of replaced values only the latest is shown."""
    found = [measured(build, budget) for budget in (0.1, 0.2, 0.3)]
    for (survival, stale), at_least in zip(found, (tenth, fifth, third), strict=True):
        assert survival >= at_least
        assert stale == 0 or build is not build_random_session
