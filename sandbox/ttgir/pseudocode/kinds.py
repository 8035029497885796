"""What kinds of ops there are for a reader: free ones, pure ones, and all others, which have side effects or may have.

After the op definitions (traits Pure, MemoryEffects) of Triton 3.6 to 3.9, TritonGPUOps.td, TritonNvidiaGPUOps.td and
TritonOps.td, and MLIR's arith and math. An op that is not listed is taken to have a side effect.
"""

import re

from pgo_agent.sandbox.ttgir.tree import Op


def _names(text: str, dialect: str = "") -> frozenset[str]:
    return frozenset(dialect + word for word in text.split())


LOOPS = frozenset({"scf.for", "scf.while"})
# No code, or as good as none: they are written where they are used, however often that is.
FREE = _names(
    "arith.constant arith.extsi arith.extui arith.index_cast arith.bitcast tt.splat tt.unsplat tt.broadcast tt.bitcast"
    " tt.expand_dims tt.make_range tt.get_program_id tt.get_num_programs tt.int_to_ptr tt.ptr_to_int ttg.memdesc_index"
    " ttg.memdesc_subview ttg.memdesc_trans ttg.memdesc_subslice ttg.memdesc_reshape ttg.memdesc_reinterpret ub.poison"
)
# Written where they are used when that is one place.
PURE = _names(
    "tt.addptr tt.reshape tt.trans tt.join tt.split tt.cat tt.fp_to_fp tt.clampf tt.precise_sqrt tt.precise_divf"
    " tt.mulhiui ttng.reinterpret_tensor_descriptor"
) | _names(
    "addf subf mulf divf remf negf addi subi muli divsi divui ceildivsi ceildivui floordivsi remsi remui andi ori xori"
    " shli shrsi shrui maxnumf minnumf maximumf minimumf maxsi minsi maxui minui truncf extf trunci sitofp uitofp"
    " fptosi fptoui select cmpi cmpf",
    "arith.",
)
# Pure, but worth a line of their own: they move data between threads.
EXCHANGES = _names("tt.reduce tt.scan ttg.convert_layout tt.gather tt.histogram tt.map_elementwise")
TERMINATORS = _names(
    "scf.yield scf.condition tt.reduce.return tt.scan.return tt.map_elementwise.return ttg.warp_yield ttg.warp_return"
    " tt.return"
)
DOTS = frozenset({"ttng.warp_group_dot", "tt.dot", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled", "tt.dot_scaled"})
TMA_LOADS = frozenset({"ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"})
FILLS = TMA_LOADS | {"ttg.async_copy_global_to_local", "ttg.local_store"}
TOKENS = frozenset({"ttg.async_commit_group", "ttg.async_wait", "ttg.async_copy_global_to_local"})
VIEWS = frozenset(n for n in FREE if n.startswith("ttg.memdesc"))
WIDENING = frozenset({"arith.extsi", "arith.extui", "arith.index_cast", "tt.splat", "tt.broadcast"})


def pure(op: Op) -> bool:
    """Return whether an op does nothing but give its results. Assembly and calls of libraries are shown whatever they
    say."""
    return op.name in FREE or op.name in PURE or op.name in EXCHANGES or op.name.startswith("math.")


def constant_text(op: Op) -> str:
    """Return what an arith.constant holds, as written: 0, true, 1.44269502, dense<0.0>'s inside."""
    match = re.search(r"dense<([^>]*)>", str(op.parts[0]))
    return match[1] if match else next(iter(op.words), "?")
