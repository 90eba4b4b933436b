"""Files of a branch by real descriptors: where the daemon gives them, where it does not, and that nobody gets what is not his."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

import agentfs_client
from agentfs_client import opening
from agentfs_client.async_control import AsyncControlClient
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotForwardedError
from agentfs_files.aio.async_filesystem import AsyncFilesystem
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from tests.mounted import Mounted, needs_fuse

LARGE = 3 << 20


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """Forwarding is on; ``large`` and ``small`` lie in the lower."""
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("forwarding")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base)
        (mounted.lower / "sub").mkdir()
        (mounted.lower / "small").write_text("small\n")
        (mounted.lower / "large").write_bytes(bytes(range(256)) * (LARGE // 256))
        (mounted.lower / "sub" / "link").symlink_to("../small")
        (mounted.lower / "out").symlink_to("/etc/passwd")
        mounted.mount()
        try:
            with ControlClient.connect(mounted.record().socket) as client:
                why = client.set_interpose("enabled", "on").why
            if why:
                pytest.skip(f"no descriptors are given out here: {why}")
            yield mounted
        finally:
            mounted.end()


@pytest.fixture
def daemon(overlay: Mounted, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlClient]:
    """Each test finds the branch main without changes, and the settings as they were."""
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(overlay.path.parent / "AGENTFS_RUNTIME_DIR"))
    with ControlClient.connect(overlay.record().socket) as client:
        settings = client.interpose().settings
        yield client
        for name, value in settings.items():
            client.set_interpose(name, value)
        client.discard("main", keep=False)
        for branch in client.list_branches():
            if branch.name != "main":
                client.discard(branch.name, keep=False)


@pytest.fixture(params=["mount", "socket"])
def branch(request: pytest.FixtureRequest, overlay: Mounted, daemon: ControlClient) -> Iterator[BranchFilesystem]:
    """The branch main, seen through its mount or over the socket alone."""
    where = {"mount": overlay.path} if request.param == "mount" else {"socket": overlay.record().socket}
    with BranchFilesystem("main", **where) as fs:
        yield fs


def is_real(fd: int, overlay: Mounted) -> bool:
    return os.fstat(fd).st_dev != os.stat(overlay.path).st_dev


def content(fd: int) -> bytes:
    """All of it; closes the descriptor."""
    with open(fd, "rb") as file:
        return file.read()


# -- a branch as a file system


def test_what_is_written_by_a_real_descriptor_is_the_files(overlay: Mounted, branch: BranchFilesystem) -> None:
    fd = branch.open_fd("small", os.O_RDWR)
    try:
        assert is_real(fd, overlay)
        assert os.get_inheritable(fd) is False
        os.pwrite(fd, b"S", 0)
        assert (overlay.path / "small").read_text() == branch.read("small").content == "Small\n"
        assert (overlay.lower / "small").read_text() == "small\n"
    finally:
        os.close(fd)


@pytest.mark.parametrize("enabled", ["on", "off"])
def test_flags_mean_what_they_mean_to_the_kernel(
    overlay: Mounted, daemon: ControlClient, branch: BranchFilesystem, enabled: str
) -> None:
    daemon.set_interpose("enabled", enabled)
    if enabled == "off" and not branch.is_mounted:
        with pytest.raises(NotForwardedError) as caught:
            branch.open_fd("small", os.O_RDONLY)
        assert "interpose set enabled" in caught.value.hint
        return
    made = branch.open_fd("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
    assert is_real(made, overlay) is (enabled == "on")
    assert fcntl.fcntl(made, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK) == os.O_APPEND
    os.write(made, b"one")
    os.lseek(made, 0, os.SEEK_SET)
    os.write(made, b"two")
    os.close(made)
    assert branch.read_bytes("new").content == b"onetwo"
    assert os.stat(overlay.path / "new").st_mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        branch.open_fd("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.close(branch.open_fd("new", os.O_WRONLY | os.O_TRUNC))
    assert branch.stat("new").size_bytes == 0
    assert content(branch.open_fd("sub/link", os.O_RDONLY)) == b"small\n"
    with pytest.raises(OSError, match="symbolic links"):
        branch.open_fd("sub/link", os.O_RDONLY | os.O_NOFOLLOW)


@pytest.mark.parametrize("enabled", ["on", "off"])
def test_what_a_caller_did_wrong_is_a_standard_exception(overlay: Mounted, daemon: ControlClient, enabled: str) -> None:
    daemon.set_interpose("enabled", enabled)
    with BranchFilesystem("main", mount=overlay.path) as fs:
        for kind, path, flags in (
            (FileNotFoundError, "missing", os.O_RDWR),
            (FileNotFoundError, "missing/new", os.O_RDWR | os.O_CREAT),
            (NotADirectoryError, "small/new", os.O_RDWR | os.O_CREAT),
            (IsADirectoryError, "sub", os.O_RDONLY),
            (PathEscapeError, "out", os.O_RDONLY),
            (PathEscapeError, "../small", os.O_RDONLY),
            (FileNotFoundError, ".agentfs/status", os.O_RDONLY),
            (PermissionError, ".agentfs/new", os.O_RDWR | os.O_CREAT),
            (ValueError, "a/" * 20 + "new", os.O_RDWR | os.O_CREAT),
            (ValueError, "small", os.O_PATH),
        ):
            with pytest.raises(kind):
                fs.open_fd(path, flags)
        os.mkfifo(overlay.path / "pipe")
        with pytest.raises(OSError, match=r"nvalid|regular"):
            fs.open_fd("pipe", os.O_RDONLY)


def test_a_read_only_branch_and_a_snapshot_are_read_only(overlay: Mounted, daemon: ControlClient) -> None:
    with BranchFilesystem("main", mount=overlay.path, read_only=True) as fs:
        assert content(fs.open_fd("small", os.O_RDONLY)) == b"small\n"
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT, os.O_RDONLY | os.O_TRUNC):
            with pytest.raises(PermissionError):
                fs.open_fd("small", flags)
    (overlay.path / "small").write_text("changed\n")
    snapshot = daemon.create_snapshot("main")
    (overlay.path / "small").write_text("later\n")
    opened = daemon.open_fd("small", os.O_RDONLY, branch=snapshot.id)
    assert (opened.source, content(opened.fd)) == ("snapshot", b"changed\n")
    with pytest.raises(OSError, match="cannot be changed"):
        daemon.open_fd("small", os.O_RDWR, branch=snapshot.id)


def test_what_may_not_be_copied_is_opened_on_the_mount(overlay: Mounted, daemon: ControlClient, branch: BranchFilesystem) -> None:
    daemon.set_interpose("max_copy_bytes", "1M")
    if not branch.is_mounted:
        with pytest.raises(NotForwardedError):
            branch.open_fd("large", os.O_RDWR)
        return
    fd = branch.open_fd("large", os.O_RDWR)
    assert not is_real(fd, overlay)
    os.pwrite(fd, b"here", 0)
    os.close(fd)
    assert branch.read_bytes("large", limit=4).content == b"here"


def test_without_real_contents_the_mount_serves_the_file(make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount(None, "--backstore", "memory")
    with BranchFilesystem("main", mount=mounted.path) as fs:
        fd = fs.open_fd("new", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"kept")
        assert not is_real(fd, mounted)
        os.close(fd)
        assert fs.read("new").content == "kept"
    with agentfs_client.open(mounted.path / "new", "a") as file:
        file.write(" here")
    assert (mounted.path / "new").read_text() == "kept here"


def test_a_plain_directory_gives_descriptors_beneath_it_only(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to("../outside")
    fs = HostFilesystem(tmp_path / "root")
    os.close(fs.open_fd("new", os.O_WRONLY | os.O_CREAT, 0o600))
    assert (tmp_path / "root" / "new").stat().st_mode & 0o777 == 0o600
    with pytest.raises(PathEscapeError):
        fs.open_fd("out", os.O_WRONLY | os.O_CREAT)
    assert not (tmp_path / "outside").exists()


# -- streams


def test_a_large_file_is_read_over_the_socket_without_changing_the_branch(overlay: Mounted, daemon: ControlClient) -> None:
    with BranchFilesystem("main", socket=overlay.record().socket) as fs, fs.open_read("large") as reader:
        assert reader.read() == bytes(range(256)) * (LARGE // 256)
        assert reader.seek(-1, os.SEEK_END) == LARGE - 1
        assert reader.read() == b"\xff"
        assert "/large" in [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_link(fd)]
    assert daemon.diff("main") == []
    assert daemon.show_branch("main").changed == 0


def is_link(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_what_an_exception_discards_stays_discarded(overlay: Mounted, daemon: ControlClient) -> None:
    with BranchFilesystem("main", socket=overlay.record().socket) as fs:
        with pytest.raises(ZeroDivisionError), fs.open_write("large") as writer:
            writer.write(b"x" * (2 << 20))
            raise ZeroDivisionError
        assert fs.read_bytes("large", limit=4).content == b"\0\1\2\3"
    assert daemon.diff("main") == []


# -- many, others, and those who give up


def test_threads_that_share_a_client_get_each_their_own_file(overlay: Mounted, daemon: ControlClient) -> None:
    before, failures = len(os.listdir("/proc/self/fd")), list[BaseException]()

    def work(number: int) -> None:
        try:
            for step in range(25):
                opened = daemon.open_fd(f"t{number}", os.O_RDWR | os.O_CREAT | os.O_APPEND)
                os.write(opened.fd, b"%d-%d\n" % (number, step))
                os.close(opened.fd)
                os.close(daemon.open_fd("small", os.O_RDONLY, no_copy=True).fd)
                with pytest.raises(OSError, match=r"[Nn]o such file"):
                    daemon.open_fd("missing", os.O_RDONLY)
        except BaseException as exc:  # noqa: BLE001 - shown by the test
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(os.listdir("/proc/self/fd")) == before
    for number in range(8):
        assert (overlay.path / f"t{number}").read_text() == "".join(f"{number}-{step}\n" for step in range(25))


def test_no_program_inherits_what_was_opened(daemon: ControlClient) -> None:
    opened = daemon.open_fd("small", os.O_RDWR)
    script = f"import os; print(os.path.lexists('/proc/self/fd/{opened.fd}'))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, close_fds=False, check=True)
    os.close(opened.fd)
    assert done.stdout == "False\n"


def test_another_ones_branch_is_closed_to_a_bound_process(overlay: Mounted, daemon: ControlClient) -> None:
    for name in ("mine", "other"):
        daemon.create_branch(name)
    script = """if True:
        import os, sys
        from agentfs_client import ControlClient
        with ControlClient.connect(sys.argv[1]) as client:
            own = client.open_fd("small", os.O_RDWR)
            os.pwrite(own.fd, b"Mine!", 0)
            for branch in ("other", "main"):
                try:
                    client.open_fd("small", os.O_RDONLY, branch=branch)
                except PermissionError as exc:
                    print(exc.code)
            try:
                client.set_interpose("enabled", "off")
            except PermissionError as exc:
                print(exc.code)
    """
    done = overlay.run("mine", sys.executable, "-c", script, overlay.record().socket, view="pid")
    assert done.stdout.split() == ["outside-branch"] * 3
    assert (overlay.subtree("mine") / "small").read_text() == "Mine!\n"
    assert (overlay.subtree("other") / "small").read_text() == "small\n"


def test_dup_and_sync_are_about_the_same_file(overlay: Mounted, daemon: ControlClient) -> None:
    fd = os.open(overlay.path / "small", os.O_RDWR)
    opened = daemon.dup_fd(fd)
    os.close(fd)
    assert (opened.source, opened.file.ino) == ("own", os.stat(overlay.path / "small").st_ino)
    os.pwrite(opened.fd, b"Dup", 0)
    daemon.sync_fd(opened.fd, data_only=True)
    daemon.sync_fd(opened.fd)
    assert content(daemon.dup_fd(opened.fd).fd) == b"Dupll\n"
    os.close(opened.fd)
    with open("/etc/passwd") as foreign, pytest.raises(OSError, match="no open file of this mount"):
        daemon.dup_fd(foreign.fileno())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_awaited_and_given_up_no_descriptor_is_left(overlay: Mounted, daemon: ControlClient, backend: str) -> None:
    async def main() -> None:
        async with await AsyncControlClient.connect(overlay.record().socket) as client:
            opened = await client.open_fd("small", os.O_RDWR)
            assert os.pread(opened.fd, 5, 0) == b"small"
            os.close(opened.fd)
        with BranchFilesystem("main", mount=overlay.path) as fs:
            files = AsyncFilesystem(fs)
            os.close(await files.open_fd("small", os.O_RDONLY))
            for _ in range(20):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    os.close(await files.open_fd("small", os.O_RDONLY))
                client = await AsyncControlClient.connect(overlay.record().socket)
                with anyio.move_on_after(0.0002):
                    os.close((await client.open_fd("small", os.O_RDONLY)).fd)
                await client.aclose()

    before = len(os.listdir("/proc/self/fd"))
    anyio.run(main, backend=backend)
    assert len(os.listdir("/proc/self/fd")) == before


# -- open() of this library


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch, daemon: ControlClient) -> None:
    monkeypatch.setattr(opening, "_LOOK_AGAIN_S", 0.0)


@pytest.mark.usefixtures("looks_always")
def test_open_does_what_the_builtin_does_on_real_contents(overlay: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(overlay.path / "sub")
    with agentfs_client.open("../new", "x", encoding="utf-8", newline="\r\n") as file:
        assert is_real(file.fileno(), overlay)
        file.write("grüß\n")
    assert (overlay.path / "new").read_bytes() == "grüß\r\n".encode()
    with pytest.raises(FileExistsError):
        agentfs_client.open("../new", "x")
    with agentfs_client.open(overlay.path / "new", "ab") as file:
        assert file.tell() == 8
        file.write(b"more")
    with agentfs_client.open("link", "r+") as file:
        assert is_real(file.fileno(), overlay)
        assert file.read() == "small\n"
    with agentfs_client.open("../new", "wb", buffering=0) as file:
        file.write(b"short")
    assert (overlay.path / "new").read_bytes() == b"short"
    with agentfs_client.open("../large", "rb") as file:
        assert is_real(file.fileno(), overlay)
        assert len(file.read()) == LARGE
    with pytest.raises(FileNotFoundError):
        agentfs_client.open("missing")
    with pytest.raises(IsADirectoryError):
        agentfs_client.open(".")


@pytest.mark.usefixtures("looks_always")
def test_open_leaves_to_the_mount_what_does_not_pay_or_is_switched_off(
    overlay: Mounted, daemon: ControlClient, tmp_path: Path
) -> None:
    with agentfs_client.open(overlay.path / "small") as file:
        assert not is_real(file.fileno(), overlay)
    daemon.set_interpose("enabled", "off")
    for mode in ("rb", "r+b"):
        with agentfs_client.open(overlay.path / "large", mode) as file:
            assert not is_real(file.fileno(), overlay)
    daemon.set_interpose("enabled", "on")
    daemon.set_interpose("allow", "/usr/bin/some-other-program")
    with agentfs_client.open(overlay.path / "large", "r+b") as file:
        assert not is_real(file.fileno(), overlay)
    with agentfs_client.open(tmp_path / "elsewhere", "w") as file:
        file.write("plain")
    assert (tmp_path / "elsewhere").read_text() == "plain"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of a process with threads: that is the case here
def test_open_is_each_threads_and_each_childs(overlay: Mounted, daemon: ControlClient) -> None:
    def work(number: int) -> None:
        for step in range(20):
            with agentfs_client.open(overlay.path / f"o{number}", "a") as file:
                assert is_real(file.fileno(), overlay)
                file.write(f"{step}\n")

    work(7)  # the child inherits this conversation, which is none of its own
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # so that a lock which is never given back fails the test
        try:
            work(6)
            os._exit(0)
        finally:
            os._exit(1)
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    for number in range(8):
        assert (overlay.path / f"o{number}").read_text() == "".join(f"{step}\n" for step in range(20))


@pytest.mark.parametrize("view", ["pid", "namespace"])
def test_open_is_about_the_branch_that_the_process_sees(overlay: Mounted, daemon: ControlClient, view: str) -> None:
    daemon.create_branch("mine")
    script = """if True:
        import os, agentfs_client
        with agentfs_client.open("small", "r+") as file:
            print(os.fstat(file.fileno()).st_dev != os.stat(".").st_dev)
            file.write("MINE")
    """
    assert overlay.run("mine", sys.executable, "-c", script, view=view).stdout == "True\n"
    assert (overlay.subtree("mine") / "small").read_text() == "MINEl\n"
    assert (overlay.path / "small").read_text() == "small\n"
