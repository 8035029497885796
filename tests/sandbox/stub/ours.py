"""`python ours.py JOBS`: launches the pickled jobs by judge/cuda_driver.py; prints as JSON what each raised, or
null."""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.judge.launches import cuda_driver


def launch(job: dict[str, Any]) -> str | None:
    try:
        loaded = cuda_driver.LoadedKernel(job["image"], job["kernel"])
        go = loaded.prepare(job["grid"], job["signature"], job["args"], job["scratch"], job["stream"])
        for _ in range(job["times"]):
            go()
        loaded.unload()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None


if __name__ == "__main__":
    print(json.dumps([launch(job) for job in pickle.loads(Path(sys.argv[1]).read_bytes())]))
