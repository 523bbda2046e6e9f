"""Work that exceeds any window: split it, answer from each part, combine the answers.

    graph        split -> map (each part, at the same time) -> collect -> [reduce -> collect] until one answer is left
    nodes        its nodes; collecting decides what comes next; state: what checkpoints keep
    parts        the parts of a level: chunks -> splitting (where: boundaries; how large: sizes; sources: citing)
    attempts     one part: its call (prompts), and smaller ones when it is refused
    questions    splits the question itself

Every chunk is in one part, and what fails is reported with its chunks.
"""

from __future__ import annotations

from langchain_ctxwin.decompose.graph import create_map_reduce_graph
from langchain_ctxwin.decompose.questions import asplit_question, split_question
from langchain_ctxwin.decompose.state import MapReduceInput, MapReduceOutput

__all__ = ["MapReduceInput", "MapReduceOutput", "asplit_question", "create_map_reduce_graph", "split_question"]
