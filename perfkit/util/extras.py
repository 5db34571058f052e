"""How to install an extra of perfkit."""


def install_extra(extra: str) -> str:
    """Return the command that installs an extra, for an installed perfkit and for a clone."""
    return f"pip install 'perfkit[{extra}]', or in a clone '.[{extra}]'"
