"""Where the program begins and ends. It knows no command.

Until the commands are there to answer Ctrl-C (importing them takes a moment), and once they have ended, that ends the process
silently.
"""

import signal
import sys


def main() -> None:
    answer = signal.getsignal(signal.SIGINT)
    _silence()
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
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
