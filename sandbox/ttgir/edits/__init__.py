'''Edit scripts: TTGIR changed by a few lines that name labels of its readable view, as a language model writes them.

    move L31 before L28                     one line, or a range: move L31..L33 after L40
    set L31 pendings = 1                    an attribute of the op that the line is of
    set L35 ttg.memdesc_trans order = ...   or of one that the line names inside of it
    delete L17
    insert after L20:                       TTGIR ops on the lines below, indented or in ``` fences
    replace L20..L24 with:                  the same; results under their old names take the old ones' place

Places are `before L7`, `after L7`, and of a line that opens a block `at start of L7`, `at end of L7`, `past L7`. Labels
are those of the view that was shown, whatever edits before did; edits are made in order, and no two change one line.

A label stands for the op that its line is of, with all inside of it. With it go the pure ops written into its line that
nothing else uses (`dependents.py`). In TTGIR `%$L31` is the result of line L31, `%$L31#1` its second; other values and
layouts are named as the text does, which `excerpts.excerpt` shows. A new name that is taken is changed.

`script.parse` reads a script, `apply.apply` makes the edits and sees that each op still means the values it meant,
`verify.verified` asks Triton's verifier, too. What must not be is refused by a sentence that names the edit. Nothing
here says whether the edited kernel still computes the same: the gate does.

    >>> from pgo_agent.sandbox.ttgir import reader
    >>> from pgo_agent.sandbox.ttgir.edits import apply, excerpts, script
    >>> from pgo_agent.sandbox.ttgir.pseudocode.view import readable
    >>> module = reader.parse("""module {
    ...   tt.func public @twice(%x: !tt.ptr<f32>, %n: i32) {
    ...     %c2 = arith.constant 2.0 : f32
    ...     %i = tt.get_program_id x : i32
    ...     %p = tt.addptr %x, %i : !tt.ptr<f32>, i32
    ...     gpu.barrier
    ...     %v = tt.load %p : !tt.ptr<f32>
    ...     %w = arith.mulf %v, %c2 : f32
    ...     tt.store %p, %w : !tt.ptr<f32>
    ...     tt.return
    ...   }
    ... }
    ... """)
    >>> view = readable(module)
    >>> print(view.text(), end="")
    L1    kernel twice(arg0: *f32, arg1: i32):
    L2      arg0_ptrs = arg0 + pid_x
    L3      sync warps
    L4      arg0_tile = load arg0_ptrs
    L5      store arg0_tile * 2.0 -> arg0_ptrs
    >>> print(excerpts.excerpt(module, view, ["L5"]), end="")
    // L5
    %c2 = arith.constant 2.0 : f32
    %w = arith.mulf %v, %c2 : f32
    tt.store %p, %w : !tt.ptr<f32>
    >>> edits = script.parse("""
    ... move L4 before L3
    ... insert after L4:
    ...     %a = math.absf %$L4 : f32
    ... replace L5 with:
    ...     tt.store %p, %a : !tt.ptr<f32>
    ... """)
    >>> print(apply.apply(module, view, edits), end="")
    module {
      tt.func public @twice(%x: !tt.ptr<f32>, %n: i32) {
        %i = tt.get_program_id x : i32
        %p = tt.addptr %x, %i : !tt.ptr<f32>, i32
        %v = tt.load %p : !tt.ptr<f32>
        %a = math.absf %v : f32
        gpu.barrier
        tt.store %p, %a : !tt.ptr<f32>
        tt.return
      }
    }
'''
