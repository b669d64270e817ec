"""Puts objects into shared memory and gets them, in Python, and prints the times as one line of JSON.

    python3 objects.py CALLS BYTES...

Times are medians in nanoseconds, less that of an empty call. "shared_memory" is Python's own module:
a file in /dev/shm for each object, which a get maps. "plasma" is Ray's object store, or null without
Ray. Its objects have no names; a get is asked for a reference that the process has.
"""

import json
import statistics
import sys
import time
from multiprocessing import resource_tracker, shared_memory


def median(calls, call):
    """Returns the median time of a call, less that of an empty one. `call` gets its number."""

    def empty(_):
        pass

    def times(function):
        found = []
        for number in range(calls):
            begin = time.perf_counter_ns()
            function(number)
            found.append(time.perf_counter_ns() - begin)
        return statistics.median(found)

    return max(0, times(call) - times(empty))


def of_shared_memory(calls, size):
    data = bytes(size)
    names = [f"outlive-study-{size}-{number}" for number in range(calls)]

    def put(number):
        block = shared_memory.SharedMemory(name=names[number], create=True, size=size)
        block.buf[:size] = data
        block.close()

    def get(number):
        block = shared_memory.SharedMemory(name=names[number])
        first = block.buf[0]
        block.close()
        return first

    times = {"put": median(calls, put), "get": median(calls, get)}
    for name in names:
        block = shared_memory.SharedMemory(name=name)
        block.close()
        block.unlink()
    return times


def of_plasma(calls, size, ray, numpy):
    data = numpy.zeros(size, dtype=numpy.uint8)
    references = []

    def put(_):
        references.append(ray.put(data))

    def get(number):
        return ray.get(references[number])[0]

    return {"put": median(calls, put), "get": median(calls, get)}


def main():
    calls, sizes = int(sys.argv[1]), [int(size) for size in sys.argv[2:]]
    # Enough for the largest objects, few of which are made.
    each = {size: max(3, min(calls, (1 << 28) // size)) for size in sizes}
    found = {"shared_memory": {}, "plasma": None}
    for size in sizes:
        found["shared_memory"][size] = of_shared_memory(each[size], size)
    try:
        import numpy
        import ray
    except ImportError:
        ray = None
    if ray is not None:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
        found["plasma"] = {size: of_plasma(each[size], size, ray, numpy) for size in sizes}
        ray.shutdown()
    # The tracker of shared memory would report what was removed.
    resource_tracker._resource_tracker._stop()
    print(json.dumps(found))


main()
