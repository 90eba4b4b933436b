"""The entry point of the program. It knows no command.

Ctrl-C ends the process silently while the commands are being imported, and after they have ended.
"""

import os
import signal
import sys


def main() -> None:
    """Import and run the commands."""
    answer = signal.getsignal(signal.SIGINT)
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

    signal.signal(signal.SIGINT, answer)
    try:
        command()
    finally:
        _silence()


def _silence() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # do not change it where Ctrl-C is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
