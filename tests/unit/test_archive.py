"""Does what leaves the state lie in the store first, and is everything the same without it in the state?"""

from __future__ import annotations

import asyncio
import base64
import threading
import zlib
from contextlib import suppress
from dataclasses import replace

import ormsgpack
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, ContextConfig, create_context_agent, create_recall_tool
from langchain_ctxwin import archive as archiving
from langchain_ctxwin.archive import NAMESPACE, adelete_archive, afull_history, delete_archive, full_history
from langchain_ctxwin.errors import ArchiveError
from support.agents import LONG, THREAD, WAYS, agent_on, ask, call, is_refused, model_of, on_both, values
from support.fakes import script
from support.scenarios import LONG_ONE, SCENARIOS, plain, play

RUNS = settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
ARCHIVED = {"config": ContextConfig(history="archive", output_reserve=0)}
TURNS = 12


class Unruly(InMemoryStore):
    """A store that may fail, or hang."""

    trouble = ""

    def batch(self, ops):
        if self.trouble == "fails":
            raise ConnectionError("the store is down")
        if self.trouble == "hangs":
            threading.Event().wait(5)
        return super().batch(ops)


class Dying(InMemorySaver):
    """A checkpointer whose process dies before it stores what a step wrote."""

    dies_at = None

    def put_writes(self, config, writes, task_id, task_path=""):
        written = [m for _, value in writes for m in (value if isinstance(value, list) else [value])]
        if self.dies_at and any(isinstance(message, self.dies_at) for message in written):
            raise KeyboardInterrupt
        super().put_writes(config, writes, task_id, task_path)


def talked(adapter, *, turns=TURNS, store=None, model=None, **options):
    """Return an agent that archived a part of its history, its store and its model."""
    store, model = store if store is not None else InMemoryStore(), model or model_of(1500)
    agent = agent_on(adapter, model, store=store, **ARCHIVED, **options)
    for number in range(turns):
        ask(agent, f"question {number} {LONG}")
    return agent, store, model


def asked(turns=TURNS, first=0):
    return [f"question {number} {LONG}" for number in range(first, turns)]


def questions(messages):
    return [message.text for message in messages if isinstance(message, HumanMessage)]


@RUNS
@given(scenario=SCENARIOS, way=st.sampled_from(WAYS))
@example(scenario=replace(LONG_ONE, mode="inline"), way=WAYS[0])
@example(scenario=replace(LONG_ONE, mode="inline"), way=WAYS[3])
@example(scenario=LONG_ONE, way=WAYS[0])
@example(scenario=LONG_ONE, way=WAYS[3])
@example(scenario=replace(LONG_ONE, mode="off"), way=WAYS[1])
@example(scenario=replace(LONG_ONE, mode="off"), way=WAYS[2])
def test_the_requests_are_the_same_as_without_an_archive_and_the_whole_history_is_found_again(scenario, way):
    store = InMemoryStore()
    kept, sent, error = asyncio.run(play(scenario, *way))
    bounded, *same = asyncio.run(play(scenario, *way, history="archive", store=store))
    assert same == [sent, error]
    whole, rest = values(kept)["messages"], values(bounded)["messages"]
    assert [*map(plain, full_history(values(bounded), store))] == [*map(plain, whole)]
    if scenario.turns == LONG_ONE.turns:  # something did leave
        assert len(rest) < len(whole)
        assert store.search(NAMESPACE)


@on_both
def test_the_state_stays_as_small_as_the_view(adapter):
    sizes, store, model = [], InMemoryStore(), model_of(1500)
    agent = agent_on(adapter, model, store=store, **ARCHIVED)
    for question in asked(60):
        ask(agent, question)
        sizes.append(len(values(agent)["messages"]))
    assert max(sizes[30:]) <= max(sizes[:30]) < 30
    assert questions(full_history(values(agent), store)) == asked(60)
    assert not is_refused(model)


@on_both
@pytest.mark.parametrize("trouble", ["fails", "hangs"])
def test_a_store_that_does_not_take_it_removes_nothing(adapter, trouble, monkeypatch):
    monkeypatch.setattr(archiving, "WRITE_SECONDS", 0.05)
    store = Unruly()
    store.trouble = trouble
    with capture_logs() as logs:
        agent, _, model = talked(adapter, store=store)
    assert questions(values(agent)["messages"]) == asked()
    assert len([entry for entry in logs if entry["event"] == "history.not_archived"]) == 1  # then it is left alone
    assert not is_refused(model)


def test_what_a_store_did_not_take_leaves_when_it_is_back(monkeypatch):
    store, now = Unruly(), [0.0]
    monkeypatch.setattr("langchain_ctxwin.agent.storage.time.monotonic", lambda: now[0])
    store.trouble = "fails"
    agent, _, _ = talked("nodes", store=store)
    store.trouble, now[0] = "", 1_000.0
    ask(agent, "now?")
    assert len(values(agent)["messages"]) < 2 * TURNS
    assert questions(full_history(values(agent), store)) == [*asked(), "now?"]


@on_both
def test_a_step_that_dies_after_the_store_took_it_writes_the_same_part_again(adapter):
    saver, store = Dying(), InMemoryStore()
    agent, _, _ = talked(adapter, store=store, checkpointer=saver, turns=0)
    saver.dies_at, sent = RemoveMessage, []
    with suppress(KeyboardInterrupt):
        for question in asked():
            sent.append(question)
            ask(agent, question)
    assert (len(sent) < TURNS, len(store.search(NAMESPACE))) == (True, 1)
    saver.dies_at = None
    agent.invoke(None, THREAD)
    assert questions(full_history(values(agent), store)) == sent
    assert len(store.search(NAMESPACE)) == 1


@on_both
def test_an_older_checkpoint_finds_the_history_that_it_had(adapter):
    agent, store, _ = talked(adapter)
    found = set()
    for snapshot in agent.get_state_history(THREAD):
        if snapshot.next or not snapshot.values.get("messages"):
            continue
        whole = questions(full_history(snapshot.values, store))
        assert whole == asked(len(whole))
        found.add(len(whole))
        if len(whole) == TURNS // 2:
            ask(agent, "another way", snapshot.config)  # the branches go on side by side
    assert found == {*range(1, TURNS + 1)}
    assert questions(full_history(values(agent), store)) == [*asked(TURNS // 2), "another way"]


@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
@on_both
def test_what_is_removed_is_not_streamed_as_a_message(adapter, mode):
    agent, _, _ = talked(adapter, turns=0)
    streamed = []
    for question in asked():
        streamed += agent.stream({"messages": [("user", question)]}, THREAD, stream_mode=mode)
    assert len(values(agent)["messages"]) < 2 * TURNS
    if mode == "messages":
        assert not [message for message, _ in streamed if isinstance(message, RemoveMessage)]


def test_the_recall_tool_reads_nothing_from_the_store():
    """Whoever can write one item to the store says nothing to the model through it."""
    answers = script(*["ok"] * TURNS, call("recall", "c", query="sentinel"), "found")
    store, model = InMemoryStore(), model_of(1500, policy=answers)
    agent = create_context_agent(model, [create_recall_tool()], checkpointer=InMemorySaver(), store=store, **ARCHIVED)
    for question in [*asked(2), f"the sentinel is zebra-17. {LONG}", *asked(TURNS, first=3)]:
        ask(agent, question)
    assert "zebra-17" not in str(values(agent)["messages"])
    ask(agent, "What was it?")
    (result,) = [message for message in values(agent)["messages"] if message.type == "tool"]
    assert "zebra-17" not in result.text


def planted(kind, packed):
    """Return the value of a part that somebody else wrote."""
    text = base64.b64encode(zlib.compress(packed)).decode("ascii")
    return {"previous": "", "place": "", "runs": [["", 1]], "kind": kind, "messages": text}


@pytest.mark.parametrize("what", ["code", "json", "bomb", "no messages", "itself", "one before it"])
def test_what_somebody_else_wrote_into_the_store_runs_no_code_and_is_read_to_an_end(what, tmp_path):
    agent, store, _ = talked("nodes")
    view = values(agent)["context_view"]["archived"]
    item = store.get((*NAMESPACE, view["place"]), view["newest"])
    marker = tmp_path / "marker"
    made = {
        "code": planted("msgpack", ormsgpack.packb([ormsgpack.Ext(0, ormsgpack.packb(("os", "mkdir", str(marker))))])),
        "json": planted("json", b'[{"lc": 2, "type": "constructor", "id": ["os", "getpid"], "args": []}]'),
        "bomb": planted("msgpack", ormsgpack.packb(["a" * (archiving.MAX_PART_BYTES + 1)])),
        "no messages": planted("msgpack", ormsgpack.packb([])),
        "itself": {**item.value, "previous": item.key},
        "one before it": {**item.value, "previous": item.key, "place": view["place"]},
    }
    store.put(item.namespace, item.key, made[what])
    with pytest.raises(ArchiveError, match=item.key[:8]):
        full_history(values(agent), store)
    assert not marker.exists()


@pytest.mark.parametrize("damage", ["gone", "changed", "no store"])
def test_what_cannot_be_read_is_an_error_that_says_what_is_missing(damage):
    agent, store, _ = talked("nodes")
    item = store.search(NAMESPACE)[0]
    if damage == "gone":
        store.delete(item.namespace, item.key)
    elif damage == "changed":
        store.put(item.namespace, item.key, {**item.value, "messages": "AAAA"})
    with pytest.raises(ArchiveError, match="pass store" if damage == "no store" else item.key[:8]):
        full_history(values(agent), None if damage == "no store" else store)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_archive_is_read_whole_and_goes_with_its_thread(is_async):
    agent, store, _ = talked("nodes")
    state, thread = values(agent), THREAD["configurable"]["thread_id"]
    store.put((*NAMESPACE, "another"), "k", {})
    whole = asyncio.run(afull_history(state, store)) if is_async else full_history(state, store)
    assert questions(whole) == asked()
    asyncio.run(adelete_archive(store, thread)) if is_async else delete_archive(store, thread)
    assert [item.key for item in store.search(NAMESPACE)] == ["k"]


def test_a_checkpointer_without_a_store_is_refused_and_a_graph_without_one_is_told_once():
    with pytest.raises(ConfigError, match="needs a checkpointer and a store"):
        create_context_agent(model_of(1500), [], checkpointer=InMemorySaver(), **ARCHIVED)
    agent = agent_on("middleware", model_of(1500), **ARCHIVED)
    with capture_logs() as logs:
        for question in asked():
            ask(agent, question)
    assert [entry["event"] for entry in logs].count("history.not_archived") == 1
    assert questions(values(agent)["messages"]) == asked()
