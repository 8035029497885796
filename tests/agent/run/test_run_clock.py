"""A wall clock that jumps by hours, forwards and backwards, while runs go on and between them."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent import breaking
from tests.agent.breaking import Broken, Whole
from tests.agent.command_line import command, pgo, write

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t which, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, now);
    FILE *file = which == CLOCK_REALTIME ? fopen(getenv("HOURS_OFF"), "r") : NULL;
    long hours = 0;
    if (file && fscanf(file, "%ld", &hours) == 1) now->tv_sec += 3600 * hours;
    if (file) fclose(file);
    return code;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture
def clock(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A file that says by how many hours the wall clock is off, and the environment in which that is so.

    Not faketime: its clocks make Python's sleep fail. All other clocks stay as they are.
    """
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler, to make a wall clock that jumps")
    library, source, off = tmp_path / "clock.so", tmp_path / "clock.c", tmp_path / "off"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return off, {"LD_PRELOAD": str(library), "HOURS_OFF": str(off)}


@pytest.mark.slow
def test_a_clock_that_jumps_by_hours_changes_nothing(
    clock: tuple[Path, dict[str, str]], whole: Whole, tmp_path: Path
) -> None:
    write(tmp_path)
    run, moments, (off, env) = Broken(tmp_path), random.Random(0), clock

    def jump_until(kind: str) -> Callable[[int], None]:
        def disturb(agent: int) -> None:
            while breaking.alive(agent):
                off.write_text(str(moments.randint(-20, 20)))
                if any(e["type"] == kind for e in breaking.whole_lines((tmp_path / "out.jsonl").read_text())):
                    os.kill(agent, signal.SIGKILL)
                time.sleep(0.1)

        return disturb

    for kind in ("candidate.proposed", "generation.completed"):
        assert run.session(jump_until(kind), **env) != 0
    assert run.session(jump_until("nothing"), **env) == 0
    breaking.judged_once(run.events, tmp_path)
    assert breaking.record(tmp_path) == whole.record


def test_the_last_run_is_the_one_begun_last_though_the_clock_went_back(
    clock: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    write(tmp_path)
    off, env = clock
    for hours in ("9", "-9"):
        off.write_text(hours)
        begun = subprocess.Popen(
            command(*breaking.SHORT), cwd=tmp_path, env=os.environ | env, stdout=subprocess.PIPE, text=True
        )
        assert begun.stdout is not None and "run.started" in begun.stdout.readline()
        begun.kill()
        begun.communicate()
    runs = json.loads(pgo("runs", "--json", cwd=tmp_path).out)
    assert runs[0]["created"] > runs[1]["created"]
    assert json.loads(pgo("show", "--json", cwd=tmp_path).out)["run"] == runs[1]["run"]
