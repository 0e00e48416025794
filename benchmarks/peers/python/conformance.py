"""Python's lock libraries as clients of the conformance suite: see benchmarks/conformance/src/process.rs.

The arguments are the library, the URL of its server, and the TTL in milliseconds that a client has if its locks have none.
"""

import json
import os
import sys
import threading
import time


class Failed(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class RedisPy:
    """Each acquire has a lock of its own. It is not cancelled: what is granted too late is released."""

    def __init__(self, url, ttl):
        import redis

        self.redis = redis
        self.client = redis.Redis.from_url(url)
        self.version = redis.__version__

    def acquire(self, name, ttl, wait, acquire):
        lock = self.client.lock(name, timeout=ttl, thread_local=False)
        if wait == 0:
            return lock if self.call(lock.acquire, blocking=False) else None
        if self.call(lock.acquire, blocking_timeout=wait):
            return lock
        raise Failed("timeout", "acquire returned False")

    def release(self, lock):
        self.call(lock.release)

    def extend(self, lock, ttl):
        self.call(lock.extend, ttl, replace_ttl=True)

    def state(self, lock):
        return {"state": "held"}

    def call(self, function, *arguments, **options):
        try:
            return function(*arguments, **options)
        except self.redis.exceptions.LockError as error:
            raise Failed("lost", str(error))
        except (self.redis.exceptions.ConnectionError, self.redis.exceptions.TimeoutError) as error:
            raise Failed("unavailable", str(error))


class Kazoo:
    """Each acquire has a lock of its own. It connects with its first acquire."""

    def __init__(self, url, session):
        import kazoo.client
        import kazoo.exceptions
        import kazoo.version

        self.kazoo = kazoo
        self.version = kazoo.version.__version__
        hosts = url.removeprefix("zookeeper://").split("/")[0].split("?")[0]
        self.client = kazoo.client.KazooClient(hosts=hosts, timeout=session)
        self.client.add_listener(self.listen)
        self.starting = threading.Lock()
        self.is_suspended = False
        self.losses = 0

    def listen(self, state):
        self.is_suspended = state != self.kazoo.client.KazooState.CONNECTED
        if state == self.kazoo.client.KazooState.LOST:
            self.losses += 1

    def acquire(self, name, ttl, wait, acquire):
        with self.starting:
            if not self.client.connected:
                self.client.start()
        lock = self.client.Lock(name)
        acquire.cancelling = lock.cancel
        losses = self.losses
        try:
            if wait == 0:
                return (lock, losses) if lock.acquire(blocking=False) else None
            if lock.acquire(timeout=wait):
                return lock, losses
        except (self.kazoo.exceptions.LockTimeout, self.kazoo.exceptions.CancelledError) as error:
            raise Failed("timeout", str(error))
        raise Failed("timeout", "acquire returned False")

    def release(self, hold):
        lock, losses = hold
        lock.release()
        if self.losses > losses:
            raise Failed("lost", "the listener was told LOST")

    def state(self, hold):
        if self.losses > hold[1]:
            return {"state": "lost"}
        return {"state": "suspect" if self.is_suspended else "held"}


LIBRARIES = {"redis-py": RedisPy, "kazoo": Kazoo}

saying = threading.Lock()


def say(**answer):
    with saying:
        print(json.dumps(answer), flush=True)


class Acquire:
    def __init__(self):
        self.cancelled = threading.Event()
        self.cancelling = lambda: None
        self.hold = None


def main():
    library = LIBRARIES[sys.argv[1]](sys.argv[2], int(sys.argv[3]) / 1000)
    acquires = {}
    changing = threading.Lock()

    def acquire(id, acquire, order):
        wait = order["wait"]
        hold = library.acquire(
            order["name"], order["ttl"] / 1000, wait and wait / 1000, acquire
        )
        if hold is None:
            return {"busy": True}
        with changing:
            acquire.hold = hold
            late = acquire.cancelled.is_set()
        if late:
            library.release(hold)
        return {}

    def obey(order):
        try:
            kind = order["do"]
            if kind == "acquire":
                return acquire(order["id"], acquires[order["id"]], order)
            of = acquires[order["of"]]
            if kind == "release":
                library.release(of.hold)
                return {}
            if kind == "extend":
                library.extend(of.hold, order["ttl"] / 1000)
                return {}
            return library.state(of.hold)
        except Failed as error:
            return {"error": error.kind, "message": str(error)}
        except Exception as error:
            return {"error": "other", "message": f"{type(error).__name__}: {error}"}

    def cancel(of):
        with changing:
            of.cancelled.set()
            hold = of.hold
        of.cancelling()
        if hold is not None:
            library.release(hold)

    def run(order):
        say(id=order["id"], **obey(order))

    say(version=library.version)
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "acquire":
            acquires[order["id"]] = Acquire()
        elif order["do"] == "cancel":
            of = acquires[order["of"]]
            threading.Thread(target=cancel, args=[of], daemon=True).start()
            of.cancelled.wait()
            say(id=order["id"])
            continue
        threading.Thread(target=run, args=[order], daemon=True).start()
    # As a process that is killed ends: nothing is released.
    os._exit(0)


main()
