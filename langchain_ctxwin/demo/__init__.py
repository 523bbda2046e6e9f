"""The demo: `ctxwin demo` plays its stories, `langgraph dev` serves their agent (`examples/explorer.py`)."""
