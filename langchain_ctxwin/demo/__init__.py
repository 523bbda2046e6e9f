"""The demo: `ctxwin demo` plays its stories; `langgraph dev` serves its agent."""
