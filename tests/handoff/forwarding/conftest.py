"""One mount for all tests of a file here, with forwarding switched on."""

from collections.abc import Iterator

import pytest

from tests.handoff.asking import let_go
from tests.handoff.forwarding.granting import MIB, done, switch_on
from tests.mounted import Mounted, agentfsd, needs_fuse


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    made = Mounted(tmp_path_factory.mktemp("forwarding"))
    for number in range(40):
        (made.lower / f"file{number}").write_bytes(b"lower\n")
    (made.lower / "dir").mkdir()
    (made.lower / "link").symlink_to("file0")
    made.mount()
    switch_on(made)
    yield made
    agentfsd("umount", "--lazy", str(made.path))


@pytest.fixture
def mounted(base: Mounted) -> Iterator[Mounted]:
    """With everything as it was at the beginning."""
    switch_on(base, eager_upperization="on", require_reflink="off", max_copy_bytes=str(64 * MIB), allow="")
    done(base, op="discard", ref="main")
    yield base
    let_go()
