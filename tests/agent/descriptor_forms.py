"""The matrix product of `descriptor_kernels.py` in forms that descriptors can do, and in forms that they cannot.

A form is a list of (old text, new text). FORMS must come out with A read through a descriptor, and the same values;
REFUSED says for each form what the move must say of it, where nothing but A is read in the loop.
"""

Changes = tuple[tuple[str, str], ...]
A = "tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (k + offs_k[None, :] < K), other=0.0)"
LOAD = f"    a = {A}\n"
ROWS, COLUMNS = "(offs_m[:, None] < M)", "(k + offs_k[None, :] < K)"
SUM = "acc = tl.dot(a, b, acc)"
STEP = "    a_ptrs += BK * sak\n"
START = "a_ptrs = A + offs_m[:, None] * sam + offs_k[None, :] * sak"
HEAD = "pid_m = tl.program_id(0)\n"
RANGE = "range(0, K, BK)"
BEFORE = "acc = tl.zeros"  # what stands before the loop
AFTER = "tl.store("
ALONE: Changes = (
    ("    b = tl.load(b_ptrs, mask=(k + offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)\n", ""),
    ("tl.dot(a, b, acc)", "tl.dot(a, tl.trans(a), acc)"),
)
CONTIGUOUS: Changes = ((START, START.replace(" * sak", "")), (STEP, STEP.replace(" * sak", "")))
SIDES = f"    if FLAG:\n        a = tl.load(a_ptrs)\n    else:\n    {LOAD}"

FORMS: dict[str, Changes] = {
    "nothing changed": (),
    "bounds that include the last": ((ROWS, "(offs_m[:, None] <= M - 1)"),),
    "bounds with their sides changed": ((COLUMNS, "(K > k + offs_k[None, :])"),),
    "a bound that shrinks with the loop": ((COLUMNS, "(offs_k[None, :] < K - k)"),),
    "a loop over tiles": ((RANGE, "range(0, tl.cdiv(K, BK))"), ("k + offs_k[", "k * BK + offs_k[")),
    "a bound below, too": ((ROWS, f"{ROWS} & (offs_m[:, None] >= 0)"),),
    "rows below zero, masked": (("pid_m * BM +", "pid_m * BM - X +"), (ROWS, f"{ROWS} & (0 <= offs_m[:, None])")),
    "rows below zero, not masked": (("pid_m * BM +", "pid_m * BM - X +"),),
    "mask and value by their places": ((A, A.replace("mask=", "").replace("other=", "")),),
    "pointer by its name": ((A, A.replace("a_ptrs", "pointer=a_ptrs")),),
    "no value where the mask is false": ((A, A.replace(", other=0.0", "")),),
    "an address on several lines": (
        (STEP, ""),
        ("tl.load(a_ptrs,", "tl.load(\n        A\n        + offs_m[:, None] * sam  # rows\n        "
                            "+ (k + offs_k[None, :]) * sak,"),
    ),
    "a range with hints": ((RANGE, "tl.range(0, K, BK, num_stages=2)"),),
    "a range with its step by name": ((RANGE, "tl.range(0, K, step=BK)"),),
    "a range that counts down": (
        (RANGE, "range(K // BK * BK, -1, -BK)"), (STEP, ""), ("    b_ptrs += BK * sbk\n", ""),
        ("tl.load(a_ptrs", "tl.load(a_ptrs + k * sak"), ("tl.load(b_ptrs", "tl.load(b_ptrs + k * sbk"),
    ),
    "an unrolled range": ((RANGE, "tl.static_range(0, K, BK)"),),
    "a loop that starts later": (
        (RANGE, "range(Y * BK, K, BK)"), (BEFORE, f"a_ptrs += Y * BK * sak\nb_ptrs += Y * BK * sbk\n{BEFORE}"),
    ),
    "a loop that starts at any row of A's other layout": ((RANGE, "range(X, K, BK)"),),
    "an advance before the load": ((STEP, ""), (LOAD, STEP + LOAD), (BEFORE, f"a_ptrs += -BK * sak\n{BEFORE}")),
    "an advance that is assigned": (("a_ptrs += BK * sak", "a_ptrs = a_ptrs + BK * sak"),),
    "a pointer that was moved": ((HEAD, f"{HEAD}A += X * sam\n"),),
    "a pointer that was moved by an assignment": ((HEAD, f"{HEAD}A = A + X\n"),),
    "a pointer that was moved in a branch": ((HEAD, f"{HEAD}if X > 2:\n    A += 8\n"),),
    "another name for the pointer": ((HEAD, f"{HEAD}A = A + 0\nP = A\n"), (START, START.replace("A", "P"))),
    "a division whose divisor is in brackets": (("pid_m * BM +", "pid_m // (1 + Y) * BM +"),),
    "rows of 64 bits": (("pid_m * BM", "tl.cast(pid_m, tl.int64) * BM"),),
    "a row that was read": ((HEAD, f"{HEAD}s = tl.load(C + pid_m)\n"), (START, START.replace("A +", "A + s * sam +"))),
    "rows from a row that was read": (
        (HEAD, f"{HEAD}s = tl.load(C + pid_m)\n"), (START, START.replace("offs_m", "(s + offs_m)")),
        (ROWS, "(offs_m[:, None] < M - s)"),
    ),
    "names assigned together": (
        (f"{HEAD}pid_n = tl.program_id(1)", "pid_m, pid_n = tl.program_id(0), tl.program_id(1)"),
    ),
    "a number that branches decide": (
        ("pid_m * BM +", "s * BM +"), ("offs_m =", "if FLAG:\n    s = pid_m\nelse:\n    s = pid_m + Y\noffs_m ="),
    ),
    "a stride that is a product": ((START, START.replace("sam", "(M * Y * 16)")),),
    "a literal stride": (*CONTIGUOUS, ("offs_m[:, None] * sam", "offs_m[:, None] * 64")),
    "two layouts of one tile": (
        (BEFORE, f"t_ptrs = A + offs_m[None, :] * sam + offs_k[:, None] * sak\n{BEFORE}"),
        (SUM, "c = tl.load(t_ptrs, mask=(offs_m[None, :] < M) & (k + offs_k[:, None] < K), other=0.0)\n"
              "    t_ptrs += BK * sak\n    acc = tl.dot(a + tl.trans(c), b, acc)"),
    ),
    "no mask along the rows": ((f"{ROWS} & {COLUMNS}", COLUMNS),),
    "a mask on one side of a constant": ((LOAD, SIDES),),
    "a mask on one side of a constant, in an expression": ((A, f"(tl.load(a_ptrs) if FLAG else {A})"),),
    "a bound that holds on one side of a constant only": ((LOAD, SIDES.replace("< M", "< X")),),
    "a bound that holds in some iterations only": ((LOAD, SIDES.replace("< M", "< X").replace("FLAG", "k < 16")),),
    "three sides of two constants": (
        (LOAD, SIDES.replace("    else:", f"    elif BM == 16:\n    {LOAD.replace('< M', '< X')}    else:")),
    ),
    "names that the move would like to use": (
        (BEFORE, f"DESCRIPTORS, a_desc, A_TRANSPOSED = X, Y, N\n{BEFORE}"),
        (AFTER, f"acc += DESCRIPTORS + a_desc + A_TRANSPOSED\n{AFTER}"),
    ),
    "statements that share a line": ((LOAD, LOAD.replace("\n", "; a = a + 1\n")),),
    "a loop around the loop": (
        (STEP, ""), ("    b_ptrs += BK * sbk\n", ""), ("for k in", "for j in range(0, 2):\n  for k in"),
        ("tl.load(a_ptrs", "tl.load(a_ptrs + k * sak"), ("tl.load(b_ptrs", "tl.load(b_ptrs + k * sbk"),
    ),
    "a base that a loop around the loop moves": (
        (STEP, ""), ("    b_ptrs += BK * sbk\n", ""),
        ("for k in", "for j in range(0, 2):\n  s = tl.load(C + j) - 500\n  for k in"),
        ("tl.load(a_ptrs", "tl.load(a_ptrs + k * sak + s * sam"), ("tl.load(b_ptrs", "tl.load(b_ptrs + k * sbk"),
    ),
    "a pointer read after the loop": ((AFTER, f"acc += tl.sum(tl.load(a_ptrs))\n{AFTER}"),),
    "a tile read before the loop": (
        (BEFORE, f"q = tl.load(a_ptrs, mask=offs_m[:, None] < M)\n{BEFORE}"), ("tl.dot(a,", "tl.dot(a + q,"),
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[str, Changes]] = {
    "a step that a branch decides": (
        "changes from iteration", ((STEP, "    if k < X:\n        a_ptrs += BK * sak\n"),),
    ),
    "a step that changes": (
        "not known before the loop", ((BEFORE, f"s = BK\n{BEFORE}"), (STEP, "    a_ptrs += s\n    s = BK - s\n")),
    ),
    "half a step": ("no whole number of steps", ((RANGE, "range(0, K, 16)"), (STEP, "    a_ptrs += 8\n"))),
    "rows that go round": (
        "divides a tile", (("pid_m * BM + tl.arange(0, BM)", "(pid_m * BM + tl.arange(0, BM)) % M"),),
    ),
    "two bounds of a row": ("two bounds along", ((ROWS, f"{ROWS} & (offs_m[:, None] < N)"),)),
    "a triangle": ("compares the dimensions", ((ROWS, "(offs_m[:, None] >= k + offs_k[None, :])"),)),
    "a mask of one number": ("or neither", ((ROWS, "(X < 5)"),)),
    "a bound below that is not zero": ("not an upper bound", ((ROWS, "(offs_m[:, None] >= 1)"),)),
    "a bound of a multiple": ("not a bound of an index", ((ROWS, "(offs_m[:, None] * 2 < M)"),)),
    "a mask over another range": ("another range", ((ROWS, "(tl.arange(0, 16)[:, None] < M)"),)),
    "ones outside": ("something other than zero", ((A, A.replace("other=0.0", "other=1.0")),)),
    "a load that must not be cached": ("a load with volatile", ((A, A.replace("other=0.0", "volatile=True")),)),
    "arguments in a list": ("arguments that are not followed", ((A, "tl.load(*[a_ptrs])"),)),
    "a store where it reads": ("writes through A", ((AFTER, f"p = A + pid_m\ntl.store(p, 1)\n{AFTER}"),)),
    "an atomic where it reads": ("writes through A", ((AFTER, f"tl.atomic_add(a_ptrs, 1)\n{AFTER}"),)),
    "an unknown function that is given the pointer": ("writes through A", ((AFTER, f"unheard(A)\n{AFTER}"),)),
    "a bound that changes": (
        "changes from iteration",
        ((BEFORE, f"s = M\n{BEFORE}"), (ROWS, "(offs_m[:, None] < s)"), (STEP, f"{STEP}    s = s - 1\n")),
    ),
    "a loop that counts down from zero": ("bound changes in the loop", ((RANGE, "range(0, -K, -BK)"),)),
    "a loop that may count down": (
        "bound changes in the loop",
        ((RANGE, "range(0, K, BM - 48)"), (STEP, ""), ("tl.load(a_ptrs", "tl.load(a_ptrs + k * sak")),
    ),
    "a row that the loop reads": (
        "bound changes in the loop",
        ((LOAD, f"    s = tl.load(C + k)\n{LOAD}"), ("tl.load(a_ptrs", "tl.load(a_ptrs + s * sam")),
    ),
    "a pointer that an expression decides": ("not index arithmetic", ((HEAD, f"{HEAD}A = A if X > 2 else B\n"),)),
    "a pointer that a branch decides": ("pointer is not a parameter", ((HEAD, f"{HEAD}if X > 2:\n    A = B\n"),)),
    "a pointer that was read": (
        "may change the value", ((HEAD, f"{HEAD}s = tl.load(C)\nA = s.to(tl.pointer_type(tl.float16))\n"),),
    ),
    "a pointer to another type": ("may change the value", ((HEAD, f"{HEAD}A = A.to(tl.pointer_type(tl.int8))\n"),)),
    "addresses that a branch decides": (
        "differs between", ((BEFORE, f"if X > 2:\n    a_ptrs = a_ptrs + 8\n{BEFORE}"),),
    ),
    "a stride that was changed": ("no parameter of the kernel", ((HEAD, f"{HEAD}sam = sam * 2\n"),)),
    "a stride of the file": ("nothing is known of", ((START, START.replace("sam", "STRIDE")),)),
    "a stride that was read": (
        "no parameter of the kernel", ((HEAD, f"{HEAD}s = tl.load(C)\n"), (START, START.replace("sam", "s"))),
    ),
    "a tile that is not affine": ("not an affine tile", ((START, START.replace("sam", "sam * offs_k[None, :]")),)),
    "two literal strides": (
        "contiguous in no dimension",
        ((START, START.replace("sam", "64").replace("sak", "2")), (STEP, "    a_ptrs += BK * 2\n")),
    ),
    "the same row everywhere": ("step through both", (("offs_m[:, None] * sam", "pid_m * sam"),)),
    "an extent that the kernel computes": (
        "not known when", (("offs_k = tl.arange(0, BK)", "H: tl.constexpr = BK\noffs_k = tl.arange(0, H)"),),
    ),
    "an odd column": ("may not be a multiple of 16", (*CONTIGUOUS, (BEFORE, f"a_ptrs += pid_n\n{BEFORE}"))),
    "a loop along the columns from anywhere": (
        "may not be a multiple of 16", (*CONTIGUOUS, (RANGE, "range(tl.maximum(X, 0), K, BK)")),
    ),
    "a while loop": (
        "loads its tiles through pointers",
        (("for k in range(0, K, BK):", "k = 0\nwhile k < K:"), (STEP, f"{STEP}    k += BK\n")),
    ),
    "names from a list": ("assigned in a form", ((f"{HEAD}pid_n = tl.program_id(1)", "pid_m, pid_n = C"),)),
    "an index changed after its use": ("assigned anew", ((BEFORE, f"pid_m = pid_m + 1\n{BEFORE}"),)),
}  # fmt: skip
