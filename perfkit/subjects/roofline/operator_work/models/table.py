"""The operators that have a model.

Of operators that call each other the outermost with a known result counts: `aten::convolution` and not the library's
call inside it. What only passes its arguments on (`aten::linear` to `aten::addmm`) is composite, or has no row.
"""

from typing import Final

from perfkit.subjects.roofline.operator_work.models import Model, attention, convolution, matrix, optimizer, streaming

_MATRIX: Final = {
    "aten::mm": Model("gemm", matrix.mm),
    "aten::addmm": Model("gemm", matrix.addmm),
    "aten::_addmm_activation": Model("gemm", matrix.addmm),
    "aten::bmm": Model("gemm", matrix.bmm),
    "aten::baddbmm": Model("gemm", matrix.baddbmm),
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
    **{f"aten::_scaled_dot_product_{name}": Model("attention", attention.forward) for name in _SCALED_DOT_PRODUCT},
    **{
        f"aten::_scaled_dot_product_{name}_backward": Model("attention", attention.backward)
        for name in _SCALED_DOT_PRODUCT
    },
    "aten::_flash_attention_forward": Model("attention", attention.forward_by_sequence),
    "aten::_flash_attention_backward": Model("attention", attention.backward_by_sequence),
    "aten::_efficient_attention_forward": Model("attention", attention.forward_by_sequence),
    "aten::_efficient_attention_backward": Model("attention", attention.backward_by_sequence),
    "flash_attn::_flash_attn_forward": Model("attention", attention.forward_by_sequence),
    "flash_attn::_flash_attn_backward": Model("attention", attention.backward_by_sequence),
}
_CONVOLUTION: Final = {
    "aten::convolution": Model("convolution", convolution.forward),
    "aten::_convolution": Model("convolution", convolution.forward),
    "aten::convolution_backward": Model("convolution", convolution.backward),
}
_NORM: Final = {
    **{
        f"aten::{name}": Model("normalisation", streaming.layer_norm)
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
    **{
        f"aten::{name}_backward": Model("normalisation", streaming.layer_norm_backward)
        for name in ("native_layer_norm", "native_group_norm", "native_batch_norm", "batch_norm")
    },
    # These take the input before the gradient; both have one shape.
    **{
        f"aten::{name}_backward": Model("normalisation", streaming.layer_norm_backward)
        for name in ("cudnn_batch_norm", "miopen_batch_norm")
    },
    "aten::_fused_rms_norm": Model("normalisation", streaming.rms_norm),
    "aten::_fused_rms_norm_backward": Model("normalisation", streaming.rms_norm_backward),
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
    **{f"aten::{name}": Model("elementwise", streaming.select) for name in ("where", "masked_fill", "tril", "triu")},
    "aten::native_dropout": Model("elementwise", streaming.dropout),
    **{
        f"aten::{name}_": Model("elementwise", streaming.fill)
        for name in ("fill", "zero", "normal", "uniform", "random", "exponential", "bernoulli")
    },
}
_COPY: Final = {"aten::copy_": Model("copy", streaming.copy), "aten::clone": Model("copy", streaming.clone)}
_REDUCTION: Final = {
    **{
        f"aten::{name}": Model("reduction", streaming.reduction)
        for name in (
            *("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "std", "var"),
            *("norm", "linalg_vector_norm", "logsumexp", "var_mean"),
        )
    },
    "aten::cumsum": Model("reduction", streaming.scan),
    "aten::cumprod": Model("reduction", streaming.scan),
}
_FOREACH: Final = (
    *("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "sqrt", "rsqrt", "pow", "neg", "abs", "exp", "sign"),
    *("maximum", "minimum", "clamp_min", "clamp_max", "reciprocal"),
)
_OPTIMIZER: Final = {
    **{f"aten::_foreach_{name}": Model("optimizer", optimizer.foreach) for name in _FOREACH},
    **{f"aten::_foreach_{name}_": Model("optimizer", optimizer.foreach) for name in _FOREACH},
    "aten::_foreach_zero_": Model("optimizer", optimizer.foreach_write),
    "aten::_foreach_copy_": Model("optimizer", optimizer.foreach_copy),
    "aten::_foreach_norm": Model("optimizer", optimizer.foreach_norm),
    "aten::_fused_adam_": Model("optimizer", optimizer.fused_adam),
    "aten::_fused_adamw_": Model("optimizer", optimizer.fused_adam),
    "aten::_fused_sgd_": Model("optimizer", optimizer.fused_sgd),
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
