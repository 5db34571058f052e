"""`-o tensorboard:FOLDER`: event files, one folder per run, with the page beside them; needs no torch."""

import time
from pathlib import Path
from typing import Any

from perfkit.errors import StoreError, UsageError
from perfkit.report.output_files import refuse_links, writing
from perfkit.tools.trackers.content import TrackedRun, import_client


def send(address: str, runs: list[TrackedRun]) -> list[str]:
    """Write runs below the folder `address`.

    Raises:
        LaunchEnvironmentError: tensorboard is not installed.
        StoreError: The folder cannot be written, or what is to be written there is a link.
        UsageError: There is no address.
    """
    if not address:
        raise UsageError("-o tensorboard: needs a folder, such as tensorboard:runs")
    writers = import_client("tensorboard.summary.writer.event_file_writer", "tensorboard")
    protos = import_client("tensorboard.compat.proto.summary_pb2", "tensorboard")
    events = import_client("tensorboard.compat.proto.event_pb2", "tensorboard")
    tensors = import_client("tensorboard.util.tensor_util", "tensorboard")
    for run in runs:
        folder = Path(address, run.name)
        page = folder / "report.html"
        refuse_links(folder, page, instead="remove it, or choose another folder")
        with writing(page) as stream:
            stream.write(run.page)
        try:
            writer = writers.EventFileWriter(str(folder))
        except OSError as error:
            raise StoreError(f"cannot write {folder}: {error.strerror or error}") from error
        for number, summary in _summaries(run, page, protos, tensors):
            writer.add_event(events.Event(wall_time=time.time(), step=number, summary=summary))
        writer.close()
    return [f"tensorboard --logdir {address}"]


def _summaries(run: TrackedRun, page: Path, protos: Any, tensors: Any) -> list[tuple[int, Any]]:
    """Return summaries with the numbers of their steps: scalars, the curve of step times, and the text."""

    def scalar(name: str, value: float) -> Any:
        return protos.Summary.Value(tag=f"perfkit/{name}", simple_value=value)

    def text(name: str, value: str) -> Any:
        metadata = protos.SummaryMetadata(plugin_data=protos.SummaryMetadata.PluginData(plugin_name="text"))
        tensor = tensors.make_tensor_proto(value.encode(), dtype=None)
        return protos.Summary.Value(tag=f"perfkit/{name}", metadata=metadata, tensor=tensor)

    options = "\n".join(f"    {name} = {value}" for name, value in sorted(run.options.items()))
    first = [scalar(name, value) for name, value in run.scalars.items()]
    first += [text("verdict", f"{run.summary}\n\nThe page: {page.absolute()}"), text("options", options)]
    curve = [(number, protos.Summary(value=[scalar("step_ms", ms)])) for number, ms in enumerate(run.step_ms)]
    return [(0, protos.Summary(value=first)), *curve]
