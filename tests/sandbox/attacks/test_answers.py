"""Hostile answers of a tracer: whatever it leaves, the agent gets a failure that blames the candidate, and goes on.

Each answer is an honest one with one thing forged, left by a real boxed process, and read and built by the product.
"""

import time
from pathlib import Path

import pytest
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.tracer import NEEDS_CUBINS

from tests.sandbox import tracing
from tests.sandbox.attacks import forging
from tests.sandbox.attacks.forging import Honest
from tests.sandbox.attacks.inside import HONEST

STEPS = "answer['traced']['CASES']['copied'][0]['plan']['steps']"
PLAN = "answer['traced']['CASES']['copied'][0]['plan']"
NO_ANSWER = "the tracer left no answer"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    if not box.choose().isolates:
        pytest.skip("no sandbox works here")
    folder = tmp_path_factory.mktemp("honest")
    traced = tracing.trace(folder, HONEST)
    return forging.honest(tracing.builder(folder, tracing.write(folder, HONEST)), traced)


def test_the_honest_answer_builds(bundle: Honest) -> None:
    built = bundle.forged("")
    assert built.ok, built.failures


FORGERIES = {
    # files
    "a key that is a path out of the box": ("answer['kernels'] = {'../request': {}}; texts = {}", NO_ANSWER),
    "a text that is a FIFO": ("texts = {}; os.mkfifo(OUT / f'{key}.ttgir')", NO_ANSWER),
    "a text that is a link to an endless one": ("texts = {}; os.symlink('/dev/zero', OUT / f'{key}.ttgir')", NO_ANSWER),
    "an answer that is a FIFO": ("os.mkfifo(OUT / 'result.json'); os._exit(0)", NO_ANSWER),
    "an answer that is a folder": ("(OUT / 'result.json').mkdir(); os._exit(0)", NO_ANSWER),
    "an answer larger than what is read": (
        "(OUT / 'result.json').touch(); os.truncate(OUT / 'result.json', (64 << 20) + 1); os._exit(0)",
        NO_ANSWER,
    ),
    "no answer": ("os._exit(0)", NO_ANSWER),
    "no answer, but that another process is to give it, from each": (f"os._exit({NEEDS_CUBINS})", NO_ANSWER),
    # forms
    "an answer nested deeper than Python reads": ("answer = '[' * 200_000 + ']' * 200_000", NO_ANSWER),
    "a list": ("answer = '[\"error\"]'", NO_ANSWER),
    "a number": ("answer = '5'", NO_ANSWER),
    "an error that is a text": ("answer = {'error': 'no'}", NO_ANSWER),
    "an error nested deeper than Python reads": (
        "answer = '{\"error\": ' + '[' * 200_000 + ']' * 200_000 + '}'",
        NO_ANSWER,
    ),
    "kernels that are a number": ("answer['kernels'] = 5", NO_ANSWER),
    "a plan that is a number": (f"{PLAN} = 5", "malformed"),
    "cases that are a list": ("answer['traced'] = {'CASES': [1]}", "malformed"),
    "no configuration of a case": ("answer['traced']['CASES']['copied'] = []", "no configuration"),
    "no plan of a kernel": (f"{STEPS}[0]['kernel'] = '0' * 64", "malformed"),
    # sizes
    "fifty thousand launches": (
        f"{STEPS}[:] = [{STEPS}[0] | {{'args': [], 'signature': []}}] * 50_000",
        "steps must be a list of at most 4096",
    ),
    "more launches than a plan may have": (f"{STEPS}[:] = {STEPS} * 5000", "steps must be a list of at most 4096"),
    "ten thousand configurations of one name": (
        "answer['traced']['CASES']['copied'] *= 10_000",
        "choice is not allowed",
    ),
    "an allocation of an exabyte": (
        f"{PLAN}['storages'].append({{'kind': 'buffer', 'nbytes': 1 << 60}})",
        "storage size out of bounds",
    ),
    "an allocation of more than the GPU has": (
        f"{PLAN}['storages'].append({{'kind': 'buffer', 'nbytes': 1 << 39}})",
        "more device memory than there is",
    ),
    "a grid of 2^62 blocks": (f"{STEPS}[0]['grid'] = [1 << 31, 1 << 16, 1 << 15]", "grid out of bounds"),
    # code
    "C in a signature": (
        f"{STEPS}[0]['signature'][0] = '*fp16 a) {{ system(\"touch /tmp/smuggled\"); }} //'",
        "argument type is not allowed",
    ),
    "a flag for the assembler that writes a file": (
        "answer['kernels'][key]['options']['ptx_options'] = '--output-file=/tmp/smuggled'",
        "is not a flag that a candidate may give",
    ),
    "another op than those of the list": (
        f"{STEPS}.append({{'op': 'os.system', 'args': ['touch'], 'kwargs': {{}}, 'out': []}})",
        "the torch op 'os.system' is not on the list",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_it_refuses(forgery: str, bundle: Honest) -> None:
    code, says = FORGERIES[forgery]
    started = time.monotonic()
    built = bundle.forged(code)
    assert not built.ok
    (failure,) = built.failures
    assert failure.kind in ("raised", "rejected"), failure
    assert any(part in failure.message for part in says.split("|")), failure.message[:400]
    assert time.monotonic() - started < 30


# what the agent must not read for a candidate -------------------------------------------------------------------------

LEAKS = {
    "a key that is an absolute path": "answer['kernels'] = {{{path!r}: answer['kernels'][key]}}; texts = {{}}",
    "a key that goes up": "answer['kernels'] = {{'../' * 20 + {path!r}: answer['kernels'][key]}}; texts = {{}}",
    "a link": "texts = {{}}; os.symlink({path!r} + '.ttgir', OUT / f'{{key}}.ttgir')",
    "a folder that is a link": "os.symlink({folder!r}, OUT / 'd'); texts = {{}}; "
    "answer['kernels'] = {{'d/secret': answer['kernels'][key]}}",
}


@pytest.mark.parametrize("leak", LEAKS)
def test_the_agent_reads_no_file_of_the_users_for_it(leak: str, bundle: Honest, outside: Path) -> None:
    secret = outside.with_name("secret.ttgir")
    secret.write_text("sk-this-must-not-be-seen")
    code = LEAKS[leak].format(path=str(secret.with_suffix("")), folder=str(outside.parent))
    built = bundle.forged(code)
    assert not built.ok and NO_ANSWER in built.failures[0].message
    assert "sk-this" not in str(built)
    assert not any(b"sk-this" in p.read_bytes() for p in bundle.builder.contents.root.rglob("*") if p.is_file())


def test_a_reader_that_follows_names_would_read_it(tmp_path: Path, outside: Path) -> None:
    secret = outside.with_name("secret.ttgir")
    secret.write_text("sk-this-must-not-be-seen")
    (tmp_path / "d").symlink_to(outside.parent)
    for key in (str(secret.with_suffix("")), f"{'../' * 20}{secret.with_suffix('')}", "d/secret"):
        assert validate.read(tmp_path / f"{key}.ttgir", 99) == secret.read_bytes()


# a real launcher that asks for too much -------------------------------------------------------------------------------

GREEDY = """
def million(x):
    y = torch.empty_like(x)
    for _ in range(1_000_000):
        _copy[(4,)](x, y, 4096, BLOCK=1024)
    return y


def swallowed(x):
    y = torch.empty_like(x)
    for _ in range(5_000):
        try:
            _copy[(4,)](x, y, 4096, BLOCK=1024)
        except Exception:
            pass
    return y


def ops(x):
    for _ in range(5_000):
        x = x + 1
    return x


def huge(x):
    y = torch.empty(1 << 39, device="cuda", dtype=torch.float16)
    _copy[(4,)](x, y, 4096, BLOCK=1024)
    return y[:4096]
"""


@pytest.mark.slow
def test_a_launcher_that_asks_for_too_much_is_refused(tmp_path: Path) -> None:
    traced = tracing.trace(tmp_path, GREEDY)
    for case in ("million", "swallowed", "ops"):
        assert "more than 4096 launches and torch ops" in traced.error(case)["message"]
    made = tracing.write(tmp_path, GREEDY)
    built = tracing.builder(tmp_path, made).build(made.source, {"CASES": ["huge"]}, None)
    assert [f.message for f in built.failures] == ["more device memory than there is"]
