"""Real programs in two branches at once over a real git checkout: each branch must end exactly as the same commands leave a
plain copy, and the lower must not change by a byte.

The plain copy is shown at the very path of the mount in a private namespace, so that programs which write absolute paths
write the same ones.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.compare import describe, differences
from tests.mounted import Mounted, needs_namespaces, needs_root
from tests.rounds import is_long, rounds

FIXED = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "2024-01-02T03:04:05Z",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_COMMITTER_DATE": "2024-01-02T03:04:05Z",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
    "PYTHONDONTWRITEBYTECODE": "1", "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "LC_ALL": "C",
}  # fmt: skip


def environment(**more: str) -> dict[str, str]:
    return os.environ | FIXED | more


# Content that tells when or by which process it was made; names, modes and the rest of these are compared all the same.
VOLATILE = (".git/index", ".pyc", "data.db", "data.db-wal", "data.db-shm")

WORK = {
    "git": """
        test -z "$(git status --porcelain)"
        git checkout -q -b work
        sed -i 1i'# first line' os.py && rm this.py && mkdir newdir && echo text > newdir/file
        git add -A && git commit -q -m 'change'
        git checkout -q first && git checkout -q work
        git -c pack.threads=1 gc -q && git fsck --strict 2>/dev/null
        git rev-parse HEAD && git status --porcelain
    """,
    "venv": """
        PY -m venv --without-pip env
        PY -m pip --python env/bin/python install -q --no-index --find-links WHEELS sample
        env/bin/python -c 'import sample; print(sample.NAME)'
    """,
    "build": """
        mkdir -p csrc && cd csrc
        for i in 1 2 3 4 5 6 7 8; do echo "int f$i(int x) { return x * $i; }" > f$i.c; done
        printf 'int f3(int);\\nint main(void) { return f3(0); }\\n' > main.c
        printf 'O=$(patsubst %%.c,%%.o,$(sort $(wildcard *.c)))\\nprog: $(O)\\n\\tgcc -o $@ $^\\n' > Makefile
        make -j4 >/dev/null; ./prog; make -q; sleep 0.02; touch f2.c; ! make -q; make >/dev/null; make -q
    """,
    "sqlite": """
        sqlite3 data.db 'pragma journal_mode=wal; create table t(a integer primary key, b text);' >/dev/null
        for i in 1 2 3 4 5; do
            sqlite3 -cmd '.timeout 20000' data.db "insert into t(b) select hex(zeroblob(200)) from generate_series(1,50)" &
        done; wait
        sqlite3 data.db 'pragma integrity_check; select count(*) from t'
    """,
    "files": """
        tar cf ../t.tar -C LOWER json email && mkdir un && tar xf ../t.tar -C un && rm -f ../t.tar
        cp -a email email2 && ln email2/__init__.py email2/second && ln -s ../os.py email2/sym && mkfifo email2/pipe
        mv json moved && mv moved/decoder.py . && chmod 4711 decoder.py && setfattr -n user.note -v x decoder.py
        setfacl -m u:1234:r un/json/encoder.py && truncate -s 1M sparse && rm -rf a* c* d* test unittest
        find . -name '*.py' -newer os.py | sort | head -n 3 >/dev/null
    """,
}  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python library of this machine under git, in two commits: some 500 files, with --long several thousand."""
    needs_root()
    root = tmp_path_factory.mktemp("checkout") / "lib"
    source = sysconfig.get_paths()["stdlib"]
    without = [
        "site-packages",
        "dist-packages",
        "__pycache__",
        *(
            []
            if is_long()
            else ["test", "idlelib", "lib2to3", "encodings", "ensurepip", "xml", "ctypes", "tkinter", "turtledemo"]
        ),
        *([] if is_long() else ["distutils", "lib-dynload", "multiprocessing", "pydoc_data", "config-*", "wsgiref"]),
    ]
    shutil.copytree(source, root, ignore=shutil.ignore_patterns(*without), symlinks=True)
    for number in range(rounds("files beside the library of a checkout", 100, 3000)):
        directory = root / "many" / f"{number % 40:02}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"file{number}").write_text(f"{number}\n" * (number % 50))
    for command in ("init -q -b main", "add -A", "commit -q -m first", "tag first"):
        subprocess.run(["git", *command.split()], cwd=root, env=environment(), check=True)
    (root / "second").write_text("second")
    for command in ("add -A", "commit -q -m second"):
        subprocess.run(["git", *command.split()], cwd=root, env=environment(), check=True)
    return root


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of our own, so that nothing is downloaded."""
    root = tmp_path_factory.mktemp("wheels")
    (root / "src").mkdir()
    (root / "src" / "sample.py").write_text("NAME = 'sample'\n")
    (root / "src" / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "sample"\nversion = "1"\n[tool.hatch.build.targets.wheel]\ninclude = ["sample.py"]\n'
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(root),
        str(root / "src"),
    ]
    subprocess.run(command, check=True, env=environment())
    return root


def in_copy(copy: Path, mountpoint: Path, script: str) -> str:
    """Runs the script on a plain copy that is shown at the mount point's path."""
    inner = f"mount --bind '{copy}' '{mountpoint}' && cd '{mountpoint}' && exec sh -ec \"$SCRIPT\""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", inner], env=environment(SCRIPT=script), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("view", ["namespace", "pid"] if is_long() else ["namespace"])
def test_two_branches_end_as_plain_copies(
    checkout: Path, wheels: Path, tmp_path: Path, make_mount: Callable[..., Mounted], view: str
) -> None:
    if view == "namespace":
        needs_namespaces()
    before = describe(checkout, times=True)
    mounted = make_mount(checkout)
    work = {
        name: script.replace("PY ", f"{sys.executable} ").replace("WHEELS", str(wheels)).replace("LOWER", str(checkout))
        for name, script in WORK.items()
    }
    order = {"one": ["git", "files"], "two": ["build", "sqlite"]}
    if is_long():
        order = {"one": ["git", "files", "venv"], "two": ["git", "build", "sqlite", "venv"]}

    def in_branch(branch: str) -> list[str]:
        mounted.cli("branch create", branch)
        return [mounted.sh(branch, work[name], view=view, env=environment()) for name in order[branch]]

    def in_plain_copy(branch: str) -> list[str]:
        subprocess.run(["cp", "-a", str(checkout), str(tmp_path / branch)], check=True)
        return [in_copy(tmp_path / branch, mounted.path, work[name]) for name in order[branch]]

    with ThreadPoolExecutor() as pool:
        said = dict(zip(order, pool.map(in_branch, order), strict=True))
        expected = dict(zip(order, pool.map(in_plain_copy, order), strict=True))
    assert said == expected
    for branch in order:
        shown = describe(mounted.subtree(branch), leave_out=VOLATILE)
        plain = describe(tmp_path / branch, leave_out=VOLATILE)
        assert not differences(shown, plain)
        itemized = subprocess.run(
            ["rsync", "-aHAX", "--checksum", "--dry-run", "--itemize-changes", "--delete", "--no-times",
             *[f"--exclude=*{name}" for name in VOLATILE], f"{tmp_path / branch}/", f"{mounted.subtree(branch)}/"],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        assert itemized == []
    assert not differences(describe(checkout, times=True), before)
    assert mounted.fsck() == []
