"""Does the demo prove what it says, and does it notice when a rule is lost?"""

import re
from pathlib import Path

import langchain_core
import pytest
from langchain_core.messages import HumanMessage

from langchain_ctxwin.cli import main
from langchain_ctxwin.demo import stories
from langchain_ctxwin.demo.stories import RULE, Folder, ending, explore

WINDOW = 8192


@pytest.fixture(scope="module")
def library():
    """The folder that the demo explores."""
    return Folder.open(Path(langchain_core.__file__).parent)


def test_the_default_run_tells_two_stories_and_ends_with_what_was_checked(capsys):
    """The work outgrows the window many times, in turns of many steps."""
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert ("FAILED" in out, "WRONG" in out, "\x1b" in out) == (False, False, False)
    assert out.index("\nLong work: ") < out.index("\nLarge results: ")
    assert len(re.findall(r"~ compacted [\d,]+ -> [\d,]+ tokens: .*\(.+\)", out)) > 5
    assert "~ tool result reduced\n" in out
    assert out.count("verified, rule kept") == out.count("\nTurn ") > 7
    assert out.endswith("\nAll 11 claims that were checked hold.\n")


@pytest.mark.parametrize("window", [2048, 16384])
def test_every_story_holds_in_other_windows(window, capsys):
    assert main(["demo", "--all", "--window", str(window)]) == 0
    out = capsys.readouterr().out
    assert ("WRONG" in out, out.count("Window ")) == (False, 3)


def without_rule(message):
    """What a broken assembler would leave of a message."""
    if not isinstance(message, HumanMessage):
        return message
    return HumanMessage(message.text.replace(RULE[:20], "").replace(RULE[20:], ""))


def test_what_a_model_cannot_see_fails_visibly(library, capsys, monkeypatch):
    """A lost rule breaks a claim."""

    def seeing(messages, tools):
        return explore([*map(without_rule, messages)], tools)

    monkeypatch.setattr(stories, "explore", seeing)
    claims = stories.long_work(library, window=WINDOW, steps=20)
    assert not ending(claims)
    told = capsys.readouterr().out
    assert told.endswith("\nFAILED: the rule of the first message is kept\n")
