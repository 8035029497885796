"""A kernel under edit: its text, its readable view, and scripts that name lines by what the view says of them."""

import re
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.edits import apply as applying
from pgo_agent.sandbox.ttgir.edits import script
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable, readable
from pgo_agent.sandbox.ttgir.tree import Module

from tests.sandbox import ttgir_samples


@dataclass(frozen=True)
class Kernel:
    text: str
    module: Module
    view: Readable

    def label(self, pattern: str, at: int = 0) -> str:
        """The label of a line whose text matches."""
        found = [line.label for line in self.view.lines if re.search(pattern, line.text)]
        assert len(found) > at, f"{pattern} is not in\n{self.view.text()}"
        return found[at]

    def script(self, text: str) -> str:
        """A script in which <<pattern>> is the label of the first line that matches, <<pattern|1>> that of the next."""
        return re.sub(r"<<(.+?)(?:\|(\d+))?>>", lambda m: self.label(m[1], int(m[2] or 0)), text)

    def apply(self, text: str) -> str:
        return applying.apply(self.module, self.view, script.parse(self.script(text)))

    def edited(self, text: str) -> "Kernel":
        return kernel(self.apply(text))


def kernel(text: str) -> Kernel:
    module = reader.parse(text)
    return Kernel(text, module, readable(module))


BLOCKED = "tensor<512xf32, #blocked>"  # most values of `SMALL`
# A loop that loads, converts there and back, and waits; a branch; names that are given again in another region.
SMALL = kernel("""\
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#wide = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @small(%x: !tt.ptr<f32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %start = tt.load %x : !tt.ptr<f32>
    %zero = arith.constant dense<0.0> : tensor<512xf32, #blocked>
    %range = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32, #blocked>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>, #blocked>
    %p = tt.addptr %base, %range : tensor<512x!tt.ptr<f32>, #blocked>, tensor<512xi32, #blocked>
    %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (tensor<512xf32, #blocked>)  : i32 {
      %v = tt.load %p : tensor<512x!tt.ptr<f32>, #blocked>
      %there = ttg.convert_layout %v : tensor<512xf32, #blocked> -> tensor<512xf32, #wide>
      %back = ttg.convert_layout %there : tensor<512xf32, #wide> -> tensor<512xf32, #blocked>
      %fixed = tt.load %x : !tt.ptr<f32>
      %s = tt.splat %fixed : f32 -> tensor<512xf32, #blocked>
      %t = arith.addf %back, %s : tensor<512xf32, #blocked>
      gpu.barrier
      %more = arith.addf %acc, %t : tensor<512xf32, #blocked>
      scf.yield %more : tensor<512xf32, #blocked>
    }
    %other = math.sqrt %start : f32
    %once = arith.cmpi sgt, %n, %c1 : i32
    scf.if %once {
      %fixed = tt.load %x : !tt.ptr<f32>
      tt.store %x, %fixed : !tt.ptr<f32>
    } else {
      tt.store %x, %other : !tt.ptr<f32>
      gpu.barrier
    }
    tt.store %p, %sum : tensor<512x!tt.ptr<f32>, #blocked>
    tt.return
  }
}
""")

# A function that may return early: several blocks in a region.
EARLY = """\
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @early(%x: !tt.ptr<f32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c = arith.cmpi sgt, %n, %c0 : i32
    %v = tt.load %x : !tt.ptr<f32>
    cf.cond_br %c, ^bb1, ^bb2
  ^bb1:  // pred: ^bb0
    %w = tt.load %x : !tt.ptr<f32>
    %y = math.sqrt %w : f32
    gpu.barrier
    tt.store %x, %y : !tt.ptr<f32>
    tt.return
  ^bb2:  // pred: ^bb0
    gpu.barrier
    tt.store %x, %v : !tt.ptr<f32>
    tt.return
  }
}
"""


def of(name: str) -> Kernel:
    """`SMALL`, or the sample of a name."""
    return SMALL if name == "small" else kernel(ttgir_samples.text(name))
