"""agent/run/record/database.py: a record that several processes open at once, and one that is closed while a thread
reads it."""

import subprocess
import sys
import time
from pathlib import Path

OPENS = """
import sys, time
from pathlib import Path
from pgo_agent.agent.run.record.store import Store
time.sleep(max(0.0, float(sys.argv[2]) - time.time() - 0.01))
while time.time() < float(sys.argv[2]):
    pass
Store(Path(sys.argv[1])).close()
"""
CLOSES = """
import random, sys, threading, time
from pathlib import Path
from pgo_agent.agent.run.record.store import Store

for n in range(40):
    store = Store(Path(sys.argv[1]) / str(n))
    def read():
        try:
            while True:
                store.runs()
        except Exception:
            return  # it is closed
    reads = threading.Thread(target=read)
    reads.start()
    time.sleep(random.random() * 0.02)
    store.close()
    reads.join()
"""


def test_processes_may_open_a_new_record_at_once(tmp_path: Path) -> None:
    for n in range(3):
        at = str(time.time() + 0.8)
        command = [sys.executable, "-c", OPENS, str(tmp_path / str(n)), at]
        each = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        said = [p.communicate(timeout=60)[1] for p in each]
        assert [p.returncode for p in each] == [0, 0, 0], said


def test_a_record_may_be_closed_while_another_thread_reads_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CLOSES, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
