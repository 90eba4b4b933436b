"""The entry point of the program. It knows no command.

Ctrl-C ends the process silently while the commands are being imported, and after they have ended.
"""

import _signal  # type: ignore[import-not-found]  # signal makes enums of all its constants, which takes a hook long
import os
import sys


def main() -> None:
    """Import and run the commands."""
    answer = _signal.getsignal(_signal.SIGINT)
    _silence()
    if os.environ.get("LISTEN_FDNAMES"):  # of the service manager; before any path of the command line is looked at
        from agentfsd.cli.connect import daemon_start

        daemon_start.go_on()
    from agentfsd.cli import quick_commands

    code = quick_commands.run(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    try:
        from agentfsd.cli.main import main as command
    except ModuleNotFoundError as exc:
        from agentfsd.cli.checkup import remedies

        way = " && ".join([remedies.install("fusermount3", "pyfuse3"), remedies.pip("'agentfsd[daemon]'")])
        sys.exit(
            f"agentfsd: the commands need the package {exc.name}\n  hint: {way}\n  or, without a compiler: 'agentfsd[native]'"
        )

    _signal.signal(_signal.SIGINT, answer)
    try:
        command()
    finally:
        _silence()


def _silence() -> None:
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # not where Ctrl-C is ignored, as under nohup
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
