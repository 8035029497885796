"""Errors by whose fault they are. A candidate's failure is never one of these: it is a verdict."""


class Fault(Exception):
    """Something a person must fix. `message` says what is wrong, `hint` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.hint}" if self.hint else self.message


class UsageFault(Fault):
    """The command line, the configuration or the target file is wrong (exit code 2)."""


class TargetFault(UsageFault):
    """The target file does not keep the contract: names missing, launcher raises, reference disagrees."""


class EnvironmentFault(Fault):
    """The machine lacks something: a sandbox, a GPU, disk space (exit code 3)."""


class Killed(EnvironmentFault):
    """Somebody else's SIGKILL ended a process, and again when it was repeated. It proves nothing about a candidate."""


class BadBundle(ValueError):
    """A bundle breaks a rule of `sandbox/bundle/validate.py`. It is the bundle's fault: it becomes a verdict."""


class TargetMoved(UsageFault):
    """The target file changed since the run that is to be resumed was started."""
