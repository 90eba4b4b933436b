"""INIT as kernels of several ages begin it: what is taken of what they offer, and what is done without."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.handshake import MAX_WRITE_BYTES, IoMode, Unsupported
from tests.fuse.fake_kernel import ALL_FLAGS, ROOT, Answer, FakeKernel

IO_MODES: list[IoMode] = ["zero-message", "passthrough", "cached"]
FLAGS = sorted(
    name for name, value in vars(fuse).items()
    if isinstance(value, int) and value.bit_count() == 1 and value > 64
    and name.isupper() and not name.startswith(("FOPEN", "FATTR", "WRITE", "_")) and name != "MAJOR"
)  # fmt: skip


@pytest.fixture
def make_kernel(tmp_path: Path) -> Iterator[Callable[[IoMode], FakeKernel]]:
    made: list[FakeKernel] = []

    def make(io: IoMode = "cached") -> FakeKernel:
        base = tmp_path / f"k{len(made)}"
        (base / "lower").mkdir(parents=True)
        (base / "lower" / "file").write_bytes(b"lower\n")
        made.append(FakeKernel(base, io))
        return made[-1]

    yield make
    for kernel in made:
        kernel.close()


def works(kernel: FakeKernel) -> None:
    """What everything else rests on."""
    assert kernel.read(kernel.walk("file")) == b"lower\n"
    node = kernel.create(ROOT, b"new")
    assert kernel.write(node, b"text", 0) == 4
    assert kernel.read(node) == b"text"
    assert sorted(kernel.listing(ROOT)) == [b"file", b"new"]


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("minor", [31, 33, 36, 38, 40, 44, 45, 46, 99])
def test_every_version_since_7_31_is_spoken(make_kernel: Callable[[IoMode], FakeKernel], minor: int, io: IoMode) -> None:
    kernel = make_kernel(io)
    major, spoken, *_ = kernel.offer(minor=minor)
    assert (major, spoken) == (7, min(minor, 45))
    assert kernel.session.minor == spoken
    assert kernel.session.io == io
    works(kernel)


@pytest.mark.parametrize(("major", "minor"), [(7, 30), (7, 0), (6, 45), (8, 0), (8, 45), (0, 0), (2**32 - 1, 2**32 - 1)])
def test_other_versions_are_refused_with_a_sentence(
    make_kernel: Callable[[IoMode], FakeKernel], major: int, minor: int
) -> None:  # fmt: skip
    kernel = make_kernel("cached")
    with pytest.raises(Unsupported, match=rf"FUSE {major}\.{minor}.*7\.31"):
        kernel.offer(major, minor)
    refusal = kernel.reply_to(1)
    assert isinstance(refusal, Answer) and refusal.code != 0


def test_something_else_than_init_is_refused_with_a_sentence(make_kernel: Callable[[IoMode], FakeKernel]) -> None:
    kernel = make_kernel("cached")
    kernel.socket.send(kernel.message(fuse.LOOKUP, ROOT, b"file\0")[1])
    with pytest.raises(Unsupported, match="no FUSE connection"):
        kernel.session.shake_hands()


@pytest.mark.parametrize("cut", range(0, 16, 3))
def test_init_that_is_cut_short_is_refused_with_a_sentence(make_kernel: Callable[[IoMode], FakeKernel], cut: int) -> None:
    with pytest.raises(Unsupported):
        make_kernel("cached").offer(cut=cut)


@pytest.mark.parametrize("length", [0, 1, 39])
def test_beginning_shorter_than_a_header_is_refused(make_kernel: Callable[[IoMode], FakeKernel], length: int) -> None:
    kernel = make_kernel("cached")
    kernel.socket.send(bytes(length))
    with pytest.raises(Unsupported):
        kernel.session.shake_hands()


@pytest.mark.parametrize("cut", [16, 17, 20, 63])
def test_init_of_an_old_kernel_has_no_second_flags(make_kernel: Callable[[IoMode], FakeKernel], cut: int) -> None:
    kernel = make_kernel("passthrough")
    kernel.offer(cut=cut)
    assert kernel.session.offered < 1 << 32
    assert kernel.session.io == "cached"
    works(kernel)


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("missing", FLAGS)
def test_each_capability_can_be_missing(make_kernel: Callable[[IoMode], FakeKernel], missing: str, io: IoMode) -> None:
    bit = getattr(fuse, missing)
    offered = ALL_FLAGS & ~bit
    kernel = make_kernel(io)
    _, _, _, low, *_, max_write, _, _, _, high, depth, _ = kernel.offer(flags=offered)
    taken = low | high << 32
    assert not taken & ~offered
    assert max_write == MAX_WRITE_BYTES
    falls_back = {
        "zero-message": bit in (fuse.NO_OPEN_SUPPORT, fuse.NO_OPENDIR_SUPPORT),
        "passthrough": bit in (fuse.PASSTHROUGH, fuse.INIT_EXT),
        "cached": False,
    }[io]
    assert kernel.session.io == ("cached" if falls_back else io)
    assert bool(depth) == (kernel.session.io == "passthrough") == bool(taken & fuse.PASSTHROUGH)
    assert bool(taken & fuse.NO_OPEN_SUPPORT) == (kernel.session.io == "zero-message")
    works(kernel)


def test_kernel_that_offers_nothing_is_served(make_kernel: Callable[[IoMode], FakeKernel]) -> None:
    for io in IO_MODES:
        kernel = make_kernel(io)
        assert kernel.offer(flags=0)[3] == 0
        assert kernel.session.io == "cached"
        works(kernel)


@pytest.mark.parametrize("extended", [True, False])
def test_setxattr_has_the_form_that_was_agreed_on(make_kernel: Callable[[IoMode], FakeKernel], extended: bool) -> None:
    kernel = make_kernel("cached")
    kernel.offer(flags=ALL_FLAGS if extended else ALL_FLAGS & ~fuse.SETXATTR_EXT)
    head = fuse.SETXATTR_IN.pack(5, 0, 0, 0) if extended else fuse.SETXATTR_IN_SHORT.pack(5, 0)
    node = kernel.walk("file")
    kernel.get(fuse.SETXATTR, node, head + b"user.name\0value")
    assert kernel.get(fuse.GETXATTR, node, fuse.GETXATTR_IN.pack(64, 0) + b"user.name\0") == b"value"
