"""The analyses of Holistic Trace Analysis that `perfkit hta` runs."""

from typing import Final

ANALYSES: Final[dict[str, str]] = {
    "temporal-breakdown": "idle, computing and other time of each rank, from its first to its last device event",
    "idle-time": "why each stream was idle: waiting for the host, between kernels, or other",
    "launch-stats": "each launch: time of the call, of the kernel, and the delay between them",
    "queue-length": "outstanding operations a stream",
    "memory-bandwidth": "copies and memsets, GB/s",
    "critical-path": "what the critical path of a step is made of",
}
