"""Does the drawing of an agent's graph show every node and every way between them?"""

from langgraph.graph import END, START, StateGraph

from langchain_ctxwin import ContextEngine, ContextNodes, ContextState, ModelLimits, add_context_nodes
from support.desk import TOOLS, agent_of
from support.fakes import ScriptedChatModel

NODES = {"budget_check", "maybe_summarize", "force_compress", "build_messages", "agent", "tools"}
CONDITIONAL = {
    ("budget_check", "build_messages"),
    ("budget_check", "force_compress"),
    ("budget_check", "maybe_summarize"),
    ("maybe_summarize", "build_messages"),
    ("maybe_summarize", "force_compress"),
    ("maybe_summarize", END),
    ("agent", "tools"),
    ("agent", "maybe_summarize"),
}
FIXED = {
    (START, "budget_check"),
    ("force_compress", "build_messages"),
    ("build_messages", "agent"),
    ("tools", "budget_check"),
}


def test_the_ready_agent_is_drawn_whole():
    """The drawing has the six nodes, the conditional edges dotted and the fixed ones solid."""
    graph = agent_of(ScriptedChatModel(), 1000, tools=TOOLS).get_graph()
    edges = {(edge.source, edge.target, edge.conditional) for edge in graph.edges}
    assert set(graph.nodes) == NODES | {START, END}
    assert edges == {(*edge, True) for edge in CONDITIONAL} | {(*edge, False) for edge in FIXED}


def test_mermaid_text_names_the_nodes_and_the_edges():
    """Each node and each edge has its line in the Mermaid text."""
    text = agent_of(ScriptedChatModel(), 1000, tools=TOOLS).get_graph().draw_mermaid()
    lines = [line.strip().rstrip(";") for line in text.splitlines()]
    assert [name for name in NODES if not any(line.startswith(f"{name}(") for line in lines)] == []
    drawn = {(line.split(" ")[0], line.split(" ")[-1]) for line in lines if "-->" in line or ".->" in line}
    assert drawn == CONDITIONAL | FIXED


def test_the_way_after_a_finished_turn_can_lead_on():
    """`after` is drawn in place of the end, and the model node has the name it was given."""
    nodes = ContextNodes(ContextEngine(limits=ModelLimits(1000)))
    builder = StateGraph(ContextState)
    add_context_nodes(builder, nodes, model_node="writer", model=ScriptedChatModel(), after="review")
    builder.add_node("review", lambda state: {})
    builder.add_edge(START, "budget_check").add_edge("writer", "maybe_summarize").add_edge("review", END)
    edges = {(edge.source, edge.target, edge.conditional) for edge in builder.compile().get_graph().edges}
    assert ("maybe_summarize", "review", True) in edges
    assert ("build_messages", "writer", False) in edges
    assert not [edge for edge in edges if edge[0] == "maybe_summarize" and edge[1] == END]
