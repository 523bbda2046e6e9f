"""The loop around one model call: steps, recovery, the LangGraph nodes, a ready agent and the middleware."""
