"""Rules for the names of device kernels, as the libraries write them."""

import numpy as np
import pytest

from perfkit.engine.kinds.kernel_rules import (
    KERNEL_RULES,
    _mentioning_digits,
    kernel_code,
    kernel_codes,
)
from perfkit.records.kernel_rules import KernelRule
from perfkit.storage.kernel_rules_file import load_kernel_rules
from perfkit.trace.name_matching import NameShapes
from tests.support.traces.kernel_kinds import kernel_kind

COMMUNICATION = [
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, vllm::RankSignals)",
    "allreduce_large_read_write_ipc",
    "oneccl_allreduce_small",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
    "void c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**, int)",
    "c10d::nvshmem_extension::allToAllV_2d(void*, void*, long*, long*, unsigned long, int, int, long, bool, int)",
    "c10d::nvshmem_extension::exchangeSplitAndOffset(long*, long*, int, int, long)",
    "void tensorrt_llm::kernels::fused_moe_impl::moeAllToAllKernel<2, false>(FusedMoeCommKernelParam)",
    "tensorrt_llm::kernels::multiGpuBarrierKernel(tensorrt_llm::kernels::AllReduceParams)",
    "comms::pipes::allToAllvKernel(void*, void const*, int)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*, unsigned long)",
    "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)",
    "void dpsk::ep::internode::notify_dispatch<false, 4>(int const*, long*, int)",
    "void primus_turbo::deep_ep::intranode::cached_notify_dispatch<8>(int const*)",
    "void notify_dispatch<8>(int const*, int*)",
    "void cached_notify_combine<8>(void**, int*)",
    "cached_notify<false>(int, int)",
    "void deep_ep::elastic::dispatch_impl<true, 3, false>(void*)",
    "void hybrid_combine_impl<8, 2>(void*)",
    "void uccl::internode_ll::combine<true, 7168, 9>(void*)",
    "void hybrid_ep::dispatch_kernel<unsigned short, 8>(hybrid_ep::dispatch_kernel_param_t)",
    "void hybrid_ep::device_sync_kernel<8>(unsigned int*)",
    "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(mori::moe::EpDispatchCombineArgs)",
    "EpCombineInterNodeKernel_bf16",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int const*)",
    "void moeA2ACombineKernel<__nv_bfloat16, 8>(int)",
    "void pplx::a2a_dispatch_send_kernel<true, 8>(unsigned long)",
    "a2a_combine_recv_kernel",
    "void tensorrt_llm::kernels::lowPrecisionTwoShotAllReduceKernel<half, __nv_fp8_e4m3, 8>(Params)",
    "void aiter::allgather_lastdim<bf16, 8>(RankData*)",
    "barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
    "void fcollect_on_stream_kernel<float>(int, float*, float const*, unsigned long)",
    "nvshmemi_signal_wait_until_on_stream_kernel(unsigned long volatile*, int, unsigned long)",
    "_one_shot_all_reduce_kernel",
    "_two_shot_all_reduce_kernel",
    "HCCL_AllReduce",
    "hcom_allReduce__503_0_1",
    "cnclAllReduceRing",
]

COMPUTE = [
    "hipblasGemm_nccl",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ncclFloat> >(ncclFloat)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)",
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32",
    "triton_red_fused_all_reduce_sum_0",
    "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int)",
    "cdpsk::ep::CUB_200101_800_900_NS::DeviceScanKernel<x>(x)",
    "moeA2APrepareDispatchKernel",
    "lowPrecisionPreprocessKernel<half>(x)",
    "void hybrid_adam_kernel<float>(float*)",
]
LOCAL = [
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void deep_ep::elastic::dispatch_copy_epilogue_impl<true, false>(void*, void*)",
    "combine_reduce_epilogue_impl<true>(void*)",
    "void hybrid_ep::scan<512, 8>(bool const*, int)",
]


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication_kernels(name: str) -> None:
    assert kernel_kind(name) == "communication"


@pytest.mark.parametrize("name", COMPUTE)
def test_compute_kernels(name: str) -> None:
    assert kernel_kind(name) is None


@pytest.mark.parametrize("name", LOCAL)
def test_local_kernels_of_communication_libraries(name: str) -> None:
    assert kernel_kind(name) == "compute"


def test_the_first_rule_decides_and_a_users_come_first() -> None:
    own = (KernelRule(r"acme::layout", "compute"), KernelRule(r"acme::|ncclDevKernel", "communication", "our library"))
    assert [kernel_kind(name, own) for name in ("void acme::layout<2>(x)", "acme::exchange(x)", "gemm")] == [
        "compute",
        "communication",
        None,
    ]
    assert kernel_kind("ncclDevKernel_Generic", (KernelRule("nccl", "wait"),)) == "wait"


def test_rules_with_groups_of_one_name() -> None:
    own = (KernelRule(r"(?P<a>x)(?P=a)_", "wait"), KernelRule(r"(?i)(?P<a>y)\1_", "memcpy"))
    assert [kernel_kind(name, own) for name in ("xx_", "YY_", "xy_")] == ["wait", "memcpy", None]


def test_every_rule_has_a_source_and_is_one_that_a_user_could_give() -> None:
    assert load_kernel_rules(KERNEL_RULES) == KERNEL_RULES
    assert all(rule.source for rule in KERNEL_RULES)


def test_names_that_differ_in_digits_are_classified_each_by_its_own_digits() -> None:
    names = [f"{kernel}{end}" for kernel in (*COMMUNICATION, *COMPUTE) for end in ("", "_1", "_2")]
    names += ["cross_device_reduce_1stage", "cross_device_reduce_3stage", "mine_1", "mine_2", "mine_13"]
    shapes, places = NameShapes(names), np.arange(len(names))
    for rules in (
        (),
        (KernelRule("mine_1", "communication"),),
        (KernelRule("mine_(?!1)", "memcpy"), KernelRule(r"x{2}", "memcpy")),
        (KernelRule("(?i)MINE_1", "memcpy"),),
        (KernelRule("(?P<a>mine)_1", "memcpy"), KernelRule("(?P<a>mine)_2", "wait")),
    ):
        assert kernel_codes(shapes, places, rules).tolist() == [kernel_code(name, rules) for name in names]


def test_digits_decide_for_few_shapes_by_the_rules_here() -> None:
    # Else a million numbered names would each be matched with every rule.
    rules = _mentioning_digits(())
    assert rules is not None
    assert not rules.match("kernel_0000_of_many")
