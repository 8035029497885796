"""A kernel's final TTGIR as short pseudo-code, for people and models to read: `view.readable(module)` makes it.

`graph` resolves values and scopes, `folding` decides what has a line of its own, `variables` and `naming` what values
are called, `expressions` and `statements` write, `printer` walks. It reads and judges nothing: layouts, integer
widenings and long addresses are left out, no op with a side effect is. It is no language: nothing reads it back.
"""
