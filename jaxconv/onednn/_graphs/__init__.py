"""Graphs of oneDNN Graph: read from JSON, checked, run.

graph.py       the records: a graph, its nodes and its tensors
load.py        reading a graph from JSON
kinds.py       the kinds that are no convolution, as a table
inputs.py      the arrays that a graph is run on
partitions.py  each convolution with the nodes that are computed together with it
run.py         `run_graph`, partition by partition and node by node
"""
