"""PageRank on Ray, as one writes it with numpy: a peer of the study `modc-fig4`.

pagerank_ray.py GRAPH ITERATIONS DAMPING ROWS WORKERS REPORT RANKS TEMPORARY [IN]

GRAPH is what pagerank_mpi.c reads. A task computes ROWS rows from the graph, which every worker process maps, and from
the vector, which is in Ray's object store; it returns its part of the next one. In iteration IN, the first of which is 1, the
process of one task is killed when it has computed its rows, and Ray makes another one do it. REPORT gets the line
"done ITERATIONS SECONDS RESIDUAL KILLED PROCESSOR", where the seconds are those of the iterations: Ray has been started and
its workers have been warmed up. PROCESSOR is the processor time of all of Ray's processes meanwhile. RANKS gets all
ranks, 64 bits each. Ray's own files go to TEMPORARY.
"""

import os
import signal
import sys
import time

import numpy as np
import ray

MAPPED = {}


def opened(path):
    """The graph at `path`: where rows begin, sources, how many edges leave each vertex."""
    magic, vertices, edges = np.memmap(path, np.uint64, "r", 0, 3)
    assert int(magic).to_bytes(8, "little") == b"outlgrp1", "the file is not a graph"
    vertices, edges = int(vertices), int(edges)
    begins = np.memmap(path, np.uint64, "r", 24, vertices + 1)
    at = 24 + 8 * (vertices + 1)
    sources = np.memmap(path, np.uint32, "r", at, edges)
    leaving = np.memmap(path, np.uint32, "r", at + 4 * edges, vertices)
    return begins, sources, leaving


def mapped(path):
    """The same in a worker, opened once. (Ray sends MAPPED along with the functions: in the driver it stays empty.)"""
    if path not in MAPPED:
        MAPPED[path] = opened(path)
    return MAPPED[path]


@ray.remote(max_retries=4)
def compute(path, first, last, damping, base, brings, marker):
    """Rows `first` to before `last`: what they bring next, how much they changed, the ranks that no edge leaves."""
    begins, sources, leaving = mapped(path)
    starts = begins[first : last + 1].astype(np.int64)
    leaving = leaving[first:last]
    brought = brings[sources[starts[0] : starts[-1]]]
    sums = np.zeros(last - first)
    some = starts[1:] > starts[:-1]
    if some.any():
        # The rows in between have no edges, so that one of these ends where the next begins.
        sums[some] = np.add.reduceat(brought, (starts[:-1] - starts[0])[some])
    ranks = base + damping * sums
    shares = np.maximum(leaving, 1)
    residual = np.abs(ranks - brings[first:last] * shares).sum()
    lost = ranks[leaving == 0].sum()
    if marker:
        try:
            with open(marker, "x") as note:
                note.write(str(time.process_time()))
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
    return ranks / shares, residual, lost


@ray.remote
def warm(path):
    """Starts a worker."""
    mapped(path)
    time.sleep(0.2)


def spent():
    """The processor seconds of this process and all below it that live, and of their children that they have waited for. Ray waits
    for no worker: one that was killed has written down what it took."""
    below, ticks = {}, {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/stat") as stat:
                # What comes after the name, which may have spaces in it: the state, the parent, and so on.
                words = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(words[1]), []).append(int(process))
        ticks[int(process)] = sum(map(int, words[11:15]))
    tree = [os.getpid()]
    for process in tree:
        tree.extend(below.get(process, []))
    return sum(ticks.get(process, 0) for process in tree) / os.sysconf("SC_CLK_TCK")


def main(path, iterations, damping, rows, workers, report, ranks, temporary, dies_in="0"):
    iterations, rows, workers = int(iterations), int(rows), int(workers)
    damping, dies_in = float(damping), int(dies_in)
    ray.init(
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=temporary,
    )
    ray.get([warm.remote(path) for _ in range(workers)])
    _, _, leaving = opened(path)
    vertices = len(leaving)
    even = 1.0 / vertices
    brings = even / np.maximum(leaving, 1)
    lost = np.count_nonzero(leaving == 0) * even
    parts = [(first, min(first + rows, vertices)) for first in range(0, vertices, rows)]
    marker, residual = temporary + "/killed", float("inf")
    before, began = spent(), time.perf_counter()
    for iteration in range(1, iterations + 1):
        base = (1.0 - damping) * even + damping * lost * even
        there = ray.put(brings)
        tasks = [
            compute.remote(
                path, first, last, damping, base, there,
                marker if iteration == dies_in and part == len(parts) // 2 else None,
            )
            for part, (first, last) in enumerate(parts)
        ]
        found = ray.get(tasks)
        brings = np.concatenate([part for part, _, _ in found])
        residual = sum(changed for _, changed, _ in found)
        lost = sum(dangling for _, _, dangling in found)
    seconds, processor = time.perf_counter() - began, spent() - before
    was_killed = os.path.exists(marker)
    if was_killed:
        with open(marker) as note:
            processor += float(note.read())
    (brings * np.maximum(leaving, 1)).astype(np.float64).tofile(ranks)
    with open(report, "a") as out:
        out.write(f"done {iterations} {seconds:.9f} {residual:.17g} {int(was_killed)} {processor:.2f}\n")
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
