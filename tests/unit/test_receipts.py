"""Does a receipt count what left, however it is computed?"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.core.pins import step_at
from langchain_ctxwin.core.receipts import extended_receipt, receipt_of
from langchain_ctxwin.core.turns import split_steps
from langchain_ctxwin.core.view import View, position_of
from support.conversations import conversations


@given(data=st.data(), messages=conversations())
def test_a_receipt_extended_step_by_step_is_the_receipt_of_the_whole(data, messages):
    """Whatever was covered, pinned and unpinned in between; what leads the history is whole steps."""
    first = data.draw(st.sampled_from([0, *(step.index for step in split_steps(messages) if step.index == 1)]))
    starts = [step.index for step in split_steps(messages) if step.index > first]
    covered = data.draw(st.sampled_from([None, *starts[: len(starts) // 2]]))
    view = View(covered=position_of(messages, covered - 1) if covered else None)
    for start in sorted(data.draw(st.sets(st.sampled_from(starts or [0]), max_size=4))):
        if start == 0 or start < (covered or 0):
            continue
        wanted = data.draw(st.sets(st.integers(first, start - 1) if start > first else st.just(0), max_size=4))
        shown = {i for w in wanted for i in range(step_at(messages, w, start).index, step_at(messages, w, start).stop)}
        moved = replace(
            view,
            start=position_of(messages, start),
            pinned=tuple(position_of(messages, index) for index in sorted(shown)),
        )
        receipt = extended_receipt(messages, view, moved, first=first, tokens=0)
        assert receipt == receipt_of(messages, moved, first=first, tokens=0)
        view = replace(moved, receipt=receipt)
