"""The command `ui`, which serves the pages that show an overlay or a recorded session."""

import importlib.util
import webbrowser
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfs_files.filesystem.filesystem_errors import ArchiveError
from agentfsd.cli.command_base import Failure, converse, mount_option
from agentfsd.cli.connect import mount_finder, whole_workspace
from agentfsd.cli.output import printing

if TYPE_CHECKING:
    from agentfsd.web.viewed_trees import ArchiveTree


@click.command()
@click.argument("session", required=False)
@click.option("--write", "writable", is_flag=True, help="Offer commit, merge, restore, discard and undo; else nothing changes.")
@click.option("--open", "opening", is_flag=True, help="Open the page in a browser.")
@click.option("--host", metavar="ADDRESS", help="A loopback address, for a browser that cannot resolve names below localhost.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), metavar="PORT", help="The port; by default a free one.")
@mount_option
def ui(session: str | None, writable: bool, opening: bool, host: str | None, port: int, named: str | None) -> None:
    """Show an overlay in a browser.

    The pages show which process works in which branch, all that a branch changed, any two states side by side, the history, and
    changes as they happen. With --write, hunks are chosen there, and committed, merged or taken back. With SESSION (ID.jsonl or
    ID.fs.zip), they show the files that an agent's session left.

    The command prints an address with a secret token, and serves the pages to this machine only, until Ctrl-C. On any page, the
    key ? lists the keys.

    \b
    Example:
      agentfsd ui
      agentfsd ui -m ~/work --write --open
      agentfsd ui sessions/4f1c.jsonl
    """
    missing = [name for name in ("starlette", "uvicorn", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(f"the package {missing[0]} is missing; the pages need it", "pip install 'agentfsd[ui]'")
    from agentfsd.web import guard, web_server
    from agentfsd.web.session_pages import find

    with ExitStack() as stack:
        listening = [stack.enter_context(each) for each in web_server.listen(host, port)]
        keys = guard.Keys() if host is None else guard.Keys(host=web_server.host_of(listening[0]))
        cookie = web_server.cookie_name(listening)
        if session is not None:
            files = find(session)
            archive = None if files.archive is None else stack.enter_context(closing(_opened(files.archive)))
            site = web_server.session_site(files, archive, keys, cookie)
        else:
            site = web_server.overlay_site(lambda: _converse(named), _shown_at(named), keys, cookie, writable=writable)
        printing.say(web_server.address(listening, keys.host, keys.token))
        printing.note(
            "Ctrl-C ends it; anybody who has this address can see every branch" if session is None else "Ctrl-C ends it"
        )
        if opening:
            # Other users can read the browser's command line, so it holds neither the secret host name nor the token.
            shown = web_server.host_of(listening[0])
            webbrowser.open(web_server.address(listening, shown, keys.new_once()))
        web_server.run(site, listening)


def _converse(named: str | None) -> tuple[locate.Mount, ControlClient]:
    return converse(lambda: mount_finder.find(named, revive=True))


def _opened(archive: Path) -> "ArchiveTree":
    from agentfsd.web.viewed_trees import ArchiveTree

    try:
        return ArchiveTree(archive)
    except (ArchiveError, OSError) as exc:
        raise Failure(str(exc), "was it cut short, or written by something else?") from exc


def _shown_at(named: str | None) -> str:
    """Return the path of the workspace to show on the pages.

    Raises:
        Failure: This process is bound to a branch, but the pages show all branches.
    """
    mount, daemon = _converse(named)
    with daemon:
        return whole_workspace.shown_at(mount, daemon, "the pages show")
