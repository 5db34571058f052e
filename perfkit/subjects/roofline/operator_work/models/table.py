"""The operators that have a model.

Of operators that call each other the outermost with a known result counts: `aten::convolution` and not the library's
call inside it. What only passes its arguments on (`aten::linear` to `aten::addmm`) is composite, or has no row.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from perfkit.records.per_rank.operator_work import WorkKind
from perfkit.subjects.roofline.operator_work.arguments import Arguments, Work
from perfkit.subjects.roofline.operator_work.models import matrix, streaming


class Model(NamedTuple):
    """How the work of an operator follows from its arguments."""

    kind: WorkKind
    work: Callable[[Arguments], Work]
    """Raises UnknownArgumentsError if the arguments do not tell."""
    is_composite: bool = False
    """Whether the operator usually calls others that have a model; it counts only if it calls none."""


_MATRIX: Final = {
    "aten::mm": Model("gemm", partial(matrix.product, rank=2)),
    "aten::addmm": Model("gemm", partial(matrix.product, rank=2, first=1)),
    "aten::_addmm_activation": Model("gemm", partial(matrix.product, rank=2, first=1)),
    "aten::bmm": Model("gemm", partial(matrix.product, rank=3)),
    "aten::baddbmm": Model("gemm", partial(matrix.product, rank=3, first=1)),
    "aten::_scaled_mm": Model("gemm", matrix.scaled_mm),
    "aten::_grouped_mm": Model("gemm", matrix.grouped_mm),
    "mkldnn::_linear_pointwise": Model("gemm", matrix.linear),
    "aten::linear": Model("gemm", matrix.linear, is_composite=True),
    "aten::matmul": Model("gemm", matrix.matmul, is_composite=True),
}
_SCALED_DOT_PRODUCT: Final = (
    "flash_attention",
    "flash_attention_for_cpu",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
)
_ATTENTION: Final = {
    **{f"aten::_scaled_dot_product_{name}": Model("attention", matrix.attention) for name in _SCALED_DOT_PRODUCT},
    **{
        f"aten::_scaled_dot_product_{name}_backward": Model("attention", matrix.attention_backward)
        for name in _SCALED_DOT_PRODUCT
    },
    "aten::_flash_attention_forward": Model("attention", partial(matrix.attention, by_sequence=True)),
    "aten::_flash_attention_backward": Model("attention", partial(matrix.attention_backward, by_sequence=True)),
    "aten::_efficient_attention_forward": Model("attention", partial(matrix.attention, by_sequence=True)),
    "aten::_efficient_attention_backward": Model("attention", partial(matrix.attention_backward, by_sequence=True)),
    "flash_attn::_flash_attn_forward": Model("attention", partial(matrix.attention, by_sequence=True)),
    "flash_attn::_flash_attn_backward": Model("attention", partial(matrix.attention_backward, by_sequence=True)),
}
_CONVOLUTION: Final = {
    "aten::convolution": Model("convolution", matrix.convolution),
    "aten::_convolution": Model("convolution", matrix.convolution),
    "aten::convolution_backward": Model("convolution", matrix.convolution_backward),
}
_LAYER_NORM_BACKWARD: Final = partial(streaming.norm, flops=14, place=1)
_NORM: Final = {
    **{
        f"aten::{name}": Model("normalisation", partial(streaming.norm, flops=7))
        for name in (
            "native_layer_norm",
            "native_group_norm",
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_batch_norm_with_update",
            "cudnn_batch_norm",
            "miopen_batch_norm",
        )
    },
    # cudnn's and MIOpen's take the input before the gradient; both have one shape.
    **{
        f"aten::{name}_backward": Model("normalisation", _LAYER_NORM_BACKWARD)
        for name in (
            *("native_layer_norm", "native_group_norm", "native_batch_norm", "batch_norm"),
            *("cudnn_batch_norm", "miopen_batch_norm"),
        )
    },
    "aten::_fused_rms_norm": Model("normalisation", partial(streaming.norm, flops=4)),
    "aten::_fused_rms_norm_backward": Model("normalisation", partial(streaming.norm, flops=8, place=1)),
    "aten::_softmax": Model("softmax", streaming.softmax),
    "aten::_log_softmax": Model("softmax", streaming.softmax),
    "aten::_softmax_backward_data": Model("softmax", streaming.softmax_backward),
    "aten::_log_softmax_backward_data": Model("softmax", streaming.softmax_backward),
}
_EMBEDDING: Final = {
    "aten::embedding": Model("embedding", streaming.embedding),
    "aten::embedding_dense_backward": Model("embedding", streaming.embedding_backward),
    "aten::gather": Model("embedding", streaming.gather),
}
_ARITHMETIC: Final = (
    *("add", "sub", "rsub", "mul", "div", "pow", "neg", "abs", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt"),
    *("reciprocal", "sin", "cos", "tanh", "sigmoid", "erf", "relu", "gelu", "silu", "mish", "softplus", "elu"),
    *("leaky_relu", "hardtanh", "hardswish", "hardsigmoid", "clamp", "clamp_min", "clamp_max", "maximum", "minimum"),
    *("addcmul", "addcdiv", "lerp", "floor", "ceil", "round", "trunc", "sign", "remainder", "fmod", "square"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "log_sigmoid_forward"),
)
_BACKWARD: Final = (
    *("threshold", "gelu", "silu", "tanh", "sigmoid", "hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu"),
    *("softplus", "mish", "native_dropout", "mse_loss"),
)
_COMPARISONS: Final = (
    *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"),
    *("logical_and", "logical_or", "logical_not"),
)
_ELEMENTWISE: Final = {
    **{f"aten::{name}": Model("elementwise", streaming.elementwise) for name in _ARITHMETIC},
    **{f"aten::{name}_": Model("elementwise", streaming.inplace) for name in (*_ARITHMETIC, "masked_fill")},
    **{f"aten::{name}_backward": Model("elementwise", streaming.elementwise) for name in _BACKWARD},
    **{f"aten::{name}": Model("elementwise", streaming.comparison) for name in _COMPARISONS},
    **{
        f"aten::{name}": Model("elementwise", partial(streaming.elementwise, flops=0))
        for name in ("where", "masked_fill", "tril", "triu")
    },
    "aten::native_dropout": Model("elementwise", streaming.dropout),
    **{
        f"aten::{name}_": Model("elementwise", streaming.fill)
        for name in ("fill", "zero", "normal", "uniform", "random", "exponential", "bernoulli")
    },
}
_COPY: Final = {"aten::copy_": Model("copy", streaming.copy), "aten::clone": Model("copy", streaming.through)}
_REDUCTION: Final = {
    **{
        f"aten::{name}": Model("reduction", streaming.reduction)
        for name in (
            *("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "std", "var"),
            *("norm", "linalg_vector_norm", "logsumexp", "var_mean"),
        )
    },
    "aten::cumsum": Model("reduction", partial(streaming.through, flops=1)),
    "aten::cumprod": Model("reduction", partial(streaming.through, flops=1)),
}
_FOREACH: Final = (
    *("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "sqrt", "rsqrt", "pow", "neg", "abs", "exp", "sign"),
    *("maximum", "minimum", "clamp_min", "clamp_max", "reciprocal"),
)
_OPTIMIZER: Final = {
    **{f"aten::_foreach_{name}": Model("optimizer", streaming.foreach) for name in _FOREACH},
    **{f"aten::_foreach_{name}_": Model("optimizer", streaming.foreach) for name in _FOREACH},
    "aten::_foreach_zero_": Model("optimizer", streaming.foreach_move),
    "aten::_foreach_copy_": Model("optimizer", partial(streaming.foreach_move, lists=2)),
    "aten::_foreach_norm": Model("optimizer", streaming.foreach_move),
    "aten::_fused_adam_": Model("optimizer", partial(streaming.fused, lists=4)),
    "aten::_fused_adamw_": Model("optimizer", partial(streaming.fused, lists=4)),
    "aten::_fused_sgd_": Model("optimizer", partial(streaming.fused, lists=2)),
}
MODELS: Final = {
    **_MATRIX,
    **_ATTENTION,
    **_CONVOLUTION,
    **_NORM,
    **_EMBEDDING,
    **_ELEMENTWISE,
    **_COPY,
    **_REDUCTION,
    **_OPTIMIZER,
}
"""By the operator's name."""
