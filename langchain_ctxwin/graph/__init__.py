"""Where the states of a graph are imported from; the code is in `agent/`."""
