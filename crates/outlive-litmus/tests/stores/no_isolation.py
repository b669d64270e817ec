"""A store without isolation, which tests must find: each step takes effect at once, and neither an
abort nor the death of the process undoes it. Target: exec:python3 no_isolation.py PATH."""

import os, sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "examples"))
from dict_store import Store, serve


class NoIsolation:
    """Executes each step as a transaction of a correct store."""

    def __init__(self, path):
        self.store = Store(path)

    def begin(self):
        pass

    commit = abort = begin

    def __getattr__(self, name):
        execute = getattr(self.store, name)
        if name in ("hello", "create", "set", "destroy"):
            return execute

        def execute_alone(**arguments):
            self.store.begin()
            try:
                return execute(**arguments)
            finally:
                self.store.abort() if name in ("read", "count") else self.store.commit()

        return execute_alone


serve(NoIsolation(sys.argv[1]))
