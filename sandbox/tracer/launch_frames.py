"""Which functions a launch stands in: those that may be its launcher, and the line of the user's program that made it.

A function may be a launcher where a target can call it: one of the module that was given tensors, or a method of an
autograd Function. Relies on `call_frames.py` for what a frame is. It only looks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType

from pgo_agent.sandbox.tracer import call_frames
from pgo_agent.sandbox.tracer.call_frames import Call


@dataclass
class Standing:
    """What a launch stands in, the innermost first."""

    chain: list[Call] = field(default_factory=list)  # functions of the watched file and its package
    own: int = -1  # the outermost of the watched file in `chain`
    inner: str = ""  # the innermost function of the watched file, whatever it was given
    program: list[Call] = field(default_factory=list)  # functions of the user's program
    place: FrameType | None = None  # the innermost frame of the watched file or the program
    site: FrameType | None = None  # the innermost frame of the program that is no launcher
    files: dict[str, None] = field(default_factory=dict)

    def named(self, of_watched: bool) -> bool:
        """Whether the file or its package has a launcher. `of_watched`: the kernel is the watched file's."""
        return self.own >= 0 or bool((self.inner or of_watched) and self.chain)


def standing(
    frame: FrameType | None,
    watched: Callable[[str], bool],
    around: Callable[[str], bool],
    begun: Mapping[FrameType, Call],
) -> Standing:
    """Return what the frame of a launch stands in. `begun`: calls with the arguments that they began with."""
    found = Standing()
    while frame is not None:
        file = frame.f_code.co_filename
        found.files.setdefault(file)
        package, theirs = watched(file) or around(file), call_frames.theirs(file)
        if package or theirs:
            call = begun.get(frame) or Call(frame, call_frames.arguments(frame))
            launcher = call.callable and call.given_tensors
            found.place = found.place or (frame if theirs or watched(file) else None)
            found.inner = found.inner or (call.name if watched(file) else "")
            if package and launcher:
                found.chain.append(call)
                found.own = len(found.chain) - 1 if watched(file) else found.own
            elif launcher:
                found.program.append(call)
            program = theirs and not around(file) and not (package and launcher)
            if found.site is None and program and (found.chain or not launcher):
                found.site = frame
        frame = frame.f_back
    return found
