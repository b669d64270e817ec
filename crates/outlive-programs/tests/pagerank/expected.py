"""Ranks as networkx computes them, for the test of PageRank against an independent implementation.

    python3 -m venv v && v/bin/pip install networkx scipy
    v/bin/python expected.py GRAPH > GRAPH.ranks

GRAPH is an edge list, or a Matrix Market file if it is called .mtx, plain or compressed by gzip; or
rmat:SCALE:EDGEFACTOR:SEED, which is generated here once more.
"""

import gzip
import io
import sys

import networkx
import scipy

DAMPING = 0.85
# What networkx calls tol is multiplied by the number of vertices; this leaves nothing that 1e-9 could see.
RESIDUAL = 1e-14

STEP = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def mixed(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def rmat(scale, edge_factor, seed):
    """Each edge by a SplitMix64 of its own, 32 bits of it for each level, the low ones first."""
    for number in range(edge_factor << scale):
        state = mixed(seed ^ mixed((number + STEP) & MASK))
        start = end = 0
        for level in range(scale):
            if level % 2 == 0:
                state = (state + STEP) & MASK
                random = mixed(state)
            part = (random & 0xFFFFFFFF) / 2**32
            random >>= 32
            quarter = 0 if part < 0.57 else 1 if part < 0.76 else 2 if part < 0.95 else 3
            start = 2 * start + quarter // 2
            end = 2 * end + quarter % 2
        yield start, end


path = sys.argv[1]
if path.startswith("rmat:"):
    scale, edge_factor, seed = map(int, path.split(":")[1:])
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(2**scale))
    graph.add_edges_from(rmat(scale, edge_factor, seed))
    names = {vertex: vertex for vertex in graph}
else:
    data = open(path, "rb").read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if path.endswith(".mtx"):
        matrix = scipy.io.mmread(io.BytesIO(data)).tocsr()
        matrix.data[:] = 1
        graph = networkx.from_scipy_sparse_array(matrix, create_using=networkx.DiGraph)
        names = {vertex: vertex + 1 for vertex in graph}
    else:
        lines = io.BytesIO(data)
        graph = networkx.read_edgelist(lines, create_using=networkx.DiGraph, data=False)
        names = {vertex: vertex for vertex in graph}
ranks = networkx.pagerank(graph, alpha=DAMPING, max_iter=2000, tol=RESIDUAL / len(graph), weight=None)
print(f"# networkx {networkx.__version__}, scipy {scipy.__version__}; damping {DAMPING}, residual below {RESIDUAL}")
print(f"# {len(graph)} vertices, {graph.number_of_edges()} edges")
for vertex, rank in ranks.items():
    print(f"{names[vertex]}\t{float(rank)!r}")
