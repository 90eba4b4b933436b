"""The command `review`, which shows branches on a terminal as pull requests are shown."""

import codecs
import importlib.util
import os
import sys

import click

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Failure, converse, mount_option
from agentfsd.cli.connect import mount_finder, whole_workspace


@click.command()
@click.argument("branch", required=False, shell_complete=shell_completion.branches)
@mount_option
def review(branch: str | None, named: str | None) -> None:
    """Review branches on the terminal, hunk by hunk.

    Without BRANCH, it shows a table of all branches: what each changed, how its last command ended, who works in it. Enter opens
    one. Its files stand at the left and their changes at the right. Hunks are chosen with the space bar, then committed (c),
    merged into another branch (m) or taken back (d). Nothing is done before you confirm it. Conflicts that a merge has left are
    settled there, too.

    The key ? lists the keys of each screen; q leaves. It needs no browser: for that, see `agentfsd ui`.

    \b
    Example:
      agentfsd review
      agentfsd review fix-1
      agentfsd review -m ~/work
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure(
            "`agentfsd review` needs a terminal for its input and output",
            "elsewhere: `agentfsd compare`, `agentfsd diff --patch BRANCH`, `agentfsd commit -p BRANCH`",
        )
    if importlib.util.find_spec("textual") is None:
        raise Failure(
            "the package textual is missing; the review needs it",
            "pip install 'agentfsd[review]', or uv tool install 'agentfsd[review]'",
        )
    stream = sys.__stderr__  # on which Textual draws
    if stream is not None and codecs.lookup(stream.encoding).name != "utf-8":
        raise Failure(
            f"the locale's encoding is {stream.encoding}, and the review draws in UTF-8",
            "on a terminal that shows UTF-8: LC_ALL=C.UTF-8 agentfsd review",
        )
    mount, daemon = _converse(named)
    with daemon:
        place = whole_workspace.shown_at(mount, daemon, "the review shows")
        ref = daemon.show_branch(branch).id if branch is not None else None
    from agentfsd.cli.terminal_review.board_screen import BoardScreen
    from agentfsd.cli.terminal_review.branch_screen import BranchScreen
    from agentfsd.cli.terminal_review.review_app import ReviewApp

    for name in ("COLUMNS", "LINES"):  # of a shell that exports them: they do not follow the terminal
        os.environ.pop(name, None)
    app = ReviewApp(lambda: _converse(named)[1], place, BoardScreen if ref is None else lambda: BranchScreen(ref))
    app.run()
    if app.return_code:
        raise click.exceptions.Exit(app.return_code)


def _converse(named: str | None) -> tuple[locate.Mount, ControlClient]:
    return converse(lambda: mount_finder.find(named, revive=True))
