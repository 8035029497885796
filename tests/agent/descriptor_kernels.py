"""Kernels to rewrite with descriptors: a matrix product in many forms, and random ones of the same kind.

All take the same parameters, so that one launch fits all: two inputs of any layout, sizes, strides, two more numbers.
"""

from collections.abc import Iterator, Sequence
from random import Random
from textwrap import indent
from typing import Any

from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import tma_descriptors
from pgo_agent.sandbox import devices

from tests.agent.composing import HEADER
from tests.agent.evaluating import Pointer

H200 = devices.find("h200")
PARAMETERS = (
    "A, B, C, M, N, K, sam, sak, sbk, sbn, X, Y, "
    "BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAG: tl.constexpr"
)
BODY = """
pid_m = tl.program_id(0)
pid_n = tl.program_id(1)
offs_m = pid_m * BM + tl.arange(0, BM)
offs_n = pid_n * BN + tl.arange(0, BN)
offs_k = tl.arange(0, BK)
a_ptrs = A + offs_m[:, None] * sam + offs_k[None, :] * sak
b_ptrs = B + offs_k[:, None] * sbk + offs_n[None, :] * sbn
acc = tl.zeros([BM, BN], tl.float32)
for k in range(0, K, BK):
    a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (k + offs_k[None, :] < K), other=0.0)
    b = tl.load(b_ptrs, mask=(k + offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
    acc = tl.dot(a, b, acc)
    a_ptrs += BK * sak
    b_ptrs += BK * sbk
tl.store(C + offs_m[:, None] * N + offs_n[None, :], acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))
"""
LAUNCH = """
def launch_{name}(a, b, c, M, N, K, grid, extra, flag):
    _{name}[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), extra, extra, BM=32, BN=32, BK=16, FLAG=flag)
"""
HOST = """
def kernel(which, a, b, extra=0, flag=True):
    M, K = a.shape
    N = b.shape[1]
    c = torch.full((M, N), 7.0, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    globals()[f"launch_{which}"](a, b, c, M, N, K, grid, extra, flag)
    return c
"""


def body(*changes: tuple[str, str]) -> str:
    """The matrix product with some texts replaced; a statement that is added brings its line end."""
    found = BODY
    for old, new in changes:
        assert old in found, old
        found = found.replace(old, new)
    return found


def file_of(text: str, name: str = "k") -> str:
    """A file with one kernel, and its launch."""
    kernel = f"\n\n@triton.jit\ndef _{name}({PARAMETERS}):\n{indent(text.strip(), '    ')}\n\n"
    return HEADER + kernel + LAUNCH.format(name=name)


def rewritten(source: str, kernel: str = "_k") -> str:
    return tma_descriptors.rewrite(RewriteInput(source, kernel, H200))


def together(files: Sequence[str]) -> str:
    """One file with the kernels of several files and a launcher that picks one by its name."""
    shared = ("_FITS", "_SCRATCH")
    rest = [f.removeprefix(HEADER) for f in files]
    helpers = [text for n in shared if any((text := getattr(tma_descriptors, n).strip()) in f for f in rest)]
    for text in helpers:
        rest = [f.replace(text, "") for f in rest]
    return "\n\n\n".join([HEADER, *helpers, *(f.strip() for f in rest), HOST.strip()]) + "\n"


def launches(random: Random, number: int) -> Iterator[tuple[dict[str, Any], tuple[int, int, int]]]:
    """Arguments and program numbers: both layouts of both inputs, ragged sizes, bases that are not aligned."""
    pick = random.choice
    for _ in range(number):
        rows, columns = pick([((64, 1), (64, 1)), ((72, 1), (1, 64)), ((1, 72), (40, 1)), ((48, 1), (33, 1))])
        yield dict(
            A=Pointer((1 << 19) + pick([0, 0, 0, 4, 8])), B=Pointer(1 << 20), C=Pointer(1 << 18),
            M=pick([32, 40, 20]), N=pick([32, 24]), K=pick([48, 64, 40, 33]),
            sam=rows[0], sak=rows[1], sbk=columns[0], sbn=columns[1],
            X=pick([0, 1, 3, 8, 16, -2]), Y=pick([0, 1, 2, 5]), BM=16, BN=16, BK=16, FLAG=pick([True, False]),
        ), (pick([0, 1, 2]), pick([0, 1]), 0)  # fmt: skip


def random_kernel(random: Random) -> str:
    """A kernel whose load of A is put together at random; much of it no descriptor can do."""
    pick, chance = random.choice, random.random
    steps, column = _indices(random)
    ranges = [
        *["range(0, K, BK)"] * 4, "range(X * 16, K, BK)", "range(s, K, BK)", "range(X, K, BK)", "range(t, K)",
        "range(0, tl.cdiv(K, BK))", "tl.range(0, K, step=BK)", "range(K - 1, -1, -BK)", "range(pid_m, K, BK)",
        "range(K - BK, -1, -BK)", "range(48, 16, -BK)",
        "range(tl.minimum(X, 16) * 16, K, BK)",
    ]  # fmt: skip
    loop = pick(ranges)
    k = "k * BK" if "cdiv" in loop else "k"
    pointer = f"a_ptrs + {k} * sak" if chance() < 0.3 else "a_ptrs"
    advances = [
        *["a_ptrs += BK * sak"] * 4, "a_ptrs += X * sak", "a_ptrs += s", "a_ptrs += 16", "a_ptrs += BK * sam",
        "a_ptrs = a_ptrs + BK * sak", "a_ptrs += BK * sak + sam", "a_ptrs += k * sak",
        "if k < 32:\n    a_ptrs += BK * sak",
    ]  # fmt: skip
    advance = [pick(advances)] if pointer == "a_ptrs" or chance() < 0.1 else []
    inner = [
        *_sometimes(random, 0.15, ["s = s + 1", "t = k", "x = k * 2", "offs_k = offs_k + 0", "K2 = K"]),
        *_loads(random, pointer, _mask(random, k, pick([column, column, "offs_k"]))),
        "b = tl.load(b_ptrs, mask=offs_n[None, :] < N, other=0)",
        "acc = tl.dot(a, b, acc)",
    ]
    inner = [*advance, *inner] if chance() < 0.15 else [*inner, *advance]
    inner += ["b_ptrs += BK * sbk", *_sometimes(random, 0.1, ["s = 3", "X = X + 1", "k = k + 1", "M = M - 1"])]
    return "\n".join([*steps, f"for k in {loop}:", indent("\n".join(inner), "    "), "tl.store(C, acc)"])


def _sometimes(random: Random, chance: float, choices: Sequence[str]) -> list[str]:
    return [random.choice(choices)] if random.random() < chance else []


def _indices(random: Random) -> tuple[list[str], str]:
    """Statements before the loop, and the text of the index along K."""
    pick, maybe = random.choice, _sometimes
    scalars = [
        "X", "Y", "pid_m * 2", "pid_n", "M - K", "pid_m // (X + 3)", "tl.load(C + pid_m)", "tl.cdiv(M, BM)",
        "tl.maximum(X - Y, 0)", "tl.load(C + pid_m) // 64 + X",
    ]  # fmt: skip
    moves = [
        "A += X * sam", "A += pid_m * 64", "A += s * sam", "A += t", "A = A + X * sam", "B = B + Y * sbk",
        "A, B = B, A", "A = A", "if X > 3:\n    A += Y * sam", "if FLAG:\n    A += X * sam\nelse:\n    A += Y * sam",
        "A = B", "A += X; A += 8",
    ]  # fmt: skip
    rows = [
        "pid_m * BM", "pid_m * BM", "pid_m * BM + s", "s * BM", "t", "X + pid_m * BM", "pid_m // 2 * BM",
        "(pid_m + 1) // (1 + 1) * BM", "pid_m * BM - X", "0", "Y * BM",
    ]  # fmt: skip
    column = pick(["offs_k"] * 4 + ["(offs_k + X)", "(X * 16 + offs_k)", "(t + offs_k)"])
    extra = pick(
        [""] * 5 + [" + X * sam", " + s", " + pid_n * 4096", " + t * sam + X * 16", " - sam * Y", " + s * sak"]
    )
    terms = ["offs_m[:, None] * sam", f"{column}[None, :] * sak" if random.random() < 0.7 else f"{column}[None, :]"]
    random.shuffle(terms)
    address = pick([f"A + {terms[0]} + {terms[1]}{extra}", f"{terms[0]} + (A{extra}) + {terms[1]}"])
    stride = pick(["sam"] * 6 + ["64", "(M * 16)"])
    changed = [
        "s = s + 1", "X = X * 2", "s, t = t, s", "sam = sam * 1", "Y += 1", "t -= 1", "M = M + X", "s, t = t + 1, X",
        "s, t = tl.load(C + t), tl.load(C + s) // 8", "if FLAG:\n    s = X\nelse:\n    s = tl.load(C) // 32",
        "if X > 2:\n    M = M + X", "if X > 2:\n    s = t\nelse:\n    s, t = t, s + 1",
    ]  # fmt: skip
    late = ["s = s * 2", "pid_m = pid_m + 1", "offs_k = offs_k + 16", "offs_k += X", "t = 0", "X = 3"]
    last = ["s = s + 1", "t = X", "sam = 8", "A = B", "offs_m = offs_m + 1"]
    return [
        "pid_m = tl.program_id(0)", "pid_n = tl.program_id(1)",
        f"s = {pick(scalars)}", f"t = {pick(['s', 's + X', 'pid_m % (Y + 1)', 'tl.minimum(s, X)', 's * 2', 'Y'])}",
        *maybe(random, 0.35, changed), *maybe(random, 0.25, moves),
        f"offs_m = {pick(rows)} + tl.arange(0, BM)", "offs_k = tl.arange(0, BK)",
        "offs_n = pid_n * BN + tl.arange(0, BN)", *maybe(random, 0.15, late),
        f"a_ptrs = {address.replace('sam', stride)}",
        "b_ptrs = B + offs_k[:, None] * sbk + offs_n[None, :] * sbn", *maybe(random, 0.15, last),
        "acc = tl.zeros([BM, BN], tl.float32)",
    ], column  # fmt: skip


def _mask(random: Random, k: str, column: str) -> list[str]:
    rows = ["offs_m[:, None] < M", "M > offs_m[:, None]", "offs_m[:, None] <= M - 1", "offs_m[:, None] < M - X"]
    columns = [
        f"{k} + {column}[None, :] < K", f"{column}[None, :] < K - {k}", f"{column}[None, :] + {k} < K",
        f"({column} + {k} < K)[None, :]", f"{column}[None, :] < K",
    ]  # fmt: skip
    others = [
        "offs_m[:, None] >= 0",
        f"{k} + {column}[None, :] >= 0",
        "offs_m[:, None] < N",
        "X < 4",
        "offs_m[:, None] >= X",
    ]
    found = [*_sometimes(random, 0.7, [*rows, "offs_m[:, None] < s"]), *_sometimes(random, 0.7, columns)]
    return [*found, *_sometimes(random, 0.15, others)]


def _loads(random: Random, pointer: str, mask: list[str]) -> list[str]:
    random.shuffle(mask)
    bare, masked = f"tl.load({pointer})", f"tl.load({pointer}, mask={' & '.join(f'({m})' for m in mask)}, other=0)"
    full = masked if mask else bare
    forms = [
        *[f"a = {full}"] * 5,
        f"if FLAG:\n    a = {bare}\nelse:\n    a = {full}",
        f"a = {bare} if FLAG else {full}",
        f"if k < 32:\n    a = {full}\nelse:\n    a = {bare}",
        f"if FLAG:\n    a = {full}\nelif BM == 16:\n    a = {bare}\nelse:\n    a = {full}",
    ]
    return [random.choice(forms)]
