"""The figures of a comparison as text, for every form in which it is written."""

from pgo_agent.agent.run.regression import CodeCompared, KernelChange, Ratio, Resources
from pgo_agent.sandbox.judge.timing import regression
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

SHOWN = 24  # changed kernels that are listed
HEAD = ("case", "configuration", "kernel", "registers", "spilled bytes", "shared memory", "TTGIR")


def compared(code: CodeCompared | None) -> str:
    """Return in a sentence how the code differs; empty where nothing was built, or nothing differs."""
    if code is None or code.same:
        return ""
    left_out = f"; of a long list {code.left_out} configurations were left out" if code.left_out else ""
    differ = f"{code.differing} of {code.configurations} configurations of {code.cases} cases have other code"
    return (differ if code.differing else f"the code of {code.configurations} configurations is the same") + left_out


def cells(change: KernelChange) -> tuple[str, ...]:
    """Return the row of a changed kernel, by HEAD."""
    pairs = (_moved(change.before, change.after, n) for n in ("registers", "spills", "shared"))
    lines = f"{change.lines} lines differ" if change.lines else "the same"
    return (
        change.case,
        change.configuration,
        change.kernel,
        *pairs,
        lines if change.before and change.after else _which(change),
    )


def _which(change: KernelChange) -> str:
    return "new" if change.before is None else "gone"


def _moved(before: Resources | None, after: Resources | None, name: str) -> str:
    values = [str(getattr(side, name)) for side in (before, after) if side]
    return " to ".join(dict.fromkeys(values))


def time(ratio: Ratio) -> str:
    """Return a ratio of times in words: `slower by 7.1 % [6.6, 7.5]`, `1.002x [0.999, 1.004]`."""
    low, mid, high = ratio
    if high < 1:
        return f"slower by {regression.slower_by(Interval(low, mid, high))}"
    return f"{mid:.3f}x [{low:.3f}, {high:.3f}]"


def itself(noise: Ratio) -> str:
    """Return what a kernel differs from itself."""
    return f"{noise[1]:.3f}x [{noise[0]:.3f}, {noise[2]:.3f}]"
