"""Prints the address of a server, and opens it in the browser."""

import os
import socket

from perfkit.cli.typer_app import print_line


def announce(what: str, link: str, port: int, *, browser: bool, until: str = "Serving until Ctrl-C") -> None:
    """Print the link, and open the browser if requested and the user sits at this machine.

    Args:
        what: What is served.
        link: Its address.
        port: The port that is to be forwarded if the browser runs on another machine.
        browser: Whether to open the browser.
        until: How long it is served.
    """
    print_line(f"{what}\n  {link}")
    if browser and not _is_remote():
        import webbrowser

        opened = webbrowser.open(link)
    else:
        opened = False
    if not opened:
        print_line(f"From another machine, first run:  ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}")
    print_line(until)


def _is_remote() -> bool:
    """Return whether a browser started here would not be on the user's machine."""
    return "SSH_CONNECTION" in os.environ and not os.environ.get("DISPLAY")
