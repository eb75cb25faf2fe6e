"""Graphs of oneDNN Graph: read from JSON, checked, run node by node, written.

graph.py                   the records: a graph, its nodes and its tensors
load.py                    reading a graph from JSON
kinds.py, quantisation.py  the kinds that are no convolution, as a table
inputs.py                  the arrays that a graph is run on
run.py                     `run_graph`, node by node
write.py                   `write_graph`: a convolution and the kinds that follow
"""
