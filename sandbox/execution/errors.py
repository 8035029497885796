"""What ends a run early."""


class NotModelled(Exception):
    """The text needs something that this interpreter lacks: it says nothing about the kernel."""


class KernelFault(Exception):
    """The kernel does what no launch may do: it accesses memory outside of every buffer, for example."""
