"""Does the demo prove what it says, and does it notice when a question, a result or a rule is lost?"""

import re

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin.cli import main
from langchain_ctxwin.demo import stories
from langchain_ctxwin.demo.explorer import explore
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.story import RULE, ending
from langchain_ctxwin.testing import ScriptedChatModel

pytestmark = pytest.mark.integration

WINDOW = 8192
TRUTH, KEPT_RULE = "every answer is true", "the rule of the first message is kept"


@pytest.fixture
def library(tmp_path):
    """A folder with long and short files, one endless line, a binary, broken text, links and a secret."""
    place = tmp_path / "library"
    (place / "deep").mkdir(parents=True)
    for number in range(6):
        lines = [
            f"chapter {number} verse {i} " + "lorem ipsum " * (i % 7)
            for i in range(150 + 300 * number)
        ]
        (place / "deep" / f"book{number}.txt").write_text(
            "\n".join(lines), encoding="utf-8"
        )
    (place / "endless.json").write_text(
        "[" + "12345, " * 60_000 + "0]", encoding="utf-8"
    )
    (place / "latin.txt").write_bytes(b"caf\xe9 na\xefve\r\n" * 400)
    (place / "[bold]x.txt").write_text(
        "[red]markup :smile: \x1b[31m\u2028\x85\n" * 500, encoding="utf-8"
    )
    (place / "image.bin").write_bytes(b"\0\1\2" * 5_000)
    (place / ".env").write_text("SECRET=1", encoding="utf-8")
    (tmp_path / "outside.txt").write_text("not for you", encoding="utf-8")
    (place / "link.txt").symlink_to(tmp_path / "outside.txt")
    (place / "loop").symlink_to(place)
    return place


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
    sent, whole = (
        int(re.search(rf"{name} +([\d,]+)", out)[1].replace(",", ""))
        for name in ("in all", "each time")
    )
    assert whole > 3 * sent
    assert out.endswith("\nAll 10 claims that were checked hold.\n")


@pytest.mark.parametrize("window", [2048, 16384])
def test_every_story_holds_in_other_windows_and_on_other_files(library, window, capsys):
    arguments = ["demo", "--all", str(library), "--window", str(window)]
    assert main([*arguments, "--steps", "20"]) == 0
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
    claims = stories.long_work(Folder.open(library), window=WINDOW, steps=20)
    assert (_failed(claims), ending(claims)) == (failures, False)
    assert capsys.readouterr().out.endswith(f"\nFAILED: {'; '.join(failures)}\n")


def test_a_smaller_true_window_is_recovered_from_and_counted(
    library, capsys, monkeypatch
):
    """The provider refuses what the package thought would fit; the run goes on and says so."""
    monkeypatch.setattr(
        stories,
        "offline",
        lambda *_: ScriptedChatModel(window=5000, max_tokens=1024, script=explore),
    )
    claims = stories.long_work(Folder.open(library), window=WINDOW, steps=30)
    assert _failed(claims) == []
    assert re.search("; [1-9] refused, sent again smaller", claims[0].figure)
    assert "~ overflow recovered" in capsys.readouterr().out


def _call(place, name, **args):
    """The message that the agent's tool node would add."""
    tools = {tool.name: tool for tool in Folder.open(place).tools()}
    return tools[name].invoke(
        {"type": "tool_call", "name": name, "id": "1", "args": args}
    )


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        *(
            ("read_file", {"path": path}, "no file")
            for path in ("../outside.txt", "/etc/passwd", "link.txt", "a\0b")
        ),
        ("read_file", {"path": "image.bin"}, "no file"),
        ("list_files", {"order": "color"}, "validation"),
    ],
)
def test_what_a_tool_refuses_is_a_tool_error_with_a_reason(library, name, args, reason):
    """The model can read why and go on; nothing outside the folder can be reached."""
    message = _call(library, name, **args)
    assert (message.status, reason in message.text.lower()) == ("error", True)
