//! The parts that take time and hold values: caches, links, the switch, memory.
