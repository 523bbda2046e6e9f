"""Does the demo prove what it says, and does it notice when a question, a result or a rule is lost?"""

import re
from pathlib import Path

import langchain_core
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin.cli import main
from langchain_ctxwin.demo import stories
from langchain_ctxwin.demo.stories import RULE, Folder, ending, explore

pytestmark = pytest.mark.integration

WINDOW = 8192
TRUTH, KEPT_RULE = "every answer is true", "the rule of the first message is kept"


@pytest.fixture(scope="module")
def library():
    """The folder that the demo explores."""
    return Folder.open(Path(langchain_core.__file__).parent)


def _failed(claims):
    return [claim.text for claim in claims if claim.holds is False]


def _seeing(script, lose):
    """A model that sees its input through a filter: what a broken assembler would leave of it."""
    return lambda messages, tools: script(lose(list(messages)), tools)


def _with_texts(kind, text_of):
    """A filter that changes the text of messages of one kind."""

    def changed(messages):
        return [
            message.model_copy(update={"content": text_of(message)})
            if isinstance(message, kind)
            else message
            for message in messages
        ]

    return changed


def test_the_default_run_tells_two_stories_and_ends_with_what_was_checked(capsys):
    """The work outgrows the window many times, in turns of many steps."""
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert ("FAILED" in out, "WRONG" in out, "\x1b" in out) == (False, False, False)
    assert out.index("\nLong work: ") < out.index("\nLarge results: ")
    assert len(re.findall(r"~ compacted [\d,]+ -> [\d,]+ tokens: .*\(.+\)", out)) > 5
    assert out.count("verified, rule kept") == out.count("\nTurn ") > 7
    assert out.endswith("\nAll 11 claims that were checked hold.\n")


@pytest.mark.parametrize("window", [2048, 16384])
def test_every_story_holds_in_other_windows(window, capsys):
    assert main(["demo", "--all", "--window", str(window)]) == 0
    out = capsys.readouterr().out
    assert ("WRONG" in out, out.count("Window ")) == (False, 3)


@pytest.mark.parametrize(
    ("lose", "failures"),
    [
        (
            lambda messages: [m for m in messages if not isinstance(m, HumanMessage)],
            [TRUTH, KEPT_RULE],
        ),
        (
            _with_texts(
                HumanMessage,
                lambda m: m.text.replace(RULE[:20], "").replace(RULE[20:], ""),
            ),
            [KEPT_RULE],
        ),
        (
            _with_texts(
                ToolMessage,
                lambda _: "[Tool result cleared: 12 characters; still in the history.]",
            ),
            [TRUTH],
        ),
        (_with_texts(ToolMessage, lambda m: re.sub(r"\d", "7", m.text)), [TRUTH]),
        (_with_texts(AIMessage, lambda m: "" if m.tool_calls else m.text), [TRUTH]),
    ],
)
def test_what_a_model_cannot_see_fails_visibly(
    library, lose, failures, capsys, monkeypatch
):
    """A lost question, rule, result or note, and garbled results, break a claim."""
    monkeypatch.setattr(stories, "explore", _seeing(explore, lose))
    claims = stories.long_work(library, window=WINDOW, steps=20)
    assert (_failed(claims), ending(claims)) == (failures, False)
    assert capsys.readouterr().out.endswith(f"\nFAILED: {'; '.join(failures)}\n")
