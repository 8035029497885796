"""What Inductor's kernels do with their parameters: which are pointers, of which types, and which are stored to.

Relies on `agent/moves/analysis` for what a kernel writes through.
"""

import libcst as cst
from pgo_agent.agent.commands.init.inductor.output_code import Kernel
from pgo_agent.agent.moves.analysis import stored_pointers

POINTERS = {
    "*fp64": "float64", "*fp32": "float32", "*fp16": "float16", "*bf16": "bfloat16", "*fp8e4nv": "float8_e4m3fn",
    "*fp8e5": "float8_e5m2", "*i64": "int64", "*i32": "int32", "*i16": "int16", "*i8": "int8", "*u8": "uint8",
    "*u16": "uint16", "*u32": "uint32", "*u64": "uint64", "*i1": "bool",
}  # fmt: skip


def written(kernel: Kernel) -> set[str]:
    """Return the parameters that a kernel stores to."""
    if kernel.function is None:
        return set()
    names = {a.arg for a in kernel.function.args.args}
    module = cst.parse_module(kernel.text)
    found = next(n for n in module.body if isinstance(n, cst.FunctionDef) and n.name.value == kernel.name)
    return stored_pointers.written(module, found) & names


def atomic(kernel: Kernel) -> bool:
    """Whether it adds by atomics, in any order."""
    return "tl.atomic_" in kernel.text
