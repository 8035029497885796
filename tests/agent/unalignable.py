"""Changes to kernels/gemm.py after which its rows may not be aligned, and what the move must say of each."""

Changes = tuple[tuple[str, str], ...]
LAUNCH = "    _gemm[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), c.stride(0))\n"
PASSED = "_gemm[grid](a, b, c, M, N, K, {}, *b.stride(), c.stride(0))\n"
SEED = "    seed = tl.load(A + tl.arange(0, 16))\n"
MADE = "    c = torch.empty((M, N), device=a.device, dtype=a.dtype)\n"
EVEN_K = '"EVEN_K": lambda a: a["K"] % a["BLOCK_K"] == 0,'
DOT = "        acc = tl.dot(a, b, acc)\n"
A_CLASS = f"""class Product:
    def __call__(self, a, b, c, M, N, K, grid):
    {LAUNCH}

def kernel(a, b):
"""


def moved(new: str, *more: tuple[str, str]) -> Changes:
    return ((LAUNCH, new), *more)


REFUSED: dict[str, tuple[str, Changes]] = {
    "strides that were taken before": (
        "does not pass a stride of a as such",
        moved("    first, second = a.stride()\n    " + PASSED.format("first, second")),
    ),
    "another name for a tensor": (
        "something else of the launcher may hang on where a lies",
        moved("    again = a\n" + LAUNCH),
    ),
    "a launcher that gives a tensor back": (
        "a is used after the launch",
        (("    return c\n\n\n#", "    return c, a\n\n\n#"),),
    ),
    "a launch in a loop": ("launched in a loop", moved("    for _ in range(2):\n    " + LAUNCH)),
    "rows that are found by the shape": (
        "does not pass a stride of a as such",
        moved("    " + PASSED.format("a.shape[1], a.stride(1)")),
    ),
    "rows that are found by another tensor's strides": (
        "does not pass a stride of a as such",
        moved("    " + PASSED.format("*b.stride()")),
    ),
    "one stride for both dimensions": (
        "not found by the strides of the tensor",
        moved("    " + PASSED.format("a.stride(0), a.stride(0)")),
    ),
    "strides in a tuple": ("arguments that are not followed", moved("    s = (1, 1)\n    " + PASSED.format("*s"))),
    "too few arguments": ("arguments that are not followed", moved("    " + PASSED.format("a.stride(0)"))),
    "a tensor that is no name": (
        "not found by the strides of the tensor",
        moved(LAUNCH.replace("(a, b, c", "(a[0:], b, c")),
    ),
    "a stride that is passed as a size": (
        "decides something by a stride",
        moved(LAUNCH.replace("N, K", "N, a.stride(0)")),
    ),
    "columns that are counted by a stride": ("more than addresses", (("offs_k < K - k", "offs_k < stride_am - k"),)),
    "a loop that is as long as a stride": ("more than addresses", (("range(0, K, ", "range(0, stride_am, "),)),
    "a branch by a stride": ("more than addresses", (("        if EVEN_K:", "        if EVEN_K and stride_am:"),)),
    "a bound that is computed from a stride": (
        "more than addresses",
        (("    tiles_m =", "    end = 2 * stride_am\n    tiles_m ="), ("offs_k < K - k", "offs_k < end - k")),
    ),
    "a stride that decides at the launch": (
        "decides something by a stride",
        (('a["K"] % a["BLOCK_K"]', 'a["stride_am"] % a["BLOCK_K"]'),),
    ),
    "a function that decides at the launch": (
        "in a way that is not followed",
        ((EVEN_K, '"EVEN_K": even,'),),
    ),
    "heuristics that stand elsewhere": (
        "in a way that is not followed",
        (("@triton.heuristics(\n    {", "@triton.heuristics(\n    OTHERS | {"),),
    ),
    "a decorator that is not known": (
        "in a way that is not followed",
        (("@triton.jit\ndef _gemm", "@DECIDING\n@triton.jit\ndef _gemm"),),
    ),
    "the tensor itself at the launch": (
        "decides something by a stride",
        ((EVEN_K, '"EVEN_K": lambda a: a["A"].is_contiguous(),'),),
    ),
    "a stride at the launch, in two strings": (
        "in a way that is not followed",
        ((EVEN_K, '"EVEN_K": lambda a: a["stride_" "am"] == a["K"],'),),
    ),
    "a load by half a stride": (
        "reads in ways that are not followed",
        (
            ("    tiles_m =", "    half = stride_am // 2\n    tiles_m ="),
            (DOT, f"{DOT}        acc += tl.load(C + half)\n"),
        ),
    ),
    "half of a row": ("more than whole rows", (("a_ptrs = A + ", "a_ptrs = A + stride_am // 16 * 8 + "),)),
    "the end of a row": ("more than whole rows", (("a_ptrs = A + ", "a_ptrs = A + stride_am - 48 + "),)),
    "an address as a number": (
        "for more than addresses",
        ((DOT, f"{DOT}        tl.store(C + k, A.to(tl.int64))\n"),),
    ),
    "a helper with a name of the language's": (
        "for more than addresses",
        (("    tiles_m =", "    more = cast(stride_am)\n    tiles_m ="),),
    ),
    "an argument that a stride decides": (
        "something else of the launcher may hang on where a lies",
        moved(LAUNCH.replace("N, K", "N, K * (a.stride(0) % 2)")),
    ),
    "a step by another tensor's stride": (
        "found by another tensor's strides, too",
        (("a_ptrs = A + ", "a_ptrs = A + tile_n * stride_bn + "),),
    ),
    "a load in a loop of another kind": (
        "reads in ways that are not followed",
        (("    tiles_m =", "    while M < 0:\n        seed = tl.load(A)\n    tiles_m ="),),
    ),
    "a result that may lie in an operand": (
        "C may lie where an operand does",
        (("    c = torch.empty((M, N), device=a.device, dtype=a.dtype)\n", "    c = RESULT\n"),),
    ),
    "a result that the caller may give": ("C may lie", (("def kernel(a, b):", "def kernel(a, b, c=None):"),)),
    "a result that is given by another form": ("C may lie", moved(f"    for c in RESULTS:\n        break\n{LAUNCH}")),
    "a result that is another's memory": ("C may lie", ((MADE, MADE.replace(", dtype", ", out=a0, dtype")),)),
    "a result of an inner function": (
        "C may lie",
        ((MADE, f"    c = RESULT\n    def made():\n    {MADE}        return c\n"),),
    ),
    "a second result that may be missing": (
        "AUX may lie",
        (
            ("    stride_cm,\n", "    stride_cm,\n    AUX,\n"),
            (DOT, f"{DOT}        if AUX is not None:\n            tl.store(AUX + k, 1.0)\n"),
            (LAUNCH, LAUNCH.replace("stride(0))", "stride(0), RESULT)")),
        ),
    ),
    "a result that is stored under another name of the language": (
        "C may lie",
        (
            ("import triton\n", "import triton\nfrom triton import language\n"),
            (MADE, "    c = RESULT\n"),
            ("tl.store(c_ptrs", "language.store(c_ptrs"),
        ),
    ),
    "pointers that lie in memory": (
        "makes pointers of its own",
        ((DOT, f"{DOT}        tl.store(tl.cast(k, tl.pointer_type(tl.float16)), 1.0)\n"),),
    ),
    "an operand that is a part of another tensor": ("may be a part of another", moved("    a = c[:M]\n" + LAUNCH)),
    "a name that is given in an assertion": ("may be a part", moved("    assert (keep := a) is not None\n" + LAUNCH)),
    "a hook before the kernel": (
        "runs before the kernel",
        (("num_warps=8, num_stages=3)", "num_warps=8, pre_hook=print)"),),
    ),
    "a second launch": ("launched in 2 places", moved(LAUNCH + LAUNCH)),
    "a class that launches, too": ("launched in 2 places", (("def kernel(a, b):\n", A_CLASS),)),
    "a launch behind a condition": ("in a line of its own", moved(f"    if M: {LAUNCH.strip()}\n")),
    "a launch behind something else": ("in a line of its own", moved(f"    b.add_(1); {LAUNCH.strip()}\n")),
    "a launch for later": (
        "something may happen while it is launched",
        moved(f"    run = lambda: {LAUNCH.strip()}\n    run()\n"),
    ),
    "an argument that does something": (
        "something may happen while it is launched",
        moved(LAUNCH.replace("N, K", "N, ready(K)")),
    ),
    "a grid that does something": (
        "something may happen while it is launched",
        (("grid = lambda meta: (", "grid = lambda meta: b.add_(1) is None or ("),),
    ),
    "a grid by a stride": (
        "looks at arguments of the launch",
        moved(LAUNCH.replace("[grid]", "[lambda meta: (meta['stride_am'],)]")),
    ),
    "a stride by another name": ("may hang on where a lies", moved(LAUNCH.replace("N, K", "N, a.stride(dim=0)"))),
    "a tensor of the file": (
        "A0 is no parameter of the launcher",
        moved(LAUNCH.replace("(a,", "(A0,").replace("a.str", "A0.str"), ("CONFIGS = [", "A0 = None\nCONFIGS = [")),
    ),
    "loads that are not followed": (
        "reads in ways that are not followed",
        (("    tiles_m = tl.cdiv", f"{SEED}    tiles_m = tl.cdiv"),),
    ),
    "helpers of that name": ("the name _rows_aligned is taken", (("CONFIGS = [", "_rows_aligned = 1\nCONFIGS = ["),)),
}
