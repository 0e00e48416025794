"""redis-py's Lock, played by order in threads: see benchmarks/load/src/serve.rs. The first argument is the server's URL.

It plays `own-N` alone: threads, each with a name of its own. Its clients send no fencing token and renew nothing.
"""

import json
import sys
import threading
import time

import redis

TTL_SECONDS = 30


class Stage:
    def __init__(self, url, workload):
        kind, _, number = workload.partition("-")
        if kind != "own" or not number.isdigit():
            raise ValueError(f"there is no workload {workload} here")
        self.client = redis.Redis.from_url(url)
        self.locks = [
            self.client.lock(f"redis-py:own/{task}", timeout=TTL_SECONDS, thread_local=False) for task in range(int(number))
        ]

    def round(self, millis):
        started = time.monotonic()
        deadline = started + millis / 1000
        times = [[] for _ in self.locks]
        errors = []

        def own(lock, times):
            try:
                begun = time.monotonic()
                while begun < deadline:
                    lock.acquire()
                    lock.release()
                    ended = time.monotonic()
                    times.append(ended - begun)
                    begun = ended
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=own, args=work) for work in zip(self.locks, times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        took = time.monotonic() - started
        sorted_times = sorted(took for of_one in times for took in of_one)
        quantile = lambda part: sorted_times[min(int(len(sorted_times) * part), len(sorted_times) - 1)] * 1e6
        return {"pairs/s": len(sorted_times) / took, "us-p50": quantile(0.5), "us-p99": quantile(0.99)}

    def close(self):
        self.client.close()


def main():
    url = sys.argv[1]
    print(json.dumps({"subjects": {"redis-py": redis.__version__}}), flush=True)
    stage = None
    for order in sys.stdin:
        words = order.split()
        answer = {}
        try:
            if words[0] == "enter":
                stage = Stage(url, words[2])
            elif words[0] == "round":
                answer = stage.round(int(words[2]))
            elif words[0] == "leave":
                stage.close()
            else:
                raise ValueError(f"this is no order: {order}")
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
