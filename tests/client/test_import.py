"""The client is light: msgspec alone, and quick to import."""

import subprocess
import sys


def test_client_imports_nothing_of_the_daemon() -> None:
    code = (
        "import sys, agentfs_client.control; "
        "print([name for name in ('agentfsd', 'trio', 'pyfuse3', 'click', 'rich', 'pygit2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
