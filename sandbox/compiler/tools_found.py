"""Looks for Triton's tools when it is imported: once, in the process that boxed ones are forked from.

Each of those would otherwise start ptxas twice, and nvdisasm, to be told their versions. A device of another
architecture is looked after when it is asked for.
"""

from pgo_agent.sandbox.compiler import nvidia_tools

for _arch in (80, 90):
    nvidia_tools.find(_arch, "nvdisasm")
