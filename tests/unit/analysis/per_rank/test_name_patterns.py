"""Names of kernels and collectives, as the libraries write them."""

import pytest

from perfkit.analysis.per_rank.name_patterns import collective_operator, is_communication_kernel

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
    "void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*, unsigned long)",
]

COMPUTE = [
    "hipblasGemm_nccl",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ncclFloat> >(ncclFloat)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)",
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32",
    "triton_red_fused_all_reduce_sum_0",
    "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int)",
]


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication_kernels(name: str) -> None:
    assert is_communication_kernel(name)


@pytest.mark.parametrize("name", COMPUTE)
def test_compute_kernels(name: str) -> None:
    assert not is_communication_kernel(name)


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("c10d::allreduce_", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("c10d::_reduce_scatter_base_", "reduce_scatter"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("gloo:barrier", "barrier"),
        ("gloo:recv", "recv"),
        ("reduce", "reduce"),
        ("ncclDevKernel_Generic", None),
    ],
)
def test_spellings_of_collectives(name: str, operator: str | None) -> None:
    assert collective_operator(name) == operator
