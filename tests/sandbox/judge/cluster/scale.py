"""What Ray adds to a judge's time, for N made-up GPUs: `python -m tests.sandbox.judge.cluster.scale N [N ...]`.

Each question takes SECONDS. For each N: answers a minute, and what a question takes beside SECONDS while all GPUs are
busy. Last: how long the pool takes to hand out 10,000 pieces of work that do nothing.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

SECONDS, EACH = 1.0, 12


def main(counts: list[int]) -> None:
    import ray

    from tests.sandbox.judge.cluster.test_cluster_pool import Hosts, uuid, within

    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            os.environ["XDG_RUNTIME_DIR"] = name
            hosts = Hosts(Path(name))
            hosts.machine.control(seconds=SECONDS)
            for half in (count // 2, count - count // 2):
                if half:
                    hosts.started.add_node(num_cpus=1, num_gpus=half)
            pool = hosts.pool()
            try:
                assert within(300, lambda pool=pool, count=count: len(pool.all) == count)
                list(
                    pool.together({str(i): lambda pool=pool: uuid(pool) for i in range(2 * count)})
                )  # starts processes
                began = time.monotonic()
                done = len(dict(pool.together({str(i): lambda pool=pool: uuid(pool) for i in range(EACH * count)})))
                took = time.monotonic() - began
                row = {"gpus": count, "per_minute": round(60 * done / took, 1)}
                row["beside_ms"] = round(1000 * (took / EACH - SECONDS), 1)
                began = time.monotonic()
                handed = len(dict(pool.together({str(i): lambda: None for i in range(10_000)})))
                row["handing_out_ms"] = round(1000 * (time.monotonic() - began) / handed, 3)
                print(json.dumps(row), flush=True)
            finally:
                pool.close()
                ray.shutdown()
                hosts.started.shutdown()


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]])
