"""What is kept of types and shapes serves the same ones alone: others are made, and refused, as Triton does it."""

from tests.sandbox import forked_python

COMPARED = """
import itertools
from triton import language as tl
from pgo_agent.sandbox.interpreter import repeated

KINDS = [tl.int1, tl.float16, tl.bfloat16, tl.uint64, tl.float8e5, tl.pointer_type(tl.float32),
         tl.pointer_type(tl.int8, 3), tl.pointer_type(tl.int8), tl.pointer_type(tl.float32, 1, True)]
SHAPES = [[16], [True], [1], [1.0], [16.0], [3], [], [4, 8], [8, 4], (4, 8), tl.tuple([4, 8]), [tl.constexpr(16)],
          [tl.constexpr(16.0)], [tl.constexpr(tl.constexpr(16))], [1 << 30], ["16"], None, 16]
MEMBERS = [tl.core.tensor.__init__, tl.block_type.__init__]


def plain(x):
    return [plain(y) for y in x] if isinstance(x, (tl.tuple, tuple, list)) else (type(x).__name__, str(x))


def made(kind, shape):
    try:
        block = tl.block_type(kind, shape)
        of = [tl.tensor(handle, k) for handle in ("one", "two") for k in (block, kind)]
    except Exception as e:
        return type(e).__name__, str(e)
    try:
        numpys = str(repeated.interpreter._get_np_dtype(block)), str(repeated.interpreter._get_np_dtype(kind))
    except Exception as e:
        numpys = type(e).__name__, str(e)
    return (
        [{n: plain(v) for n, v in vars(x).items() if n != "type"} for x in (block, *of)],
        [x.type is k for x, k in zip(of, (block, kind, block, kind))], block.element_ty is kind, numpys,
    )


asked = [*itertools.product(KINDS, SHAPES)] * 3
wanted = [made(*a) for a in asked]
repeated.install()
assert tl.block_type.__init__ is not MEMBERS[1]
for a, w in zip(asked, wanted):
    assert made(*a) == w, (a, made(*a), w)
repeated.MOST = 3
for a, w in zip(asked, wanted):
    assert made(*a) == w, ("anew", a, made(*a), w)
print(len({str(w) for w in wanted}))
"""


def test_types_and_tensors_are_those_of_triton_whatever_was_made_before() -> None:
    done = forked_python.ran(COMPARED, interpreted=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40
