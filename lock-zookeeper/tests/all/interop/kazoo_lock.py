"""Holds locks as kazoo does. Obeys lines on its standard input, one answer for each:

try PATH: true or false. wait PATH: true when it has it. drop PATH: "released". add NODE PATH TIMES: reads and writes a
counter so often, under the lock.
"""

import sys

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1], timeout=50)
client.start(timeout=20)
locks = {}


def lock(path):
    if path not in locks:
        # Without this pattern it would not count polylock's nodes.
        locks[path] = client.Lock(path, "kazoo", extra_lock_patterns=["-lock-"])
    return locks[path]


def add(node, path, times):
    for _ in range(int(times)):
        with lock(path):
            value, _ = client.get(node)
            client.set(node, str(int(value) + 1).encode())
    return "done"


def obey(command, path, *rest):
    if command == "add":
        return add(path, *rest)
    if command in ("try", "wait"):
        return str(lock(path).acquire(blocking=command == "wait")).lower()
    lock(path).release()
    return "released"


for line in sys.stdin:
    print(obey(*line.split()), flush=True)
