"""An accelerator: how the toy device's work is named in a trace."""

from perfkit.accelerators import Accelerator, RuntimeCalls

TOY = Accelerator(
    title="Toy device",
    device="toy",
    backend="tccl",
    activity="PrivateUse1",
    category="toy",
    kernel_categories=("toy_op",),
    collective_kernels=((r"tccl", "TCCL"),),
    runtime=RuntimeCalls(prefixes=("toy",), allocating=("toyMalloc", "toyFree")),
    visibility=("TOY_VISIBLE_DEVICES",),
)
