"""What surrounds one model call, the same for the LangGraph nodes and the middleware."""
