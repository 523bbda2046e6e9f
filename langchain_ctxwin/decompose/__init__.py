"""Work that exceeds any window: split it, answer from each part, combine the answers.

    graph    split -> map (each part, at the same time) -> collect -> [reduce -> collect] until one answer is left
    parts    the parts of a level, cut where a reader would cut, and the request for each

Every chunk is in one part, and what fails is reported with its chunks.
"""

from __future__ import annotations

from langchain_ctxwin.decompose.graph import (
    MapReduceInput,
    MapReduceOutput,
    asplit_question,
    create_map_reduce_graph,
    split_question,
)

__all__ = ["MapReduceInput", "MapReduceOutput", "asplit_question", "create_map_reduce_graph", "split_question"]
