"""`torch._dynamo` in a process that compiles nothing: its settings alone, until somebody asks for more of it.

FakeTensorMode reads a few of these settings, and torch asks dynamo to leave some of its functions uncompiled, and for
two classes of names when a program makes a tensor of numbers. Importing all of dynamo for that takes half as long as
torch itself, in every tracer. Relies on `torch._dynamo.config` importing nothing else of dynamo; where a release of
torch does that differently, all of it is imported as before.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._guards import Source
from torch.utils._mode_utils import no_dispatch

_NAME, _SOURCES = "torch._dynamo", "torch._dynamo.source"
_FOLDER = Path(torch.__file__).parent / "_dynamo"


def settings() -> None:
    """Import the settings of dynamo, and nothing else of it where that is possible."""
    if _NAME in sys.modules:
        return
    stand_in = sys.modules[_NAME] = torch._dynamo = _Settings(_NAME)
    stand_in.__path__ = [str(_FOLDER)]  # a package: from which torch takes the settings to log an error, too
    sys.meta_path.insert(0, _Again())
    sys.modules[_SOURCES] = _Sources(_SOURCES)
    try:
        stand_in.config = _alone(f"{_NAME}.config", _FOLDER / "config.py")
    except Exception:
        sys.modules.pop(f"{_NAME}.config", None)
        _whole()


class _StandIn(ModuleType):
    """Stands in place of a module of dynamo's, until something is asked of it that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            _whole()
        return getattr(sys.modules[self.__name__], name)


class _Settings(_StandIn):
    """Stands in dynamo's place, and gives it up when more is asked of it."""

    __file__ = str(_FOLDER / "__init__.py")
    config: ModuleType

    @staticmethod
    def disable(fn: Callable[..., Any] | None = None, *_args: Any, **_options: Any) -> Any:
        """Keep a function from being compiled. Nothing is compiled."""
        return (lambda function: function) if fn is None else fn


class _Name(Source):
    """Says where a fake tensor comes from. Nobody asks, where nothing is compiled."""

    def __init__(self, *_of: Any) -> None: ...


class _Sources(_StandIn):
    """Stands in place of dynamo's classes of names: these two are asked for when a real tensor becomes a fake one."""

    ConstantSource = type("ConstantSource", (_Name,), {})
    RandomValueSource = type("RandomValueSource", (_Name,), {})


class _Again(Loader):
    """Imports all of dynamo when a module of it is looked for, and has that module taken as it then is."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if name.startswith(f"{_NAME}.") and isinstance(sys.modules.get(_NAME), _Settings):
            _whole()
            importlib.import_module(name)
        return ModuleSpec(name, self) if name.startswith(f"{_NAME}.") and name in sys.modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, _module: ModuleType) -> None:
        """It was executed."""


def _whole() -> None:
    del sys.modules[_NAME]
    if isinstance(sys.modules.get(_SOURCES), _Sources):
        del sys.modules[_SOURCES]
    with no_dispatch():  # it may be asked for while everything is recorded
        torch._dynamo = importlib.import_module(_NAME)


def _alone(name: str, file: Path) -> ModuleType:
    """Return a module of a package that is not imported itself."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
