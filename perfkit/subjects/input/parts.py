"""What ran while a step waited for its batch, from samples (metrics.md section 28)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from perfkit.engine.samples import Frame, HostSamples
from perfkit.records.per_rank.loading import MOST_PARTS, LoadActivity, LoadingPart
from perfkit.trace.intervals import Ints, Union

_READING: Final = re.compile(
    r"(^|[. ])(open|read\w*|pread\w*|fromfile|memmap|listdir|scandir|stat|exists|i?glob|recv\w*|urlopen|get_object)$"
)
_READING_FILES: Final = re.compile(
    r"(h5py|zarr|lmdb|pyarrow|fsspec|s3fs|gcsfs|requests|urllib3?|botocore|webdataset|numpy/lib/_?npyio|numpy/memmap)\b"
    r"|(pathlib|tarfile|zipfile|glob|genericpath|posixpath|os)(\.py$|/)|torch/serialization\.py"
)
_DECODING: Final = re.compile(r"(^|[. ])(imdecode|imread|decode\w*|loads?|decompress\w*|Image\.open|safe_load)$")
_DECODING_FILES: Final = re.compile(
    r"(PIL|cv2|imageio|skimage/io|torchvision/io|torchaudio|soundfile|librosa|av|decord|json|csv|yaml|lxml|gzip|bz2"
    r"|lzma|pickle)\b"
)
_WORKERS: Final = "_MultiProcessingDataLoaderIter."
"""Methods of torch's in which a process waits for its loader's workers, or takes over their batches."""
_NO_CODE: Final[frozenset[LoadActivity]] = frozenset({"workers", "transfer", "pinning"})
"""What the program's own code does not do."""


def parts_in(samples: HostSamples, spans: Union) -> list[LoadingPart]:
    """Return what ran in spans, largest first."""
    return _parts(samples, *samples.taken_in(spans))


def _parts(samples: HostSamples, sample: Ints, length: Ints) -> list[LoadingPart]:
    by_activity: defaultdict[LoadActivity, list[int]] = defaultdict(list)
    for place, number in enumerate(sample.tolist()):
        by_activity[_activity(samples, number)].append(place)
    found: list[LoadingPart] = []
    for activity, places in by_activity.items():
        at, left = np.array(places), int(length[places].sum())
        codes = [] if activity in _NO_CODE else samples.functions_of(sample[at], length[at])
        found += [LoadingPart(activity=activity, code=code, ns=code.ns) for code in codes]
        if rest := left - sum(code.ns for code in codes):
            found.append(LoadingPart(activity=activity, ns=rest))
    return sorted(found, key=lambda part: -part.ns)[:MOST_PARTS]


def _activity(samples: HostSamples, number: int) -> LoadActivity:
    """Return what a sample shows."""
    frames = samples.frames(number)
    activity = _shown_by(frames)
    if activity in ("transfer", "pinning"):
        return "workers" if activity == "transfer" and samples.waits[number] else activity
    if samples.starves[number]:
        return "core"
    if samples.waits[number]:
        return "reading" if activity in ("reading", "decoding") else "waiting"
    return activity


def _shown_by(frames: Sequence[Frame]) -> LoadActivity:
    """Return what a stack, innermost frame first, is part of."""
    names = {frame.name.rpartition(".")[2] for frame in frames}
    if any(frame.file.endswith("data/_utils/pin_memory.py") for frame in frames):
        return "pinning"
    if any(frame.name.startswith(_WORKERS) for frame in frames):
        return "transfer"
    inner = frames[: next((depth for depth, frame in enumerate(frames) if frame.is_own), len(frames)) + 1]
    files = [frame.file for frame in inner if not frame.is_own]
    calls = [frame.call for frame in inner]
    if any(map(_READING.search, calls)) or any(map(_READING_FILES.match, files)):
        return "reading"
    if any(map(_DECODING.search, calls)) or any(map(_DECODING_FILES.match, files)):
        return "decoding"
    collates = "timed_collate" in names or any("data/_utils/collate.py" in frame.file for frame in frames)
    return "collating" if collates else "transforming"


def without_workers(parts: Iterable[LoadingPart], of_workers: Sequence[LoadingPart]) -> list[LoadingPart]:
    """Return the parts of the process that trains, with what workers did in place of waiting for them."""
    left = sum(part.ns for part in of_workers)
    found = list(of_workers)
    for part in parts:
        taken = min(left, part.ns) if part.activity == "workers" else 0
        left -= taken
        if part.ns > taken:
            found.append(LoadingPart(activity=part.activity, code=part.code, ns=part.ns - taken))
    return sorted(found, key=lambda part: -part.ns)[:MOST_PARTS]
