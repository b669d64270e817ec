#!/usr/bin/env python3
"""A store for `outlive litmus`: a dictionary in a file, which executes one transaction at a time.

Target: exec:python3 dict_store.py PATH. Each connection is a process that runs this program. A
transaction holds the lock of the file from its begin to its end, and changes a copy of the
dictionary; its commit replaces the file. docs/litmus-driver.md describes requests and answers.
"""

import fcntl, json, os, sys


class Failure(Exception):
    """Ends the transaction, and is the answer: its kind and the reason."""


class Store:
    """Executes each request by the method of its name, with its other fields as arguments."""

    def __init__(self, path):
        self.path, self.objects = path, {}
        self.lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT, 0o600)

    def hello(self, version):
        return {"version": 1, "insert_delete": True, "count": True, "abort": True}

    def begin(self):
        fcntl.flock(self.lock, fcntl.LOCK_EX)  # The system releases it if this process dies.
        self.objects = {}
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.objects = {int(key): value for key, value in json.load(file).items()}

    def read(self, key):
        return self.objects.get(key)

    def require(self, condition):
        if not condition:
            raise Failure("refused", "the object is absent, or exists already")

    def write(self, key, value):
        self.require(key in self.objects)
        self.objects[key] = value

    def insert(self, key, value):
        self.require(key not in self.objects)
        self.objects[key] = value

    def delete(self, key):
        self.require(key in self.objects)
        del self.objects[key]

    def count(self, to, **rest):
        return sum(rest["from"] <= key < to for key in self.objects)

    def commit(self):
        with open(self.path + ".new", "w") as file:
            json.dump(self.objects, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)  # A crash leaves the old file or the new one.
        self.abort()

    def abort(self):
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def create(self):
        self.begin()
        if self.objects:
            raise Failure("error", f"{self.path} has objects of another run; remove the file")
        self.commit()

    def set(self, objects):
        self.begin()
        self.objects.update(objects)
        self.objects = {key: it for key, it in self.objects.items() if it is not None}
        self.commit()

    def destroy(self):
        self.begin()
        if os.path.exists(self.path):
            os.remove(self.path)
        self.abort()


def serve(store):
    """Answers requests until the tester closes the standard input."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(store, request.pop("do"))(**request)}
        except Failure as failure:
            store.abort()
            answer = {failure.args[0]: failure.args[1]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(Store(sys.argv[1]))
