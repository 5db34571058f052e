"""Kernels and operators are of the class that their authors' names tell."""

from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.attribution.classes import kernel_classes, named_classes, operator_classes
from perfkit.records.per_rank.work import KERNEL_CLASSES

KERNELS = {
    "ampere_sgemm_128x64_tn": "gemm",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT": "gemm",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32": "gemm",
    "void cutlass::Kernel<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>(Params)": "gemm",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Flash_fwd_params)": "attention",
    "fmha_cutlassF_f16_aligned_64x64_rf_sm80": "attention",
    "void cudnn::detail::dgrad2d_alg1_1<float>": "convolution",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_nhwc_tn_n": "convolution",
    "void at::native::vectorized_layer_norm_kernel<float, float>(int)": "normalisation",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>": "normalisation",
    "void at::native::indexSelectLargeIndex<float, long>": "embedding",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": "reduction",
    "void softmax_warp_forward<float, float, 10>": "reduction",
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<lambda>>": "elementwise",
    "triton_poi_fused_add_cos_sin_0": "elementwise",
    "triton_red_fused_mean_0": "reduction",
    "void multi_tensor_apply_kernel<TensorListMetadata, FusedAdamMathFunctor<float>>": "optimizer",
    "batched_transpose_16x64_pack_1x4_ediv_1x2_half": "convolution",
    "SubTensorOpWithCastTensor1d": "convolution",
    "igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16": "convolution",
    "Im2d2Col_v2": "convolution",
    "void ck::tensor_operation::device::kernel_batched_gemm_xdlops_bwd_weight<ck::GridwiseGemm<64>>": "convolution",
    "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm>": "gemm",
    "MIOpenBatchNormFwdTrainSpatial": "normalisation",
    "mloPoolingG": "reduction",
    "void at::native::max_pool_backward_nchw<float, float>": "reduction",
    "void rocprim::detail::trampoline_kernel<rocprim::radix_sort_impl>": "reduction",
    "void rocprim::detail::transform_kernel<256>": "elementwise",
    "void permute_pooled_embs_kernel<float>(float const*)": "embedding",
    "aiter::pa_bf16_noquant_gqa8_1tg_4w": "attention",
    "aiter::mla_a16w16_qh16_m16x4_n16x1": "attention",
    "aiter::fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256": "gemm",
    "void aiter::act_and_mul_kernel<c10::BFloat16>": "elementwise",
    "batched_transpose(float*)": "other",
    "rocprim" * 200_000: "reduction",
    "spin_kernel(long)": "other",
}

OPERATORS = {
    "aten::mm": "gemm",
    "aten::addmm": "gemm",
    "aten::linear": "gemm",
    "aten::_scaled_dot_product_flash_attention": "attention",
    "aten::conv2d": "convolution",
    "aten::convolution_backward": "convolution",
    "aten::native_layer_norm_backward": "normalisation",
    "aten::embedding_dense_backward": "embedding",
    "aten::_softmax": "reduction",
    "aten::sum": "reduction",
    "aten::add_": "elementwise",
    "aten::gelu_backward": "elementwise",
    "aten::_fused_adamw_": "optimizer",
    "aten::copy_": "copy",
    "aten::view": "other",
    "my::operator": "other",
}


def kernel_class(name: str, operator: str) -> str:
    return KERNEL_CLASSES[int(kernel_classes(named_classes([name]), operator_classes([operator]))[0])]


def test_kernels() -> None:
    found = kernel_classes(named_classes([*KERNELS]), operator_classes([""] * len(KERNELS))).tolist()
    assert {name: KERNEL_CLASSES[place] for name, place in zip(KERNELS, found, strict=True)} == KERNELS


def test_operators() -> None:
    found = operator_classes([*OPERATORS]).tolist()
    assert {name: KERNEL_CLASSES[place] for name, place in zip(OPERATORS, found, strict=True)} == OPERATORS


@given(st.lists(st.sampled_from([*KERNELS, *OPERATORS, "a\nsgemm", "", "B", "SOFTMAX"]), max_size=20))
def test_names_are_of_the_same_class_alone(names: list[str]) -> None:
    for classes in (named_classes, operator_classes):
        assert classes(names).tolist() == [int(classes([name])[0]) for name in names]


def test_the_operator_tells_what_shared_and_unknown_kernels_are_for() -> None:
    assert kernel_class("ampere_sgemm_128x64_tn", "aten::cudnn_convolution") == "convolution"
    assert kernel_class("unheard_of", "aten::mm") == "gemm"
    assert kernel_class("void at::native::elementwise_kernel<128>", "aten::mm") == "elementwise"
