"""`perfkit data`: make data for the workloads from one's own."""

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.typer_app import App

app = App(help="Prepare data for the workloads.")


@app.callback()
def data() -> None:
    """Make a group of this, though it has one command."""


@app.command(short_help="Turn a text into tokens.")
def prepare(
    text: Annotated[
        Path, typer.Option(metavar="FILE", help="Any UTF-8 text; each of its distinct characters becomes a token.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to make; train with `perfkit run gpt --text DIR`.")],
    validation: Annotated[
        float, typer.Option(min=0, max=0.99, help="Share of the text, from its end, kept for validation.")
    ] = 0.1,
) -> None:
    """Turn a text into tokens, split into a training and a validation part."""
    from workloads.data.text import prepare_text  # numpy: not for `perfkit --help`

    made, reused = prepare_text(text, out, validation)
    vocabulary = made.vocabulary
    typer.echo(
        f"{out}: {vocabulary.train_tokens:,} training and {vocabulary.validation_tokens:,} "
        f"validation characters, {made.vocab_size:,} distinct" + (" (there already)" if reused else "")
    )
