"""Is every model call inside a piece of work counted, and nothing else?"""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers import context as tracers

from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.summarize import ModelSummarizer, Written, awrite_summary, write_summary
from langchain_ctxwin.summarize.jobs import _Meter, ametered, metered
from langchain_ctxwin.util.background import in_daemon
from support.fakes import ScriptedChatModel, SdkError, script

ASK = [HumanMessage("Please keep my notes: the ticket is ABC-1, the owner is Ann, and the deadline is on Friday.")]


def model_of(*answers, faults=()):
    """A chat model that plays the answers and reports its usage."""
    return ScriptedChatModel(policy=script(*answers), faults=list(faults))


def paid(model):
    """Input tokens of every request that was answered."""
    return sum(request.tokens for request in model.requests if not request.refused)


def test_a_call_is_counted_with_its_tokens_and_time():
    """One call: its reported tokens, and the seconds by the given clock."""
    model = model_of("a b c")
    ticks = count(10)
    written = metered(lambda: model.invoke(ASK).text, lambda: next(ticks))
    output = model.invoke(ASK).usage_metadata["output_tokens"]
    assert written == Written(
        text="a b c", calls=1, input_tokens=model.requests[0].tokens, output_tokens=output, seconds=1
    )


def test_work_without_a_model_costs_nothing():
    """A callable that extracts text has no calls."""
    assert metered(lambda: "text", lambda: 3.0) == Written(text="text")


def test_a_clock_that_runs_backwards_costs_no_negative_time():
    """Seconds are never negative."""
    ticks = iter([5.0, 1.0])
    assert metered(lambda: "text", lambda: next(ticks)).seconds == 0.0


def test_failed_calls_are_counted_too():
    """A retry after an error is a second call; only the answered one reports tokens."""
    model = model_of("done", faults=[SdkError("busy", status_code=503)])
    written = metered(lambda: model.with_retry(wait_exponential_jitter=False).invoke(ASK).text)
    assert (written.calls, written.input_tokens) == (2, paid(model))


def test_nested_runnables_and_streams_are_counted_once():
    """Neither a wrapper around the model nor a stream counts a call twice."""
    model = model_of("streamed answer")

    def work():
        inner = RunnableLambda(lambda messages: model.invoke(messages).text) | RunnableLambda(str.upper)
        streamed = "".join(chunk.text for chunk in model.stream(ASK))
        return inner.invoke(ASK) + streamed + "".join(reply.text for reply in model.batch([ASK, ASK]))

    written = metered(work)
    assert (written.calls, written.input_tokens) == (4, paid(model))


async def test_async_calls_are_counted():
    """Calls awaited in the work count, concurrent ones too."""
    model = model_of("answer")

    async def work():
        return "".join(reply.text for reply in await model.abatch([ASK, ASK, ASK]))

    written = await ametered(work)
    assert (written.calls, written.input_tokens) == (3, paid(model))


def test_calls_outside_the_work_are_not_counted():
    """The meter ends with the work, also when that fails."""
    model = model_of("answer")
    with pytest.raises(ZeroDivisionError):
        metered(lambda: str(1 / 0))
    model.invoke(ASK)
    written = metered(lambda: "text")
    model.invoke(ASK)
    assert written.calls == 0


def test_parallel_work_is_counted_apart():
    """Each of many threads counts its own calls."""
    model = model_of("answer")

    def work(calls):
        return metered(lambda: "".join(model.invoke(ASK).text for _ in range(calls))).calls

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(20))) == list(range(20))


def test_the_hook_is_registered_once_however_much_is_metered():
    """LangChain never removes a hook: a thousand summaries leave one."""
    barrier = threading.Barrier(8)

    def work():
        barrier.wait()
        return [metered(lambda: "text") for _ in range(100)]

    for job in [in_daemon(work) for _ in range(8)]:
        job.result(30)
    ours = [hook for hook in tracers._configure_hooks if hook[0].name == "ctxwin_summary_meter"]
    assert len(ours) == 1


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": None}, {"input_tokens": -5, "output_tokens": "7"}, {"input_tokens": 1.5}]
)
def test_an_odd_usage_report_counts_as_nothing(usage):
    """What is not a positive whole number is not added."""
    meter = _Meter()
    meter.on_chat_model_start({}, [])
    message = AIMessage("text").model_copy(update={"usage_metadata": usage})
    meter.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]))
    meter.on_llm_end(LLMResult(generations=[[]]))
    meter.on_llm_end(LLMResult(generations=[]))
    assert meter.written("text", 0) == Written(text="text", calls=1)


async def test_a_timed_summary_says_what_it_cost():
    """Sync and async, the time box returns the text with its calls and tokens."""
    model = model_of("The user wants tea.")
    summarizer = ModelSummarizer(model)
    options = {"previous": "", "max_tokens": 50, "timeout_seconds": 10}
    direct = write_summary(summarizer, ASK, **options)
    awaited = await awrite_summary(summarizer, ASK, **options)
    assert (direct.text, direct.calls, direct.input_tokens) == ("The user wants tea.", 1, model.requests[0].tokens)
    assert direct.cost == awaited.cost


def test_a_crash_that_is_no_exception_is_a_failed_summary():
    """A panic in an extension ends the summary, not the turn."""

    class PanicError(BaseException):
        pass

    class Panicking:
        def summarize(self, messages, *, previous, max_tokens):
            raise PanicError("index out of bounds")

    with pytest.raises(Exception, match="the summarizer failed: PanicError: index out of bounds"):
        write_summary(Panicking(), ASK, previous="", max_tokens=50, timeout_seconds=10)


@given(
    st.builds(
        Written,
        text=st.text(min_size=1).filter(str.strip),
        calls=st.integers(0, 9),
        input_tokens=st.integers(0, 10**9),
        output_tokens=st.integers(0, 10**9),
        seconds=st.floats(0, 1e6),
    )
)
def test_json_brings_back_what_was_written(written):
    """A summary survives the way through JSON values."""
    assert Written.from_json(written.to_json()) == written


@pytest.mark.parametrize("value", [None, "text", [], {}, {"text": 1}, {"text": " "}, {"calls": 1}])
def test_json_that_is_no_summary_is_none(value):
    """Damaged values are recognized."""
    assert Written.from_json(value) is None


def test_odd_numbers_in_json_count_as_nothing():
    """The text is worth keeping although its cost is unreadable."""
    odd = {"text": "t", "calls": "3", "input_tokens": -1, "output_tokens": None, "seconds": "x", "extra": 1}
    assert Written.from_json(odd) == Written(text="t")


async def test_a_failure_keeps_its_cause():
    """Awaited or not, the error that a summarizer explains itself is raised as it is."""
    cause = SdkError("busy", status_code=503)

    class Failing:
        def summarize(self, messages, *, previous, max_tokens):
            raise SummarizationError("no summary") from cause

        async def asummarize(self, messages, *, previous, max_tokens):
            raise SummarizationError("no summary") from cause

    options = {"previous": "", "max_tokens": 50, "timeout_seconds": 10}
    with pytest.raises(SummarizationError) as awaited:
        await awrite_summary(Failing(), ASK, **options)
    with pytest.raises(SummarizationError) as blocked:
        write_summary(Failing(), ASK, **options)
    assert (awaited.value.__cause__, blocked.value.__cause__) == (cause, cause)
