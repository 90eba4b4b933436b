"""A process of the pid view moves to another branch and back: whatever names it had cached, it sees its own branch only."""

import subprocess
import time

from tests.mounted import Mounted, agentfsd
from tests.system.stepper import COMMAND, PIPES, Stepper


def test_bind_of_a_process_that_has_cached_the_names_of_main(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    (mounted.subtree("b") / "sub" / "of-b").touch()
    stays = [subprocess.Popen(COMMAND, text=True, cwd=mounted.path, **PIPES) for _ in range(2)]
    mounted.started += stays
    goes, other = (Stepper(process) for process in stays)
    files = [f"sub/n{number}" for number in range(10)]
    for turn in range(5):
        for name in files:
            other("write", name, f"main {turn}")
        for name in files:
            assert goes("read", name) == f"main {turn}"
            assert not goes("exists", "sub/of-b")
        agentfsd("bind", "-m", str(mounted.path), str(goes.pid), "b")
        assert goes("exists", "sub/of-b")
        for name in files:
            assert goes("exists", name) == (turn > 0)
            goes("write", name, f"b {turn}")
            assert other("read", name) == f"main {turn}"
            assert goes("read", name) == f"b {turn}"
        assert not other("exists", "sub/of-b")
        assert other("names", "sub") == sorted(["deep", "inner", *(name[4:] for name in files)])
        agentfsd("unbind", "-m", str(mounted.path), str(goes.pid))
        assert goes("read", files[0]) == f"main {turn}"
        assert not goes("exists", "sub/of-b")
        if turn % 2:
            time.sleep(0.3)  # names may be cached again when nobody is bound
