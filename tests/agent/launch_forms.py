"""Ways in which host code launches a kernel, each as the kernel part of one and the same target.

Every part launches `_scale` with a grid of its own, and gives `num_warps`, `num_stages` or `BLOCK` in one way of many.
`CONTRACT` is the rest of the target; `several` and `reduced` launch two kernels.
"""

import textwrap

_HEAD = """
import functools

import torch
import triton
import triton.language as tl

"""
_BODY = """
def _scale(X, Y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * factor, mask=i < n)
"""
_GRID = "(triton.cdiv(n, BLOCK),)"
_LAMBDA = 'lambda meta: (triton.cdiv(n, meta["BLOCK"]),)'
CONTRACT = """
def reference(x):
    return x * 2.0


def inputs(case, generator):
    return {"x": torch.randn(case["n"], generator=generator, device=generator.device)}


CASES = {"1m": dict(n=1 << 20)}
SMALL = {"even": dict(n=2048), "ragged": dict(n=999)}
HELD_OUT = {"odd": dict(n=9_991)}


def flops(case):
    return case["n"]


def bytes_moved(case):
    return 8 * case["n"]
"""


def part(launcher: str, decorators: str = "@triton.jit", above: str = "", body: str = _BODY) -> str:
    """A kernel part: `launcher` is what `kernel` does with x, y and n, or whole functions."""
    text = textwrap.dedent(launcher).strip()
    if "def kernel" not in text:
        text = "def kernel(x):\n    y, n = torch.empty_like(x), x.numel()\n" + textwrap.indent(text, "    ")
        text += "\n    return y"
    top = textwrap.dedent(above).strip()
    top = f"\n{top}\n\n" if top else ""
    return f"{_HEAD.lstrip()}{top}\n{textwrap.dedent(decorators).strip()}{body}\n\n{text}\n"


SETTINGS = """
def settings(n):
    BLOCK = min(1024, triton.next_power_of_2(n))
    num_warps = 4
    if BLOCK >= 2048:
        num_warps = 8
    return BLOCK, num_warps
"""
FORMS = {
    "literals": part(f"_scale[({_LAMBDA})](x, y, n, 2.0, BLOCK=1024, num_warps=4)"),
    "no options": part(f"_scale[({_LAMBDA})](x, y, n, 2.0, BLOCK=1024)"),
    "local names": part(f"BLOCK, num_warps = 1024, 4\n_scale[{_GRID}](x, y, n, 2.0, BLOCK=BLOCK, num_warps=num_warps)"),
    "names of a module": part(
        "_scale[(triton.cdiv(n, SIZE),)](x, y, n, 2.0, BLOCK=SIZE, num_warps=WARPS)", above="SIZE = 1024\nWARPS = 4"
    ),
    "settings of a function": part(
        f"BLOCK, num_warps = settings(n)\n_scale[{_GRID}](x, y, n, 2.0, BLOCK=BLOCK, num_warps=num_warps)",
        above=SETTINGS,
    ),
    "a name that is assigned twice": part(
        f"""
        BLOCK = triton.next_power_of_2(min(n, 1024))
        num_warps = 4
        if BLOCK > 512:
            num_warps = 8
        _scale[{_GRID}](x, y, n, 2.0, BLOCK=BLOCK, num_warps=num_warps)
        """
    ),
    "a name that is doubled": part(
        f"BLOCK = 1024\nnum_warps = 2\nnum_warps *= 2\n_scale[{_GRID}](x, y, n, 2.0, BLOCK=BLOCK, num_warps=num_warps)"
    ),
    "a conditional expression": part(
        f"BLOCK = 512\n_scale[{_GRID}](x, y, n, 2.0, BLOCK=BLOCK, num_warps=(4 if n < 4096 else 8), num_stages=n // n)"
    ),
    "a dict": part(f'meta = {{"BLOCK": 1024, "num_warps": 4}}\n_scale[{_LAMBDA}](x, y, n, 2.0, **meta)'),
    "a dict that is called": part(f"meta = dict(BLOCK=1024, num_warps=4)\n_scale[{_LAMBDA}](x, y, n, 2.0, **meta)"),
    "a dict of a function": part(
        f"config = chosen(n)\n_scale[{_LAMBDA}](x, y, n, 2.0, **config)",
        above='def chosen(n):\n    return {"BLOCK": 1024 if n > 4096 else 512, "num_warps": 4}',
    ),
    "a dict that is changed": part(
        f'meta = {{"BLOCK": 1024}}\nmeta["num_warps"] = 4\n_scale[{_LAMBDA}](x, y, n, 2.0, **meta)'
    ),
    "a conditional dict": part(
        f'_scale[{_LAMBDA}](x, y, n, 2.0, **({{"BLOCK": 512}} if n < 4096 else {{"BLOCK": 1024, "num_warps": 8}}))'
    ),
    "two dicts": part(
        f'tile, options = {{"BLOCK": 1024}}, {{"num_warps": 4}}\n_scale[{_LAMBDA}](x, y, n, 2.0, **tile, **options)'
    ),
    "items of a dict": part(
        'c = {"BLOCK": 1024, "warps": 4}\n'
        '_scale[(triton.cdiv(n, c["BLOCK"]),)](x, y, n, 2.0, BLOCK=c["BLOCK"], num_warps=c["warps"])'
    ),
    "a helper": part(
        f"""
        def launch(x, y, n, BLOCK, num_warps=4):
            _scale[{_GRID}](x, y, n, 2.0, BLOCK=BLOCK, num_warps=num_warps)


        def kernel(x):
            y = torch.empty_like(x)
            launch(x, y, x.numel(), 1024)
            return y
        """
    ),
    "a helper that hands on": part(
        f"""
        def launch(*args, **options):
            n = args[2]
            _scale[{_LAMBDA}](*args, 2.0, **options)


        def kernel(x):
            y = torch.empty_like(x)
            launch(x, y, x.numel(), BLOCK=1024, num_warps=4)
            return y
        """
    ),
    "a default": part(
        f"""
        def kernel(x, BLOCK=1024, num_warps=4):
            y, n = torch.empty_like(x), x.numel()
            _scale[{_GRID}](x, y, n, 2.0, BLOCK=BLOCK, num_warps=num_warps)
            return y
        """
    ),
    "a partial": part(f"launch = functools.partial(_scale[{_LAMBDA}], BLOCK=1024, num_warps=4)\nlaunch(x, y, n, 2.0)"),
    "a partial that is overruled": part(
        f"launch = functools.partial(_scale[{_LAMBDA}], BLOCK=1024, num_warps=8)\nlaunch(x, y, n, 2.0, num_warps=4)"
    ),
    "another name": part(f"launch = _scale[{_LAMBDA}]\nlaunch(x, y, n, 2.0, BLOCK=1024)"),
    "run": part(f"_scale.run(x, y, n, 2.0, grid={_LAMBDA}, warmup=False, BLOCK=1024, num_warps=4)"),
    "by position": part("_scale[(triton.cdiv(n, 1024),)](x, y, n, 2.0, 1024)"),
    "in branches": part(
        f"""
        if n % 2:
            _scale[{_LAMBDA}](x, y, n, 2.0, BLOCK=512, num_warps=4)
        else:
            _scale[{_LAMBDA}](x, y, n, 2.0, BLOCK=1024, num_warps=4)
        """
    ),
    "in an inner function": part(
        f"""
        def launch(num_warps):
            _scale[{_LAMBDA}](x, y, n, 2.0, BLOCK=1024, num_warps=num_warps)

        launch(4)
        """
    ),
    "by a method": part(
        f"""
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, num_warps=4):
                y, n = torch.empty_like(x), x.numel()
                _scale[{_LAMBDA}](x, y, n, 2.0, BLOCK=1024, num_warps=num_warps)
                return y


        def kernel(x):
            return Scale.apply(x)
        """
    ),
    "a heuristic": part(
        f"_scale[{_LAMBDA}](x, y, n, 2.0)",
        "@triton.heuristics({'BLOCK': lambda args: 1024, 'num_warps': lambda args: 4 if args['n'] < 4096 else 8})\n"
        "@triton.jit",
    ),
    "a condition in one line": part(f"if n: _scale[{_LAMBDA}](x, y, n, 2.0, BLOCK=1024,)  # so"),
    "jit that is called": part(f"_fast[{_LAMBDA}](x, y, n, 2.0, BLOCK=1024, num_warps=4)", "#").replace(
        "\n\ndef kernel", "\n\n_fast = triton.jit(_scale)\n\n\ndef kernel"
    ),
}
_TUNED = f"_scale[{_LAMBDA}](x, y, n, 2.0)"
_KEYS = ', key=[k for k in ("n",)])\n@triton.jit'
AUTOTUNED = {
    "a comprehension": part(
        _TUNED,
        "@triton.autotune(configs=[triton.Config({'BLOCK': b}, num_warps=w) for b in (512, 1024) for w in (4, 8)]"
        + _KEYS,
    ),
    "configurations of a function": part(
        _TUNED,
        "@triton.autotune(configs(zero)" + _KEYS,
        above="""
        def zero(args):
            pass


        def configs(hook=None):
            return [triton.Config({"BLOCK": b}, num_warps=4, pre_hook=hook) for b in (512, 1024)]
        """,
    ),
    "hooks of their own": part(
        _TUNED,
        "@triton.autotune([triton.Config({'BLOCK': b}, pre_hook=hook(b)) for b in (512, 1024)]" + _KEYS,
        above="def hook(b):\n    return lambda args: None",
    ),
    "a tuner with a name": part(
        _TUNED,
        "@tuned\n@triton.jit",
        above='tuned = triton.autotune([triton.Config({"BLOCK": b}) for b in (512, 1024)], key=["n"])',
    ),
    "a tuner that is given a dict": part(
        _TUNED,
        "@triton.autotune(**TUNED)\n@triton.jit",
        above='TUNED = {"configs": [triton.Config({"BLOCK": b}) for b in (512, 1024)], "key": ["n"]}',
    ),
    "a heuristic below a tuner": part(
        _TUNED,
        "@triton.autotune([triton.Config({'BLOCK': b}) for b in (512, 1024)], key=['n'])\n"
        "@triton.heuristics({'num_warps': lambda args: 4})\n@triton.jit",
    ),
    "imported by name": part(
        _TUNED,
        "@autotune([Config({'BLOCK': b}) for b in (512, 1024)], key=['n'])\n@triton.jit",
        above="from triton import Config, autotune",
    ),
    "a tuner around it in host code": part(
        f"tuned = triton.autotune(configs=configs(), key=['n'])(_scale)\ntuned[{_LAMBDA}](x, y, n, 2.0)",
        above='def configs():\n    return [triton.Config({"BLOCK": b}, num_warps=4) for b in (512, 1024)]',
    ),
    "a tuner around heuristics in host code": part(
        f"""
        inner = triton.heuristics({{"num_warps": lambda args: 4}})(_scale)
        tuned = triton.autotune(configs=[triton.Config({{"BLOCK": b}}) for b in (512, 1024)], key=["n"])(inner)


        def kernel(x):
            y, n = torch.empty_like(x), x.numel()
            tuned[{_LAMBDA}](x, y, n, 2.0)
            return y
        """
    ),
    "a tuner of a library": part(
        _TUNED,
        '@cached_autotune(configs=[triton.Config({"BLOCK": b}) for b in (512, 1024)], key=["n"])\n@triton.jit',
        above="""
        def cached_autotune(configs, key):
            return lambda kernel: triton.autotune(configs=configs, key=key)(kernel)
        """,
    ),
    "an import inside of try": part(
        _TUNED,
        "@tt.autotune(configs=[tt.Config({'BLOCK': 512}), tt.Config({'BLOCK': 1024}, num_stages=2)]" + _KEYS,
        above="try:\n    import triton as tt\nexcept ImportError:\n    tt = None",
    ),
}
_TWO = """

@triton.jit
def _fill(Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, 0.0, mask=i < n)


@triton.jit
def _scale(X, Y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * factor, mask=i < n)
"""
SEVERAL = part(
    f"""
    _fill[(1,)](y, 8, BLOCK=64, num_warps=1)
    _scale[{_LAMBDA}](x, y, n, 2.0, BLOCK=1024, num_warps=4)
    """,
    "",
    body=_TWO,
)
