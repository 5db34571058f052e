"""Says what options of `perfkit run` come to, without running: the process behind `perfkit.sweep.option_resolution`.

It reads a `ResolveRequest` from stdin and writes an `ResolveResponse` to stdout, both as JSON.
"""

import sys
from typing import Any

import msgspec
import typer
from typer.main import get_command

from perfkit.cli.run import application, load_workload, make_job
from perfkit.errors import PerfkitError, UsageError
from perfkit.sweep.option_resolution import ResolveRequest, ResolveResponse


def answer(question: ResolveRequest) -> ResolveResponse:
    """Return the effective configuration of each command, or the first error."""
    try:
        configs = [_config(command, question.ranks) for command in question.commands]
        return ResolveResponse(configs=configs, threads_by_ranks=any(map(_leaves_threads, configs)))
    except UsageError as error:
        return ResolveResponse(error=str(error), usage=True)
    except typer.TyperException as error:
        return ResolveResponse(error=error.format_message().rstrip("."), usage=True)
    except PerfkitError as error:
        return ResolveResponse(error=str(error))


def _config(command: list[str], ranks: int) -> dict[str, Any]:
    name, *options = command
    workload = load_workload(name)
    given: dict[str, Any] = {}
    parser = get_command(application(workload, lambda _, values: given.update(values)))
    with parser.make_context(f"perfkit run {name}", options) as context:
        parser.invoke(context)
    job = make_job(workload, given)
    job.run.check_world(ranks)
    return job.effective


def _leaves_threads(config: dict[str, Any]) -> bool:
    from perfkit.capture.distributed.process_group import default_kind  # torch: not before there is a workload

    kind = default_kind() if config["device"] == "auto" else config["device"]
    return kind == "cpu" and config["threads"] is None


def main() -> None:
    """Answer one question."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=ResolveRequest)
    sys.stdout.buffer.write(msgspec.json.encode(answer(question)))


if __name__ == "__main__":
    main()
