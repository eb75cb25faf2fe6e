"""Graphs of oneDNN Graph: read from JSON, checked, run node by node, written.

graph.py                   what a graph is
load.py                    how one is read from JSON
kinds.py, quantisation.py  the kinds that are no convolution, as a table
inputs.py                  what a graph is given
run.py                     `run_graph`, node by node
write.py                   `write_graph`: a convolution and what follows it
"""
