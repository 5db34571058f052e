"""Character-level tokens of a text: every distinct character is one token.

A prepared folder contains `train.npy` and `validation.npy` (token ids, one axis) and `vocabulary.json` (the characters
in the order of their ids). The folder appears complete, by one rename.
"""

import hashlib
import os
import pickle  # written only: what is read is never unpickled
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from perfkit.errors import StoreError, UsageError

TEXT_VERSION: Final = 2
VOCABULARY: Final = "vocabulary.json"
AGAIN: Final = "remove the folder and run `perfkit data prepare` again"


class Vocabulary(Struct, frozen=True, kw_only=True):
    """The content of `vocabulary.json`."""

    schema_version: Annotated[int, Meta(ge=1)] = TEXT_VERSION
    characters: str
    """The distinct characters, sorted by code point; the id of a character is its index."""
    train_tokens: int
    validation_tokens: int
    fingerprint: str
    """SHA-256 (hexadecimal) over the text, the validation share and `TEXT_VERSION`."""
    source: str


class Text:
    """A prepared folder, read lazily."""

    def __init__(self, folder: Path, vocabulary: Vocabulary) -> None:
        self.folder = folder
        self.vocabulary = vocabulary

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.characters)

    @property
    def fingerprint(self) -> str:
        """Identifies the text and its split."""
        return self.vocabulary.fingerprint

    @property
    def train_tokens(self) -> int:
        return self.vocabulary.train_tokens

    def train(self) -> NDArray[Any]:
        """Map the ids of the training part, `(train_tokens,)`, without reading them."""
        return _part(self.folder / "train.npy", self.vocabulary.train_tokens)

    def validation(self) -> NDArray[Any]:
        """Map the ids of the validation part, `(validation_tokens,)`, without reading them."""
        return _part(self.folder / "validation.npy", self.vocabulary.validation_tokens)

    def decode(self, ids: NDArray[Any]) -> str:
        return "".join(self.vocabulary.characters[i] for i in ids)


def load_text(folder: Path) -> Text:
    """Open a folder that `prepare_text` wrote."""
    path = folder / VOCABULARY
    try:
        vocabulary = msgspec.json.decode(path.read_bytes(), type=Vocabulary)
    except OSError as error:
        raise StoreError(
            f"{folder}: not a prepared text ({VOCABULARY}: {error.strerror}); "
            "create one with `perfkit data prepare --text FILE --out DIR`"
        ) from error
    except msgspec.DecodeError as error:
        raise StoreError(f"{path}: damaged ({error}); {AGAIN}") from error
    if vocabulary.schema_version != TEXT_VERSION:
        raise StoreError(f"{path}: version {vocabulary.schema_version}, expected {TEXT_VERSION}; {AGAIN}")
    text = Text(folder, vocabulary)
    text.train()
    text.validation()
    return text


def prepare_text(file: Path, folder: Path, validation: float) -> tuple[Text, bool]:
    """Turn a UTF-8 text into a prepared folder.

    Args:
        folder: The folder to create; it may exist if it is empty or contains the same prepared text.
        validation: Share of the characters, from the end of the text, for validation.

    Returns:
        The prepared text, and whether it existed already.

    Raises:
        UsageError: The text cannot be read, is empty or is not UTF-8.
        StoreError: The folder contains something else, or cannot be written.
    """
    content = _read(file)
    digest = hashlib.sha256(f"{TEXT_VERSION}:{validation!r}:".encode())
    digest.update(content)
    fingerprint = digest.hexdigest()
    if _occupied(folder):
        return _reuse(folder, fingerprint), True
    ids, characters = _encode(_decode(content, file))
    train_tokens = int(len(ids) * (1 - validation))  # as nanoGPT rounds
    vocabulary = Vocabulary(
        characters=characters,
        train_tokens=train_tokens,
        validation_tokens=len(ids) - train_tokens,
        fingerprint=fingerprint,
        source=file.name,
    )
    _write(folder, ids, vocabulary)
    return load_text(folder), False


def write_bin(text: Text) -> list[Path]:
    """Write a text also as nanoGPT has it.

    `train.bin` and `val.bin` are 16-bit integers without a header; `meta.pkl` is a pickled dict of `vocab_size`, `itos`
    and `stoi`, by which its train.py and sample.py know the characters. perfkit never reads a pickle.

    Returns:
        The three files; what exists is replaced.

    Raises:
        UsageError: There are more distinct characters than 16 bits can number.
        StoreError: A file cannot be written.
    """
    if text.vocab_size > 1 << 16:
        raise UsageError(f"{text.folder}: token files hold up to 65,536 distinct characters, not {text.vocab_size:,}")
    characters = text.vocabulary.characters
    itos = dict(enumerate(characters))
    meta = {"vocab_size": text.vocab_size, "itos": itos, "stoi": {one: number for number, one in itos.items()}}
    contents: dict[str, NDArray[Any]] = {
        "train.bin": text.train().astype("<u2", copy=False),
        "val.bin": text.validation().astype("<u2", copy=False),
        "meta.pkl": np.frombuffer(pickle.dumps(meta), np.uint8),
    }
    files = []
    for name, content in contents.items():
        path = text.folder / name
        try:
            with tempfile.NamedTemporaryFile(dir=text.folder, prefix=f".{name}.", delete=False) as new:
                try:
                    content.tofile(new)
                    os.fchmod(new.fileno(), 0o666 & ~_umask())
                    Path(new.name).rename(path)
                except BaseException:
                    Path(new.name).unlink()
                    raise
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
        files.append(path)
    return files


def _read(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the text {file}: {error.strerror}") from error
    if not content:
        raise UsageError(f"the text {file} is empty: there is nothing to prepare")
    return content


def _decode(content: bytes, file: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the text {file} is not UTF-8: byte 0x{content[error.start]:02x} at offset "
            f"{error.start}; convert it to UTF-8 first"
        ) from error


def _encode(text: str) -> tuple[NDArray[Any], str]:
    """Return the ids of `text`, in the smallest sufficient type, and the characters."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    present = np.zeros(0x110000, dtype=bool)
    present[codes] = True
    distinct = np.flatnonzero(present)
    table = np.zeros(0x110000, dtype=np.uint16 if len(distinct) <= 1 << 16 else np.uint32)
    table[distinct] = np.arange(len(distinct))
    return table[codes], "".join(map(chr, distinct))


def _occupied(folder: Path) -> bool:
    try:
        return folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise StoreError(f"cannot use {folder}: {error.strerror}; choose another --out") from error


def _reuse(folder: Path, fingerprint: str) -> Text:
    if not (folder / VOCABULARY).exists():
        raise StoreError(f"{folder} exists and is not a prepared text; choose another --out")
    text = load_text(folder)
    if text.fingerprint != fingerprint:
        raise StoreError(
            f"{folder} has another text or split (from {text.vocabulary.source}); remove it or choose another --out"
        )
    return text


def _write(folder: Path, ids: NDArray[Any], vocabulary: Vocabulary) -> None:
    """Write all files into a new folder in the same parent, then rename it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
        try:
            np.save(new / "train.npy", ids[: vocabulary.train_tokens])
            np.save(new / "validation.npy", ids[vocabulary.train_tokens :])
            encoded = msgspec.json.format(msgspec.json.encode(vocabulary), indent=2)
            (new / VOCABULARY).write_bytes(encoded + b"\n")
            new.chmod(0o777 & ~_umask())
            new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}; choose another --out") from error


def _umask() -> int:
    """Return the process's umask: temporary folders are private, the prepared one should not be."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _part(path: Path, tokens: int) -> NDArray[Any]:
    """Map one array of ids and check its length.

    An empty array cannot be mapped; it is read into memory.
    """
    try:
        ids: NDArray[Any] = np.load(path, mmap_mode="r" if tokens else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path}: damaged or missing ({error}); {AGAIN}") from error
    if ids.shape != (tokens,) or ids.dtype.kind != "u":
        raise StoreError(f"{path}: does not contain {tokens} token ids; {AGAIN}")
    return ids
