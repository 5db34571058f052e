"""`-o wandb:PROJECT`: one run each in a project of Weights & Biases, with the page as an artefact.

WANDB_MODE=offline writes them below WANDB_DIR, for `wandb sync`.
"""

from pathlib import Path
from typing import Any, Final

from perfkit.errors import StoreError
from perfkit.tools.trackers.content import TrackedRun, import_client

_PROJECT: Final = "perfkit"


def send(address: str, runs: list[TrackedRun]) -> list[str]:
    """Send runs to the project `address`, which may be `ENTITY/PROJECT`.

    Raises:
        LaunchEnvironmentError: wandb is not installed.
        StoreError: The server refuses the data, or cannot be reached.
    """
    wandb = import_client("wandb", "wandb")
    entity, slash, project = address.rpartition("/")
    place = {"project": project or _PROJECT} | ({"entity": entity} if slash else {})
    try:
        return [_send(wandb, place, run) for run in runs]
    except (wandb.errors.Error, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise StoreError(f"-o wandb:{address}: {reason}") from error


def _send(wandb: Any, place: dict[str, str], run: TrackedRun) -> str:
    settings = wandb.Settings(silent=True, console="off")
    with wandb.init(**place, name=run.name, config=run.options, notes=run.summary, settings=settings) as sent:
        for number, ms in enumerate(run.step_ms):
            sent.log({"step_ms": ms}, step=number)
        sent.summary.update(run.scalars)
        with run.page_file() as page:
            artefact = wandb.Artifact(f"perfkit-{sent.id}", type="report")
            artefact.add_file(str(page))
            sent.log_artifact(artefact)
        if sent.offline:
            return f"wandb sync {Path(sent.dir).parent}"
        return str(sent.url)
