"""The torch operators that a plan may hold: what launchers do around their kernels, and what models are made of.

All of them compute their results from their arguments alone: no random numbers, no state, no name of a file, a library
or a device. A candidate may use those of its original alone (`sandbox/gate/plan_rules.py`). So the long list is for
targets whose kernel() is PyTorch's own; a kernel in Triton cannot be replaced by one of them.
"""

from collections.abc import Iterable

_MADE = (
    *("zeros.default", "zeros_like.default", "new_zeros.default", "ones.default", "ones_like.default"),
    *("new_ones.default", "full.default", "full_like.default", "new_full.default", "zero_.default", "fill_.Scalar"),
    *("arange.default", "arange.start", "arange.start_step", "scalar_tensor.default", "tril.default", "triu.default"),
)
_MOVED = (
    *("clone.default", "copy_.default", "_to_copy.default", "cat.default", "stack.default", "repeat.default"),
    *("flip.default", "roll.default", "constant_pad_nd.default", "reflection_pad1d.default", "pixel_shuffle.default"),
    *("reflection_pad2d.default", "replication_pad2d.default", "where.self", "masked_fill.Scalar", "gather.default"),
    *("masked_fill.Tensor", "index_select.default", "index.Tensor", "embedding.default"),
    *("upsample_nearest2d.default", "upsample_nearest2d.vec", "upsample_bilinear2d.default"),
    *("upsample_bilinear2d.vec", "im2col.default"),
)
_REDUCED = (
    *("sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "prod.default", "prod.dim_int"),
    *("amax.default", "amin.default", "max.default", "max.dim", "min.default", "min.dim", "argmax.default"),
    *("argmin.default", "any.default", "any.dim", "all.default", "all.dim", "var.correction", "std.correction"),
    *("var_mean.correction", "linalg_vector_norm.default", "logsumexp.default", "topk.default", "sort.default"),
    *("norm.Scalar", "norm.ScalarOpt_dim"),
    *("sort.stable", "cumsum.default", "cumprod.default", "cummax.default", "logcumsumexp.default"),
)
_MULTIPLIED = (
    *("mm.default", "bmm.default", "addmm.default", "baddbmm.default", "mv.default", "dot.default"),
    "convolution.default",
)
_LAYERS = (
    *("native_layer_norm.default", "native_group_norm.default", "_fused_rms_norm.default", "_softmax.default"),
    *("_native_batch_norm_legit_no_training.default", "_native_batch_norm_legit.no_stats", "_log_softmax.default"),
    *("native_batch_norm.default", "max_pool2d_with_indices.default"),
    *("max_pool3d_with_indices.default", "avg_pool2d.default", "avg_pool3d.default"),
    *("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_max_pool2d.default"),
    *("nll_loss_forward.default", "mse_loss.default", "smooth_l1_loss.default", "huber_loss.default"),
    *("binary_cross_entropy.default", "soft_margin_loss.default"),
)
_ARITHMETIC = tuple(
    f"{op}.{of}" for name in ("add", "sub", "mul", "div") for op in (name, f"{name}_") for of in ("Tensor", "Scalar")
)
_ACTIVATIONS = (
    *("relu", "gelu", "silu", "tanh", "sigmoid", "elu", "leaky_relu", "hardtanh", "hardswish"),
    *("hardsigmoid", "mish", "celu", "threshold"),
)
_FUNCTIONS = (
    *("neg", "abs", "sign", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "reciprocal"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "erf", "erfc", "floor", "ceil", "round"),
    *("trunc", "clamp", "clamp_min", "clamp_max", "bitwise_not", "logical_not"),
    *("logical_and", "logical_or", "logical_xor", "addcmul", "addcdiv"),
)
_PURE = (
    "maximum",
    "minimum",
    "isnan",
    "isinf",
    "glu",
    "log_sigmoid_forward",
    "softplus",
    "softshrink",
    "hardshrink",
    "_prelu_kernel",
)
_OTHERS = (
    *(
        "fmod.Tensor",
        "fmod.Scalar",
        "div.Tensor_mode",
        "rsub.Scalar",
        "pow.Tensor_Scalar",
        "pow.Tensor_Tensor",
        "pow.Scalar",
    ),
    *(
        "remainder.Scalar",
        "remainder.Tensor",
        "lerp.Scalar",
        "lerp.Tensor",
        "clamp.Tensor",
        "clamp_min.Tensor",
        "clamp_max.Tensor",
        "clamp_.Tensor",
        "clamp_min_.Tensor",
        "clamp_max_.Tensor",
        "bitwise_and.Tensor",
    ),
    *("bitwise_or.Tensor", "bitwise_xor.Tensor", "xlogy.Tensor", "round.decimals"),
)
_COMPARISONS = tuple(f"{op}.{of}" for op in ("eq", "ne", "lt", "le", "gt", "ge") for of in ("Tensor", "Scalar"))
_CHANGING = tuple(f"{op}_.default" for op in (*_ACTIVATIONS, *_FUNCTIONS))  # what `inplace=True` calls

# Operators that one may stand for the other: the same products, with and without what is added to them.
_PRODUCTS = (
    frozenset({"aten.mm.default", "aten.addmm.default"}),
    frozenset({"aten.bmm.default", "aten.baddbmm.default"}),
)
OPS = frozenset(
    f"aten.{op}"
    for op in (
        *(*_MADE, *_MOVED, *_REDUCED, *_MULTIPLIED, *_LAYERS, *_ARITHMETIC, *_OTHERS, *_COMPARISONS, *_CHANGING),
        *(f"{name}.default" for name in (*_ACTIVATIONS, *_FUNCTIONS, *_PURE)),
    )
)


def alike(ops: Iterable[str]) -> frozenset[str]:
    """Return operators, and those that do the same work."""
    named = frozenset(ops)
    return named.union(*(p for p in _PRODUCTS if p & named))
