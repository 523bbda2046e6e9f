"""The LangGraph adapter: state, nodes, wiring and a ready agent."""
