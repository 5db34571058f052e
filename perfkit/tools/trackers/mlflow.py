"""`-o mlflow:URI`: one run each in the experiment `perfkit`, with the page as an artefact."""

import time
from typing import Any, Final

from perfkit.errors import StoreError
from perfkit.tools.trackers.content import TrackedRun, import_client

EXPERIMENT: Final = "perfkit"
_MOST_METRICS: Final = 1000
"""Metrics of one request; servers refuse more."""
_MOST_OPTIONS: Final = 100
_LONGEST: Final = 500
"""Characters of a parameter's value that every server accepts."""


def send(address: str, runs: list[TrackedRun]) -> list[str]:
    """Send runs to the server or the folder `address`; without one, to that of MLFLOW_TRACKING_URI.

    Raises:
        LaunchEnvironmentError: mlflow is not installed.
        StoreError: The server refuses the data, or cannot be reached.
    """
    mlflow = import_client("mlflow", "mlflow")
    try:
        client = mlflow.MlflowClient(tracking_uri=address or None)
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT)
        return [_send(client, mlflow.entities, experiment, run) for run in runs]
    except (mlflow.exceptions.MlflowException, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise StoreError(f"-o mlflow:{address}: {reason}") from error


def _send(client: Any, entities: Any, experiment: str, run: TrackedRun) -> str:
    now_ms = int(time.time() * 1000)
    created = client.create_run(experiment, run_name=run.name, tags={"mlflow.note.content": run.summary})
    identity = created.info.run_id
    values = [entities.Metric(name, value, now_ms, 0) for name, value in run.scalars.items()]
    values += [entities.Metric("step_ms", ms, now_ms, number) for number, ms in enumerate(run.step_ms)]
    for first in range(0, len(values), _MOST_METRICS):
        client.log_batch(identity, metrics=values[first : first + _MOST_METRICS])
    options = [entities.Param(_plain(name), value[:_LONGEST]) for name, value in sorted(run.options.items())]
    for first in range(0, len(options), _MOST_OPTIONS):
        client.log_batch(identity, params=options[first : first + _MOST_OPTIONS])
    with run.page_file() as page:
        client.log_artifact(identity, str(page))
    client.set_terminated(identity)
    return f"MLflow run {identity} ({run.name})"


def _plain(name: str) -> str:
    """Return a name of the characters that MLflow accepts."""
    return "".join(one if one.isascii() and (one.isalnum() or one in "_-. /") else "_" for one in name)
