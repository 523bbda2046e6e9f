"""Does llama.cpp read recorded answers as they are, for the benchmark, too?

The model is a tiny one with random weights: it says nothing of sense, but of the same texts always the same.
"""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import (
    AIMessage,
    ToolMessage,
    convert_to_openai_messages,
)

pytest.importorskip("xllamacpp", reason="llama.cpp has no wheel for this platform")

from langchain_ctxwin import ConfigError
from langchain_ctxwin.replay.reader import ALL, LanguageModel

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

ROOT = Path(__file__).parents[2]
REPLY = 'get_order({"id": "W-4711", "città": "Zürich", "in": "東京"})\n'


@pytest.fixture
def model(llama_gguf):
    """The tiny model."""
    return LanguageModel(llama_gguf, context_tokens=1_024)


def test_every_token_of_an_answer_is_read_and_told_by_its_part(model):
    read = model.surprise(
        ["Of which order? "], REPLY, {"order": ["4711"], "none": ["x9"]}
    )
    assert read is not None
    nats, tokens = read.nats[ALL]
    # each character counts once, however many tokens it has
    assert 20 < tokens <= len(REPLY)
    assert 0 < nats < 104 * tokens
    assert 1 <= read.nats["order"][1] <= len("4711") + 1
    assert 0 < read.nats["order"][0] < nats
    assert "none" not in read.nats


def test_what_was_read_before_changes_no_figure(model):
    prompts = [["One. "], ["One. ", "Two. "], ["Three. "], ["One. "]]
    reads = [model.surprise(prompt, "Four.", {}) for prompt in prompts]
    assert reads[0] is not None
    assert reads[-1] is not None
    assert reads[-1].nats[ALL][0] == pytest.approx(reads[0].nats[ALL][0], rel=1e-3)


def test_what_the_context_cannot_hold_is_not_read(model):
    assert model.surprise(["word " * 1_100], REPLY, {}) is None


def test_a_file_that_is_no_model_is_told(tmp_path):
    (tmp_path / "none.gguf").write_text("none")
    with pytest.raises(ConfigError, match="cannot load"):
        LanguageModel(tmp_path / "none.gguf")


def looked_up(number):
    """A call with its result, of some hundred tokens."""
    key, args = f"c{number}", {"id": f"W-{4_000 + number}"}
    calls = [{"name": "get_order", "args": args, "id": key}]
    found = {"ship_to": f"{number} Main Street", "note": "fragile " * 60}
    result = ToolMessage(json.dumps({"status": "open", **found}), tool_call_id=key)
    pair = [AIMessage("", tool_calls=calls), result]
    return convert_to_openai_messages(pair)


def test_the_benchmark_reads_three_steps(llama_gguf, tmp_path):
    folder = tmp_path / "transcripts"
    folder.mkdir()
    asked = {"role": "user", "content": "Which of my orders are open?"}
    steps = [message for number in range(30) for message in looked_up(number)]
    row = {"id": "orders", "messages": [asked, *steps], "tools": []}
    with gzip.open(folder / "orders.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    command = [sys.executable, "benchmarks/reader.py", "--data", tmp_path]
    command += ["--model", llama_gguf, "--steps", "3", "--window", "1400"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{llama_gguf.stem}, window 1,400\n")
    assert "nats a token" in done.stdout
    assert "ours  " in done.stdout
    assert "questions ours: " in done.stdout
    assert " of 0 " not in done.stdout
    *_, goal = done.stdout.splitlines()
    assert goal.startswith(("- met    regret of ", "- MISSED regret of "))
