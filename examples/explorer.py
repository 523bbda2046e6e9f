"""The graph that `langgraph dev` serves (see `langgraph.json`): a ready agent that explores a folder.

    CTXWIN_DEMO_MODEL=google_genai:gemini-... CTXWIN_DEMO_FOLDER=~/project langgraph dev

Without these two it runs offline, over this package's own files. The size of every request and every compaction is in
the custom stream (`stream_mode="custom"`). The server brings checkpointer and store.
"""

from __future__ import annotations

import os
from pathlib import Path

from langchain_ctxwin import create_context_agent
from langchain_ctxwin.demo import stories
from langchain_ctxwin.demo.stories import EXPLORER_PROMPT, Folder, explore, offline
from langchain_ctxwin.observe import StreamSink

# the window is small enough that a handful of questions fills it
model = os.environ.get("CTXWIN_DEMO_MODEL") or offline(4_000, explore)
folder = Folder.open(
    Path(
        os.environ.get("CTXWIN_DEMO_FOLDER") or Path(stories.__file__).parent
    ).expanduser()
)
graph = create_context_agent(
    model, folder.tools(), system_prompt=EXPLORER_PROMPT, sinks=[StreamSink(steps=True)]
)
