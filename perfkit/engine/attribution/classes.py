"""Classes of kernels and operators as people think of them: one ordered table, the first match wins."""

import re
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final, NamedTuple

import numpy as np

from perfkit.records.per_rank.work import KERNEL_CLASSES, KernelClass
from perfkit.trace.intervals import Ints


class _Rule(NamedTuple):
    pattern: "re.Pattern[str]"
    kernel_class: KernelClass


def _rule(pattern: str, kernel_class: KernelClass) -> _Rule:
    return _Rule(re.compile(pattern), kernel_class)


KERNEL_CLASS_RULES: Final = (
    # PyTorch (embedding_*, indexSelect), FBGEMM (split_embedding, TBE; permute_pooled_embedding_ops.cu:
    # permute_pooled_embs_kernel); its backward kernels step the optimizer, too.
    _rule(r"embedding|indexselect|split_embedding|tbe_|pooled_embs", "embedding"),
    # Apex and PyTorch: multi_tensor_apply_kernel runs the optimizers' `_foreach_*` and `fused_adam` functors.
    _rule(
        r"adam(w|_|math|functor|kernel)|sgd_?(math|functor|kernel)|lamb_?(stage|kernel|functor)|adagrad|rmsprop"
        r"|multi_tensor_apply_for_fused_optimizer",
        "optimizer",
    ),
    # FlashAttention, xFormers and CUTLASS (fmha), cuDNN, AOTriton (attn_fwd), Composable Kernel (FmhaFwd), AITER
    # (hsa/*: fmha_fwd_*, pa_*, mla_*; csrc/kernels/mla).
    _rule(
        r"flash|fmha|attention|attn_(fwd|bwd)|sdpa|cudnn_generated_fort_native"
        r"|\b(pa|mla)_(bf0|fp0|a0w0|fwd|decode|prefill|ps|reduce|stage)",
        "attention",
    ),
    # PyTorch (batch_norm_*, vectorized_layer_norm_kernel, RowwiseMoments, GammaBeta), cuDNN (bn_fw, bn_bw), MIOpen.
    _rule(
        r"(batch|layer|group|rms|instance)_?norm|rowwisemoments|gammabeta|bn_(fw|bw)|computefusedparams|welford",
        "normalisation",
    ),
    # cuDNN (implicit_gemm, dgrad, wgrad, winograd), MIOpen (igemm, Conv…, miopenSp3Asm), PyTorch (depthwise).
    # MIOpen, besides: gpu_batched_transpose_kernel/batched_transpose.cpp and MIOpenSubTensorOpWith*Kernel.cl are what
    # its solvers of convolutions do with layouts, types and workspaces; MIOpenIm2d2Col.cl. Composable Kernel:
    # device_grouped_conv_bwd_weight_*.hpp (kernel_batched_gemm_xdlops_bwd_weight).
    _rule(
        r"conv(?!ert)|[dw]grad|implicit_gemm|igemm|winograd|cudnn.*(nchw|nhwc)|miopen(?!.*(pool|norm))|im(0d)?0col|col0im"
        r"|batched_transpose_0x0_|subtensoropwith|bwd_weight",
        "convolution",
    ),
    # cuBLAS (sgemm, hgemm, gemv, splitKreduce), CUTLASS, hipBLASLt and Tensile (Cijk_), nvjet (cuBLAS on Hopper),
    # rocBLAS, AITER (hsa/*/fmoe: the products of experts).
    _rule(r"gemm|gemv|gemmsn|cutlass|cijk_|nvjet|cublas|rocblas|splitk|xmma|dot_kernel|_mm_|addmm|bmm|\bfmoe_", "gemm"),
    # PyTorch (reduce_kernel, softMax*, cunn_SoftMax, nll_loss; DilatedMaxPool2d.cu, AveragePool2d.cu and
    # Adaptive*Pooling*.cu: a reduction per window), MIOpenPooling.cl (mloPooling*), CUB (DeviceReduce, Scan, Sort),
    # rocPRIM, of which hipCUB's kernels are part (its device_transform.hpp is element-wise), AITER and Composable
    # Kernel (moe_sorting).
    _rule(
        r"reduce|softmax|nll_loss|(max|avg|average)_?pool|pooling|cub::|rocprim(?!.*transform_(kernel|impl))|devicescan"
        r"|radixsort|\bsort|moe_?sorting|topk|norm_|logsumexp|cumsum",
        "reduction",
    ),
    # PyTorch (elementwise_kernel, *_functor, CatArrayBatchedCopy, fill, dropout), Inductor (triton_poi_), rocPRIM
    # (transform), AITER (activation_kernels.cu, *rope*, *quant*).
    _rule(
        r"elementwise|triton_poi|functor|catarray|copy_kernel|fill|dropout|distribution|index|scatter|gather"
        r"|rocprim.*transform_(kernel|impl)|act_and_mul|\brope_|_rope_|quant",
        "elementwise",
    ),
    # Inductor: triton_red_ and triton_per_ (persistent) reduce.
    _rule(r"triton_(red|per)_", "reduction"),
    _rule(r"memcpy|memset", "copy"),
)
"""Names of kernels in lower case, every number in them as 0; who names them so stands above each row."""

OPERATOR_CLASS_RULES: Final = (
    _rule(r"(aten::)?_?fused_(adamw?|sgd|adagrad)|optimizer\.", "optimizer"),
    _rule(r".*(scaled_dot_product|flash|efficient_attention|_fused_sdp|multi_head_attention)", "attention"),
    _rule(r".*(convolution|conv\dd|_conv_|mkldnn_conv|cudnn_conv|miopen_conv|slow_conv|thnn_conv)", "convolution"),
    _rule(r".*(batch_norm|layer_norm|group_norm|rms_norm|instance_norm|native_norm)", "normalisation"),
    _rule(r".*embedding", "embedding"),
    _rule(
        r"aten::(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|dot|einsum|_scaled_mm|_grouped_mm|addbmm|mkldnn_linear)$"
        r"|mkl::_mkl_linear|fbgemm::.*gemm",
        "gemm",
    ),
    _rule(
        r"aten::(_?(log_)?softmax(_backward_data)?|_log_softmax.*|sum|mean|prod|max|min|amax|amin|argmax|argmin|norm|linalg_vector_norm"
        r"|nll_loss\w*|cross_entropy\w*|cumsum|logsumexp|std|var|var_mean|topk|sort|any|all|_foreach_norm)$",
        "reduction",
    ),
    _rule(r"aten::(copy_|_to_copy|to|clone|contiguous)$", "copy"),
    _rule(
        r"aten::(_foreach_\w+|\w*(add|sub|mul|div|neg|exp|log|pow|sqrt|rsqrt|sigmoid|tanh|relu|gelu|silu|threshold|where"
        r"|fill|zero|ones|dropout|bernoulli|masked|clamp|lerp|addcmul|addcdiv|cat|stack|tril|triu|arange|eq|ne|lt|gt|le|ge"
        r"|cos|sin|abs|sign|index|gather|scatter|select_backward|slice_backward)\w*)$",
        "elementwise",
    ),
)
"""Names of operators of PyTorch, likewise."""


_DIGITS: Final = re.compile(r"\d+")
_LONGEST: Final = 4_096
"""What follows in a name is not looked at: template arguments, which may be of any length."""
UNNAMED: Final = -1
"""Class of a kernel whose name no rule matches."""
_PLACE: Final = {name: place for place, name in enumerate(KERNEL_CLASSES)}
_SHARED: Final = (UNNAMED, _PLACE["gemm"])
_EXACT: Final = tuple(_PLACE[name] for name in ("attention", "convolution", "normalisation", "embedding", "gemm"))


def operator_classes(names: Sequence[str]) -> Ints:
    """Return the place in `KERNEL_CLASSES` of each operator's class; `other` if no rule matches, such as for views."""
    found = _classes(names, OPERATOR_CLASS_RULES, re.Pattern.match)
    return np.where(found == UNNAMED, _PLACE["other"], found)


def named_classes(names: Sequence[str]) -> Ints:
    """Return the place in `KERNEL_CLASSES` of the class that each kernel's name tells; `UNNAMED` if it does not."""
    return _classes([name[:_LONGEST] for name in names], KERNEL_CLASS_RULES, re.Pattern.search)


def kernel_classes(by_name: Ints, by_operator: Ints) -> Ints:
    """Return the classes of kernels by their names, or else by the operators that launched them (`other` without one).

    Which kernels are copies and communication is decided elsewhere (metrics.md section 2).
    """
    # cuDNN and cuBLAS share kernels, and a fused attention runs its own GEMMs: the operator is more exact.
    exact = np.isin(by_operator, _EXACT) & np.isin(by_name, _SHARED)
    return np.where(exact | (by_name == UNNAMED), by_operator, by_name)


def _classes(names: Sequence[str], rules: Sequence[_Rule], match: Callable[["re.Pattern[str]", str], object]) -> Ints:
    """Return the class that the first rule that matches gives each name: there may be a million, all different."""
    found = np.full(len(names), UNNAMED, np.int64)
    # Lower case is found in a third of the time that patterns without case take.
    left, texts = np.arange(len(names)), [_DIGITS.sub("0", name).lower() for name in names]
    for pattern, kernel_class in rules:
        matches = np.array([match(pattern, text) is not None for text in texts], np.bool_)
        found[left[matches]] = _PLACE[kernel_class]
        left, texts = left[~matches], list(compress(texts, (~matches).tolist()))
    return found
