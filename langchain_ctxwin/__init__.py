"""Context-window management for LangChain and LangGraph agents."""
