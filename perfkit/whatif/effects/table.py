"""Which function makes each kind of change."""

from collections.abc import Callable
from typing import Any, Final

from perfkit.whatif import changes
from perfkit.whatif.changes import Change
from perfkit.whatif.effects import device, gradients, modules, own_time, transfers
from perfkit.whatif.effects.effect import Effect, Subject

EFFECTS: Final[dict[type, Callable[[Subject, Any], Effect]]] = {
    changes.ScaleCompute: own_time.scale_compute,
    changes.ScaleModule: modules.scale_module,
    changes.ScaleRank: own_time.scale_rank,
    changes.ScaleInput: own_time.scale_input,
    changes.ScaleIdle: own_time.scale_idle,
    changes.RemoveProfiler: own_time.remove_profiler,
    changes.RemoveSync: device.remove_synchronisation,
    changes.FuseKernels: device.fuse_kernels,
    changes.ScaleCollective: transfers.scale_collective,
    changes.ScaleBandwidth: transfers.scale_bandwidth,
    changes.Ranks: transfers.change_ranks,
    changes.BucketCap: gradients.change_buckets,
    changes.RemoveOverlap: gradients.remove_overlap,
    changes.Accumulate: gradients.accumulate,
}
"""By kind of change, in the order in which changes are made: those of the order of nodes come after those of times."""

_ORDER: Final = {kind: place for place, kind in enumerate(EFFECTS)}


def order_of(change: Change) -> int:
    """Return the place of a change among those that are made together."""
    return _ORDER[type(change)]
