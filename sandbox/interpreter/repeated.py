"""Keeps what Triton's interpreter computes again for every operation: attributes of types and tensors, NumPy's types.

That is a third of what a kernel takes here. What is kept was computed by Triton itself, of the very same element type
and sizes. Relies on types that nobody changes once they are made. The functions of the language, which the interpreter
replaces before each call of a function, are looked for once.
"""

import inspect
from collections.abc import Callable
from typing import Any

from triton import language as tl
from triton.runtime import interpreter

MOST = 4096  # kept of a kind; then it begins anew: pointers have a type of their own in each launch
_OF_A_TENSOR = {"handle", "shape", "numel", "type", "dtype"}
_real_np_dtype: Callable[[Any], Any] = interpreter._get_np_dtype
_np_dtypes: dict[int, tuple[Any, Any]] = {}  # by the identity of a type, which is kept so that no other one gets it


def install() -> None:
    """Call it before a kernel runs, and before others replace functions of the language."""
    interpreter._get_np_dtype = np_dtype
    _keep_block_types()
    _keep_shapes()
    _keep_names()


def np_dtype(kind: Any) -> Any:
    """Return NumPy's type of a type's elements."""
    element = kind.element_ty if type(kind) is tl.block_type else kind
    known = _np_dtypes.get(id(element))
    if known is None:
        known = _kept(_np_dtypes, id(element), (element, _real_np_dtype(element)))
    return known[1]


def _kept(of: dict[Any, Any], key: object, value: Any) -> Any:
    if len(of) >= MOST:
        of.clear()
    of[key] = value
    return value


def _keep_block_types() -> None:
    real: Callable[..., None] = tl.block_type.__init__
    known: dict[Any, dict[str, Any]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = _sizes(shape)
        attributes = known.get((id(element_ty), sizes)) if sizes else None
        if attributes is not None:
            vars(self).update(attributes)
            return
        real(self, element_ty, shape)
        if sizes and self.element_ty is element_ty:
            _kept(known, (id(element_ty), sizes), dict(vars(self)))

    tl.block_type.__init__ = init


def _sizes(shape: Any) -> tuple[int, ...] | None:
    """Return the sizes of a shape of the forms that Triton takes; None for what it may refuse."""
    if type(shape) is not list and type(shape) is not tl.tuple:
        return None
    sizes = tuple([s.value if type(s) is tl.constexpr else s for s in shape])
    return sizes if not {*map(type, sizes)} - {int} else None


def _keep_shapes() -> None:
    """A tensor's shape is that of its type, as constants. Block types of the same elements and sizes share theirs."""
    real: Callable[..., None] = tl.tensor.__init__
    known: dict[int, tuple[Any, Any, Any]] = {}

    def init(self: Any, handle: Any, type: Any) -> None:
        of = getattr(type, "shape", None)
        kept = known.get(id(of))
        if kept is not None:
            _, self.shape, self.numel = kept
            self.handle, self.type, self.dtype = handle, type, type.scalar
            return
        real(self, handle, type)
        if vars(self).keys() == _OF_A_TENSOR:
            _kept(known, id(of), (of, self.shape, self.numel))

    tl.tensor.__init__ = init


def _keep_names() -> None:
    real: Callable[..., None] = interpreter._patch_builtin
    homes = (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base)
    names = {home: [name for name, _ in inspect.getmembers(home, tl.core.is_builtin)] for home in homes}

    def patch(home: Any, *how: Any) -> None:
        if home not in names:
            real(home, *how)
            return
        for name in names[home]:
            if tl.core.is_builtin(member := getattr(home, name)):  # unless it is replaced already
                interpreter._patch_attr(home, name, member, *how)

    interpreter._patch_builtin = patch
