"""Work that exceeds any window: split it, answer from each part, combine the answers."""

from __future__ import annotations

from langchain_ctxwin.decompose.graph import create_map_reduce_graph
from langchain_ctxwin.decompose.questions import asplit_question, split_question
from langchain_ctxwin.decompose.state import MapReduceInput, MapReduceOutput

__all__ = ["MapReduceInput", "MapReduceOutput", "asplit_question", "create_map_reduce_graph", "split_question"]
