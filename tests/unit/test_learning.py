"""Do answers and refusals teach the engine the true size of the next request?"""

from __future__ import annotations

import json
import random
from statistics import fmean
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import BudgetExceededError, TokenEstimator, create_context_agent
from langchain_ctxwin.core.updates import MAX_MODELS
from support.reporting import COUNTER, PROMPT, TOOLS, Chat, Provider, model

PROVIDERS = [(400, 30, 0.12), (-200, 0, -0.1), (400, 40, 0.15), (0, 0, 0.05)]


@pytest.mark.parametrize("numbers", PROVIDERS)
def test_one_answer_makes_the_next_counts_right(numbers):
    chats = [Chat(Provider(*numbers), seed=seed) for seed in range(4)]
    windows = [(chat, window) for chat in chats for window in chat.talk()[1:]]
    quiet, thinking = Chat(Provider(*numbers)), Chat(Provider(*numbers))
    quiet.talk(4)
    thinking.talk(4, output=30_000)  # thoughts are not sent back
    assert thinking.ask().report == quiet.ask().report
    assert fmean(chat.error(window) for chat, window in windows) < 0.01
    assert {window.report["counted_by"] for _, window in windows} == {"usage"}


@pytest.mark.parametrize("numbers", PROVIDERS)
def test_counts_stay_right_after_a_compaction(numbers):
    """Within 2 % on average right after it, better than plain estimates, and better again after an answer."""
    chats = [Chat(Provider(*numbers), seed=seed) for seed in range(6)]
    for chat in chats:
        chat.talk()
    windows = [(chat, chat.compacted()) for chat in chats]
    assert {window.report["counted_by"] for _, window in windows} == {"estimate"}
    assert all(window.sizing.spans for _, window in windows)
    assert fmean(chat.error(window) for chat, window in windows) < 0.02
    assert fmean(chat.error(w) for chat, w in windows) < fmean(
        chat.plain_error(w) for chat, w in windows
    )
    assert fmean(chat.error(chat.talk(2)[1]) for chat in chats) < 0.01


def test_each_model_keeps_what_was_learned_about_it():
    chat, first, second = Chat(model=model("one")), Provider(), Provider(1500, 10, -0.1)
    chat.talk(8)
    chat.provider, chat.model = second, model("two")
    away = chat.talk(8)
    assert away[0].report["counted_by"] == "estimate"
    assert away[0].total_tokens == away[0].estimates.total_tokens
    assert fmean(map(chat.error, away[1:])) < 0.01
    chat.provider, chat.model = first, model("one")
    back = chat.talk(3)
    assert back[0].report["counted_by"] == "estimate"
    assert chat.error(back[0]) < 0.02 < chat.plain_error(back[0])


def test_a_restart_forgets_nothing():
    chat = Chat()
    chat.talk(12)
    for _ in range(2):
        before = chat.ask()
        chat.state = json.loads(json.dumps(chat.state))
        assert chat.measure().report == before.report
        chat.compacted()


def test_answers_without_usage_keep_the_anchor():
    chat = Chat()
    chat.talk(5)
    counts = chat.state["context_counts"]
    silent = [
        chat.ask()
        for _ in range(4)
        if chat.answer(chat.ask(), None).counts["anchor"] == counts["anchor"]
    ]
    assert [window.report["counted_by"] for window in silent] == ["usage"] * 4
    assert max(map(chat.error, silent)) < 0.02


def without_doubt(counts):
    """What is known about sizes but a report that was not believed."""
    return {
        **counts,
        "sizes": {
            name: {**sizes, "doubted": None} for name, sizes in counts["sizes"].items()
        },
    }


@pytest.mark.parametrize("tokens", [0, -7, True, 900.5, "900", 10**9, 5])
def test_a_size_that_cannot_be_is_ignored(tokens):
    chat = Chat()
    chat.talk(3)
    window = chat.ask()
    lesson = chat.answer(window, tokens)
    assert without_doubt(lesson.counts) == without_doubt(window.session.counts)
    assert "the provider reported" in lesson.ignored
    assert chat.error(chat.ask()) < 0.02


def test_a_fallback_is_learned_under_its_own_name():
    chat, own, other = (
        Chat(model=model("one")),
        Provider(300, 0, 0.1),
        Provider(900, 0, -0.1),
    )
    for turn in range(24):
        chat.provider = (own, other)[turn % 2]
        assert chat.answer(chat.ask(), by=("one", "two")[turn % 2]).ignored == ""
    offsets = {
        name: sizes["offset"]
        for name, sizes in chat.state["context_counts"]["sizes"].items()
    }
    assert offsets.keys() == {"one", "two"}
    # They never answer twice in a row, so that no text is counted on its own: what differs is in the offsets.
    regions = chat.ask().estimates
    texts = regions.history_tokens + COUNTER.count_text(PROMPT)
    assert offsets["two"] - offsets["one"] == pytest.approx(600 - 0.2 * texts, abs=250)


def test_an_alias_keeps_the_anchor():
    chat = Chat(model=model("m"))
    windows = chat.talk(by="m-2026-01-01")
    assert fmean(map(chat.error, windows[1:])) < 0.01
    assert {window.report["counted_by"] for window in windows[1:]} == {"usage"}
    assert [*chat.state["context_counts"]["sizes"]] == ["m-2026-01-01"]
    assert chat.error(chat.compacted()) < 0.03


def test_a_history_that_others_made_teaches():
    chat = Chat()
    chat.talk(12)
    chat.state = {}
    assert chat.ask().report["counted_by"] == "usage"
    alias = Chat(model=model("m"))
    alias.talk(6, by="m-2026")
    alias.state = {}
    alias.talk(1, by="m-2026")
    assert len(alias.ask().sizing.spans) == 6
    after = chat.compacted()
    assert after.sizing.spans
    assert chat.error(after) < 0.03 < chat.plain_error(after)


@pytest.mark.parametrize("edit", ["remove", "grow", "shrink", "repeat", "regenerate"])
def test_an_edited_history_is_counted_no_worse_than_plain(edit):
    """Spans that moved are dropped; those that were edited in place keep their share."""
    chat = Chat()
    chat.talk(12)
    at = next(
        i
        for i, message in enumerate(chat.messages)
        if i > 8 and isinstance(message, HumanMessage)
    )
    asked = chat.messages[at]
    if edit == "remove":
        del chat.messages[at - 1 : at + 1]
    elif edit == "regenerate":
        chat.messages.pop()
    else:
        factor = {"grow": 3, "shrink": 0, "repeat": 1}[edit]
        text = " ".join([str(asked.content)] * factor) or "gone"
        copied = asked.model_copy(
            update={"content": text, "id": asked.id if edit != "repeat" else "copy"}
        )
        chat.messages[at : at + (edit != "repeat")] = [copied]
    window = chat.ask()
    assert chat.error(window) < 0.02 < chat.plain_error(window)


def test_other_tools_keep_the_ratio():
    chat = Chat()
    chat.talk(10)
    known, other = chat.ask().sizing, chat.measure(tools=TOOLS[:1]).sizing
    assert known.ratio > 1.05
    assert (other.ratio, other.spans, other.offset, other.reports) == (
        known.ratio,
        known.spans,
        0.0,
        0,
    )


def test_the_state_stays_small():
    chat = Chat(window=6000)
    for number in range(500):
        chat.tools, chat.model = (
            TOOLS[: number // 40 % 5],
            model(f"model-{number // 50}", 6000),
        )
        chat.answer(chat.ask())
        assert len(json.dumps(chat.state["context_counts"])) < 6000
    assert chat.state["context_guard"]["compactions"] > 20
    assert len(chat.state["context_counts"]["sizes"]) == MAX_MODELS


def test_upper_bounds_hold_and_the_interval_narrows():
    """First and compacted requests included, of providers as far off as the estimator says."""
    doubt = Chat().ask().sizing.doubt
    held, widths = [], []
    for seed in range(25):
        rng = random.Random(seed)  # noqa: S311  # repeatable
        provider = Provider(
            rng.gauss(0, 200), 0, rng.gauss(0, doubt.ratio_sd), noise=doubt.noise_share
        )
        chat = Chat(provider, seed=seed)
        windows = (*chat.talk(), chat.compacted())
        held.append([window.upper_tokens >= chat.true(window) for window in windows])
        views = windows
        widths.append(
            [
                (view.upper_tokens - view.lower_tokens) / view.total_tokens
                for view in views
            ]
        )
    assert fmean(fmean(run) for run in held) >= 0.93
    first, tenth, compacted = (fmean(run[at] for run in widths) for at in (0, 10, 20))
    assert tenth < 0.02 < compacted < first / 2


def test_the_size_of_a_refused_request_is_believed():
    chat = Chat(Provider(slope=0.4))
    window = chat.ask(3000)
    stated = chat.true(window)
    assert chat.uncut(window, stated).total_tokens == pytest.approx(stated, rel=0.03)
    after = chat.refused(window, limit=int(0.7 * stated), actual=stated)
    assert after.total_tokens < stated
    assert chat.true(after) <= 0.7 * stated


@pytest.mark.parametrize("words", [5, 2000])
def test_the_size_of_a_refused_request_is_believed_over_an_anchor(words):
    chat = Chat()
    chat.talk(6)
    window = chat.ask(words)
    stated = int(1.5 * window.total_tokens)
    assert chat.uncut(window, stated).total_tokens == pytest.approx(stated, rel=0.05)


@pytest.mark.parametrize(
    "sizes", [{}, {"limit": 9000}, {"limit": 3000, "actual": 9000}]
)
def test_every_refusal_makes_the_request_smaller(sizes):
    chat = Chat()
    chat.talk(15)
    window = chat.ask(400)
    shown = [window.estimates.total_tokens]
    for _ in range(3):
        try:
            window = chat.refused(window, **sizes)
        except BudgetExceededError:
            break
        shown.append(window.estimates.total_tokens)
    assert len(shown) > 1
    assert shown == sorted(set(shown), reverse=True)


@pytest.mark.parametrize("actual", [5, 10**12, 0, -9000])
def test_an_absurd_stated_size_teaches_nothing(actual):
    silent, odd = Chat(), Chat()
    for chat, sizes in ((silent, {}), (odd, {"actual": actual})):
        chat.talk(6)
        chat.refused(chat.ask(900), **sizes)
    assert odd.state == silent.state


@pytest.mark.parametrize("factor", [2, 2.5, 3.5, 4, 40])
@pytest.mark.parametrize("before", [1, 5, 12])
def test_one_call_that_is_reported_several_times_over_is_not_believed(before, factor):
    chat, honest = Chat(), Chat()
    chat.talk(before)
    honest.talk(before + 1)
    assert (
        "far from our count"
        in chat.answer(chat.ask(), round(factor * chat.true(chat.ask()))).ignored
    )
    chat.messages[-1].usage_metadata = None
    assert chat.error(chat.ask()) < 0.035
    chat.talk(2)
    assert chat.error(chat.ask()) < 0.01


SUMS = {
    "the session": lambda sizes, rng: sum(sizes),
    "the last five calls": lambda sizes, rng: sum(sizes[-5:]),
    "the calls of a turn": lambda sizes, rng: sizes[-1] * rng.randint(1, 4),
    "the chunks of a stream": lambda sizes, rng: sizes[-1] * rng.randint(20, 60),
}


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("is_handed", [True, False])
@pytest.mark.parametrize("words", [None, 3, 400])
def test_sums_over_several_calls_are_not_believed(kind, is_handed, words):
    """Neither as they come with answers, nor in a history that others made."""
    chat, sizes, rng = Chat(Provider(0, 0, 0.05), window=60_000), [], random.Random(7)  # noqa: S311  # repeatable
    for turn in range(25):
        window = chat.ask(words)
        sizes.append(chat.true(window))
        chat.answer(window, SUMS[kind](sizes, rng))
        if not is_handed:
            chat.state = {}
        # the first one may have a hidden prompt
        assert not turn or chat.error(chat.ask(words)) < 0.35
    assert chat.state.get("context_guard", {}).get("compactions", 0) == 0


def test_a_size_above_the_limit_is_not_that_of_an_answered_request():
    chat = Chat(Provider(0, 0, 0), window=2_000)
    window = chat.ask(100)
    assert chat.answer(window, 2_001).ignored
    assert chat.ask().total_tokens < 1_500


def test_a_hidden_prompt_is_believed_when_it_is_told_again():
    chat = Chat(Provider(20_000, 0, 0), window=40_000)
    assert [bool(chat.answer(chat.ask()).ignored) for _ in range(5)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert chat.error(chat.ask()) < 0.01
    chat.state = {}
    assert chat.error(chat.ask()) < 0.01


@pytest.mark.parametrize("first", [True, False])
def test_one_inflated_report_is_outlived(first):
    chat = Chat()
    if not first:
        chat.talk(3)
    chat.say(18)
    assert [chat.say(1).ignored for _ in range(3)] == [""] * 3
    assert chat.error(chat.ask()) < 0.05


@pytest.mark.parametrize(("reported", "ignored"), [(900_000, 1)])
def test_reports_far_above_our_count_are_believed_when_they_agree(reported, ignored):
    """A provider that puts a book into the prompt says so every time."""
    chat = Chat(window=2_000_000)
    chat.add(HumanMessage(""), 40_000)
    first = chat.ask().estimates.total_tokens
    lessons = []
    for _ in range(12):
        window = chat.ask(60)
        grown = window.estimates.total_tokens - first
        lessons.append(chat.answer(window, reported + grown))
    assert [bool(lesson.ignored) for lesson in lessons] == [True] * ignored + [
        False
    ] * (12 - ignored)
    grown = chat.ask(60).estimates.total_tokens - first
    assert chat.ask(60).total_tokens == pytest.approx(reported + grown, rel=0.05)


@pytest.mark.parametrize(
    "server", ["cuts", "sums up", "counts what no cache holds", "takes turns"]
)
def test_reports_that_do_not_follow_the_conversation_are_never_believed(server):
    chat, total = Chat(window=2_000_000), 0
    chat.add(HumanMessage(""), 40_000)
    for turn in range(12):
        window = chat.ask(1_500)
        plain = window.estimates.total_tokens
        total += 20 * plain
        said = {
            "cuts": 4_096,
            "sums up": total,
            "counts what no cache holds": 1_900,
            "takes turns": 5_000 + 150 * turn,
        }
        by = f"model-{'ab'[turn % 2]}" if server == "takes turns" else ""
        assert chat.answer(window, said[server], by=by).ignored
    assert chat.ask(60).total_tokens >= plain


def test_an_honest_report_ends_a_row_of_others():
    chat = Chat()
    chat.talk(3)
    assert [bool(chat.say(factor).ignored) for factor in (0.1, 0.1, 1, 0.1, 0.1)] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert chat.error(chat.ask()) < 0.05


@pytest.mark.parametrize("factors", [(0.3,), (1, 1, 1), (1, 3, 1, 0.5)])
def test_no_report_leads_to_a_refusal_of_what_fits_by_our_plain_count(factors):
    chat = Chat(window=6000)
    for factor in factors:
        chat.say(factor)
    assert chat.ask(60).estimates.total_tokens <= 6000
    once = Chat(window=8000)
    once.answer(once.ask(20), 40_000)
    once.ask(20)


def test_what_another_model_reported_is_not_our_size():
    chat = Chat(Provider(900), model=model("one"))
    chat.talk(6, by="one-2026")
    chat.provider, chat.model, chat.state = Provider(0), model("two"), {}
    window = chat.ask()
    assert chat.error(window) <= chat.plain_error(window)


class CuttingModel(BaseChatModel):
    """A server that keeps a part of what exceeds its window, and reports the size of that."""

    window: int = 8_192
    kept: int
    sent: list[int]
    profile: Any = None

    @property
    def _llm_type(self):
        return "cutting"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.sent.append(TokenEstimator()(messages))
        size = self.sent[-1] if self.sent[-1] <= self.window else self.kept
        usage = {"input_tokens": size, "output_tokens": 4, "total_tokens": size + 4}
        answer = AIMessage(
            "Noted.", usage_metadata=usage, response_metadata={"model_name": "local"}
        )
        return ChatResult(generations=[ChatGeneration(message=answer)])


@pytest.mark.parametrize("kept", [5_000, 6_500], ids=["61 %", "79 %"])
def test_a_server_that_keeps_up_to_four_fifths_of_a_longer_request_is_noticed(kept):
    """A size below that of the request that it extends is not believed at once: each next one would look right then."""
    model = CuttingModel(
        kept=kept,
        sent=[],
        profile={"max_input_tokens": 32_768, "max_output_tokens": 1_024},
    )
    agent = create_context_agent(model, [], checkpointer=InMemorySaver())
    for turn in range(25):
        text = f"Crate {turn}: " + "it holds ripe pears from the valley farm. " * 80
        agent.invoke(
            {"messages": [("user", text)]}, {"configurable": {"thread_id": "1"}}
        )
    assert sum(size > model.window for size in model.sent) <= 4
