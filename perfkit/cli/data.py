"""`perfkit data`: prepares data for the workloads."""

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.output import report_written
from perfkit.cli.typer_app import App, print_line

app = App(help="Prepare data for the workloads.")


@app.callback()
def data() -> None:
    """Make `data` a group although it has one command."""


@app.command(short_help="Tokenize a text.")
def prepare(
    text: Annotated[
        Path, typer.Option(metavar="FILE", help="Any UTF-8 text; each distinct character becomes a token.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder to create; train with `perfkit run gpt --text DIR`.")
    ],
    validation: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.99,
            help="Share of the text, from its end, kept for validation: 0.1 as nanoGPT does; 0.0005 for large texts.",
        ),
    ] = 0.1,
    token_files: Annotated[
        bool,
        typer.Option(
            "--bin", help="Also write train.bin, val.bin (16-bit token ids) and meta.pkl, as nanoGPT reads them."
        ),
    ] = False,
) -> None:
    """Tokenize a text, split into training and validation data.

    \b
    perfkit data prepare --text shakespeare.txt --out data/shakespeare
    perfkit run gpt --preset shakespeare-char --text data/shakespeare
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    from perfkit_workloads.data.text import prepare_text, write_bin  # numpy: not for `perfkit --help`

    prepared, reused = prepare_text(text, out, validation)
    vocabulary = prepared.vocabulary
    found = (
        f"{vocabulary.train_tokens:,} training and {vocabulary.validation_tokens:,} validation characters, "
        f"{prepared.vocab_size:,} distinct"
    )
    if reused:
        print_line(f"{out}: {found} (there already)")
    else:
        report_written(out, found)
    if token_files:
        for path in write_bin(prepared):
            report_written(path, "characters" if path.suffix == ".pkl" else "token ids of 16 bits")
