"""`perfkit plan`: predicts what fits, how long a step takes and what it costs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from perfkit.cli.help_screen import Common
from perfkit.cli.output import JSON_HELP, format_option, output_option, shown_and_written, write_files
from perfkit.cli.typer_app import App
from perfkit.records.plan import Plan
from perfkit.report import DEFAULT_TOP

app = App()

_MODEL = "Model"
_RUN = "Run"
_PLACE = "Device"
_RATES = "Assumptions"
_OUTPUT = "Output"


@app.command()
def plan(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="gpt or FILE.py:FUNCTION.", show_default=False)
    ] = "gpt",
    preset: Annotated[str | None, typer.Option(help="Preset of gpt.", rich_help_panel=Common(_MODEL))] = None,
    params: Annotated[
        float | None,
        typer.Option(help="Parameters of another model, such as 7.5e9.", rich_help_panel=Common(_MODEL)),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Transformer blocks.", rich_help_panel=_MODEL)
    ] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Embedding size.", rich_help_panel=_MODEL)] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Attention heads.", rich_help_panel=_MODEL)] = None,
    sequence: Annotated[
        int | None, typer.Option("--sequence", "--block", min=1, help="Tokens per sample.", rich_help_panel=_MODEL)
    ] = None,
    vocab_size: Annotated[int | None, typer.Option(min=1, help="Vocabulary size.", rich_help_panel=_MODEL)] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="SHAPE[:DTYPE]",
            help="Tensor per rank and step that the module takes, such as 4,512:int64; may be repeated.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION", help="Function of FILE.py that returns these tensors.", rich_help_panel=_MODEL
        ),
    ] = None,
    bias: Annotated[bool | None, typer.Option(help="Biases in gpt.", rich_help_panel=_MODEL)] = None,
    experts: Annotated[
        int | None,
        typer.Option(min=1, help="Experts that replace each MLP of gpt [default: one MLP].", rich_help_panel=_MODEL),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Experts that each token is routed to [default: 2].", rich_help_panel=_MODEL),
    ] = None,
    ranks: Annotated[
        int, typer.Option("-n", "--ranks", min=1, max=2**17, rich_help_panel=Common(_RUN), help="Number of ranks.")
    ] = 1,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=Common(_RUN),
            help="Global batch size / ranks; the same for all layouts [default: the preset's, or 1].",
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "mixed", "half"] | None,
        typer.Option(
            rich_help_panel=_RUN,
            help="Data types: float32, bfloat16 and float16 as in `perfkit run`; mixed: parameters in 16 bits, with a "
            "float32 copy in the optimizer; half: all in 16 bits [default: float32, with --params mixed].",
        ),
    ] = None,
    checkpoint: Annotated[
        Literal["none", "selective", "full"] | None,
        typer.Option(rich_help_panel=_RUN, help="Activation checkpointing [default: compare all]."),
    ] = None,
    attention: Annotated[
        Literal["fused", "stored"],
        typer.Option(rich_help_panel=_RUN, help="Whether attention scores are stored for backward."),
    ] = "fused",
    tokens: Annotated[
        float | None, typer.Option(min=1, rich_help_panel=_RUN, help="Tokens to train on, for device-hours and energy.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Short name, such as a100-40g, or torch's name.", rich_help_panel=Common(_PLACE))
    ] = None,
    device_table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with more devices.", rich_help_panel=_PLACE)
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Name: polaris, aurora, sophia, or one of --cluster-table.", rich_help_panel=Common(_PLACE)),
    ] = None,
    cluster_table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with more clusters.", rich_help_panel=_PLACE)
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN|FILE.json",
            help="Take FLOP/s, latency and bandwidth from a run, or from a file of `perfkit collectives`.",
            rich_help_panel=_RATES,
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            rich_help_panel=_RATES,
            help="Compare the prediction for a run of gpt with its measurements, term by term.",
        ),
    ] = None,
    efficiency: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=1, help="Share of peak FLOP/s that compute reaches [default: 0.4].", rich_help_panel=_RATES
        ),
    ] = None,
    link_efficiency: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1,
            help="Share of link bandwidth that collectives reach [default: 0.7].",
            rich_help_panel=_RATES,
        ),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(help="Latency of a message [default: 10us].", rich_help_panel=_RATES)
    ] = None,
    reserve: Annotated[
        float, typer.Option(min=0, max=1, help="Allocator overhead, as a share of the memory.", rich_help_panel=_RATES)
    ] = 0.05,
    explain: Annotated[
        bool,
        typer.Option("--explain", rich_help_panel=Common(_OUTPUT), help="Show every term with its formula and source."),
    ] = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            rich_help_panel=_MODEL,
            help="Trace the best layout on fake tensors, for the memory of the real module (needs torch).",
        ),
    ] = False,
    output: Annotated[list[Path] | None, output_option(Plan, Common(_OUTPUT))] = None,
    name: Annotated[str | None, format_option(Plan, _OUTPUT)] = None,
    json: Annotated[bool, typer.Option("--json", rich_help_panel=Common(_OUTPUT), help=JSON_HELP)] = False,
    top: Annotated[
        int, typer.Option(min=1, rich_help_panel=_OUTPUT, help="Layouts with tp, pp, cp or ep to show.")
    ] = DEFAULT_TOP,
) -> None:
    """Plan a training run: memory per rank, communication and step time of every parallel layout.

    gpt, and models given by their size, are planned from formulas, instantly and without torch; --trace, and other
    models, run a step of the real module on fake tensors. The command for the best layout is printed.

    \b
    perfkit plan gpt --preset gpt2-xl --ranks 64 --cluster polaris
    perfkit plan --params 7.5e9 --ranks 64 --explain
    perfkit plan my_model.py:build --input 4,512:int64 -n 8 --device h100
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    files = shown_and_written(Plan, name, output, json)
    # Imported late, so that `--help` does not wait for the workloads.
    from perfkit.tools.plan.command import Options, Sizes, plan_model

    options = Options(
        model=model,
        preset=preset,
        params=params,
        sizes=Sizes(
            layers=layers,
            width=width,
            heads=heads,
            block=sequence,
            vocab_size=vocab_size,
            bias=bias,
            experts=experts,
            top_k=top_k,
        ),
        ranks=ranks,
        batch_size=batch_size,
        precision=precision,
        checkpoint=checkpoint,
        attention=attention,
        tokens=tokens,
        device=device,
        device_table=device_table,
        cluster=cluster,
        cluster_table=cluster_table,
        efficiency=efficiency,
        link_efficiency=link_efficiency,
        latency=latency,
        reserve=reserve,
        explain=explain,
        trace=trace,
        measured=measured,
        check=check,
        inputs=tuple(inputs or ()),
        batch=batch,
    )
    write_files(plan_model(options), files, top)
