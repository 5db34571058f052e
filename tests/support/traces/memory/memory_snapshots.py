"""Made snapshots of memory, in the layout that torch/cuda/memory.py documents: no GPU wrote them.

`MadeAllocator` keeps the books of a caching allocator: segments of 20 MiB, sizes rounded up to 512 bytes, first fit.
"""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SEGMENT = 20 << 20
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"
Frame = tuple[str, int, str]
FORWARD: tuple[Frame, ...] = ((TORCH, 125, "forward"), ("/home/me/train.py", 30, "forward"), ("/home/me/train.py", 90, "main"))
LOAD: tuple[Frame, ...] = (("/home/me/data.py", 7, "to_device"), ("/home/me/train.py", 80, "main"))
CPP: tuple[Frame, ...] = (("??", 0, "torch::autograd::Engine::evaluate_function"),)


class MadeAllocator:
    """One device, its segments and its history."""

    def __init__(self) -> None:
        self.segments: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self._frames: dict[Frame, dict[str, Any]] = {}
        self._stacks: dict[tuple[Frame, ...], list[dict[str, Any]]] = {(): []}

    def _stack(self, frames: tuple[Frame, ...]) -> list[dict[str, Any]]:
        for file, line, name in frames:
            self._frames.setdefault((file, line, name), {"filename": file, "line": line, "name": name})
        return self._stacks.setdefault(frames, [self._frames[frame] for frame in frames])

    def _note(self, action: str, address: int, size: int, frames: tuple[Frame, ...] = ()) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(self.history)}
        self.history.append({**entry, "frames": self._stack(frames)})

    def alloc(self, size: int, frames: tuple[Frame, ...] = FORWARD) -> int:
        """Allocate, and return the address."""
        rounded = -(-size // 512) * 512
        places = [(s, b) for s in self.segments for b in s["blocks"] if b["state"] == "inactive" and b["size"] >= rounded]
        segment, block = places[0] if places else self._segment(rounded)
        at = segment["blocks"].index(block)
        rest = {**block, "address": block["address"] + rounded, "size": block["size"] - rounded}
        block.update(state="active_allocated", size=rounded, requested_size=size, frames=self._stack(frames))
        segment["blocks"][at + 1 : at + 1] = [rest] if rest["size"] else []
        self._note("alloc", block["address"], size, frames)
        return int(block["address"])

    def _segment(self, rounded: int) -> tuple[dict[str, Any], dict[str, Any]]:
        address, size = 1 << 40 | len(self.segments) << 32, -(-rounded // SEGMENT) * SEGMENT
        block = {"address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": []}
        segment = {"device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "large"}
        self.segments.append({**segment, "segment_pool_id": (0, 0), "blocks": [block]})
        self._note("segment_alloc", address, size)
        return self.segments[-1], block

    def free(self, address: int) -> None:
        """Release what is at an address; neighbours that are free become one block."""
        segment, block = next((s, b) for s in self.segments for b in s["blocks"] if b["address"] == address)
        self._note("free_requested", address, block["requested_size"])
        self._note("free_completed", address, block["requested_size"])
        block.update(state="inactive", requested_size=0, frames=[])
        joined: list[dict[str, Any]] = []
        for one in segment["blocks"]:
            if joined and joined[-1]["state"] == one["state"] == "inactive":
                joined[-1]["size"] += one["size"]
            else:
                joined.append(one)
        segment["blocks"] = joined

    def fail(self, size: int, device_free: int) -> None:
        """Note an allocation that failed."""
        self._note("oom", 0, size, FORWARD)
        self.history[-1]["device_free"] = device_free
        del self.history[-1]["addr"]

    def snapshot(self, *, forgotten: int = 0) -> dict[str, Any]:
        """Return the snapshot; its history is a ring that has forgotten the first actions."""
        for segment in self.segments:
            active = sum(block["size"] for block in segment["blocks"] if block["state"] != "inactive")
            segment.update(allocated_size=active, active_size=active)
        return {"segments": self.segments, "device_traces": [self.history[forgotten:]], "allocator_settings": {}}


def write_snapshot(path: Path, snapshot: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Path:
    """Write a snapshot as `torch.cuda.memory._dump_snapshot` does."""
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path


def made_training(steps: Sequence[int] = (4, 2)) -> MadeAllocator:
    """Return an allocator after some steps: each loads a batch of 3 MiB, and keeps so many activations of 5 MiB."""
    allocator = MadeAllocator()
    for layers in steps:
        batch = allocator.alloc(3 << 20, LOAD)
        activations = [allocator.alloc(5 << 20) for _ in range(layers)]
        gradient = allocator.alloc(1000, CPP)
        for address in (*activations, gradient, batch):
            allocator.free(address)
    allocator.alloc(7 << 20, LOAD)
    return allocator
