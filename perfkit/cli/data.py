"""`perfkit data`: make data for the workloads from one's own."""

from pathlib import Path

import click


@click.group("data")
def command() -> None:
    """Prepare data for the workloads."""


@command.command("prepare")
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="Any UTF-8 text; each of its distinct characters becomes a token.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="Folder to make; train with `perfkit run gpt --text DIR`.",
)
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.1,
    show_default=True,
    help="Share of the text, from its end, kept for validation.",
)
def prepare(text: Path, out: Path, validation: float) -> None:
    """Turn a text into tokens, split into a training and a validation part."""
    from workloads.data.text import prepare_text  # numpy: not for `perfkit --help`

    made, reused = prepare_text(text, out, validation)
    vocabulary = made.vocabulary
    click.echo(
        f"{out}: {vocabulary.train_tokens:,} training and {vocabulary.validation_tokens:,} "
        f"validation characters, {made.vocab_size:,} distinct" + (" (there already)" if reused else "")
    )
