"""Holds locks as redis-py does. Obeys lines on its standard input, one answer for each:

try KEY MS: true or false. wait KEY MS: true when it has it. drop KEY: "released", or why not. owned KEY: true or false.
add KEY LOCK TIMES: reads and writes a counter so often, under the lock.
"""

import sys

import redis

server = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]), decode_responses=True)
locks = {}


def lock(key, ms=None):
    timeout = None if ms is None or ms == "forever" else int(ms) / 1000
    return server.lock(key, timeout=timeout, sleep=0.005)


def add(counter, key, times):
    for _ in range(int(times)):
        with lock(key, 60000):
            value = int(server.get(counter) or 0)
            server.set(counter, value + 1)
    return "done"


def obey(command, key, *rest):
    if command == "add":
        return add(key, *rest)
    if command in ("try", "wait"):
        locks[key] = lock(key, *rest)
        return str(locks[key].acquire(blocking=command == "wait")).lower()
    if command == "owned":
        return str(locks[key].owned()).lower()
    try:
        locks[key].release()
        return "released"
    except redis.exceptions.LockError as error:
        return type(error).__name__


for line in sys.stdin:
    print(obey(*line.split()), flush=True)
