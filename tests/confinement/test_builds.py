"""Builds work in a confined run as they do outside: pip, npm, make with a cache in the home directory, pytest, git over ssh.

One run does them all in the profile `strict`; with --long also in `workspace`, which refuses less.
"""

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator

import pytest

from tests.confinement.world import World
from tests.rounds import is_long

NPM = next(filter(os.path.exists, (f"{sysconfig.get_path('scripts')}/npm", shutil.which("npm") or "/nowhere")), "")
SSHD, SSH = shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ["PATH"]), shutil.which("ssh")

BACKEND = """
import zipfile
NAME = "thing-1.0"
def _wheel(directory, files):
    info = "thing-1.0.dist-info"
    files = {**files, f"{info}/METADATA": "Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in files) + f"{info}/RECORD,,\\n"
    with zipfile.ZipFile(f"{directory}/thing-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "thing-1.0-py3-none-any.whl"
def build_editable(directory, settings=None, metadata=None):
    import os
    return _wheel(directory, {"thing.pth": os.getcwd() + "/src\\n"})
build_wheel = build_editable
"""
FILES = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": BACKEND,
    "src/thing.py": "def answer():\n    return 42\n",
    "test_thing.py": "import thing\n\ndef test_thing():\n    assert thing.answer() == 42\n",
    "Makefile": "CACHE = $(HOME)/.cache/registry\nout: src/thing.py\n\tmkdir -p $(CACHE)\n\tcp $< $(CACHE)/thing.py\n"
    "\tcp $(CACHE)/thing.py $@\n",
    "js/package.json": '{"name": "app", "version": "1.0.0"}',
    "local/package.json": '{"name": "local", "version": "1.0.0", "main": "index.js"}',
    "local/index.js": "module.exports = 42\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[str]:
    """A git repository behind an ssh server; gives its address, "" without a server."""
    place = world.base / "server"
    place.mkdir()
    if SSHD is None or SSH is None:
        yield ""
        return
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
    (place / "authorized").write_text((place / "user.pub").read_text())
    shutil.copy(place / "user", world.home / ".ssh" / "build_key")
    os.chown(world.home / ".ssh" / "build_key", world.user, world.user)
    subprocess.run(["git", "init", "-q", "--bare", place / "repository"], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.makedirs("/run/sshd", exist_ok=True)
    settings = (
        f"ListenAddress=127.0.0.1:{port}", f"HostKey={place}/host", f"AuthorizedKeysFile={place}/authorized", "StrictModes=no",
        "PermitRootLogin=yes", f"PidFile={place}/pid", "UsePAM=no",
    )  # fmt: skip
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", "/dev/null", *(word for each in settings for word in ("-o", each))])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not _answers(port):
        time.sleep(0.05)
    yield f"ssh://root@127.0.0.1:{port}{place}/repository"
    process.kill()
    process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", params=["workspace", "strict"] if is_long() else ["strict"])
def outcomes(world: World, server: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """What came of each build: "ok", or the end of what it printed."""
    for name, text in FILES.items():
        path = world.lower / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["chown", "-R", f"{world.user}:{world.user}", world.lower / "build"], check=True)
    python = sys.executable
    ssh = "ssh -i ~/.ssh/build_key -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new"
    builds = {
        "pip": f"{python} -m venv --without-pip venv && {python} -m pip -q --python venv/bin/python install --no-index"
        " --no-build-isolation -e . && venv/bin/python -c 'import thing; thing.answer()'",
        "pytest": f"PYTHONPATH=src {python} -m pytest -q -p no:cacheprovider -c /dev/null --rootdir . test_thing.py",
        "make": "make out && test -s out && test -s ~/.cache/registry/thing.py",
        "npm": f"cd js && {NPM or 'false'} install --offline --no-audit --no-fund ../local"
        " && test -e node_modules/local/index.js",
        "git": f"export GIT_SSH_COMMAND='{ssh}'; git clone -q {server} clone && cd clone"
        " && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m first && git push -q origin HEAD:main",
    }  # fmt: skip
    each = "(({}) > ../{}.log 2>&1 && echo {} ok || echo {} failed: $(tail -c 300 ../{}.log)); "
    script = "cd build; " + "".join(each.format(build, *[name] * 4) for name, build in builds.items())
    done = world.run(f"builds-{request.param}", script, "--confine", request.param)
    subprocess.run(["rm", "-rf", world.lower / "build"], check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", ["pip", "pytest", "make"])
def test_a_build_works(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] == "ok"


def test_npm_installs_a_local_package(outcomes: dict[str, str]) -> None:
    if not NPM:
        pytest.skip("npm is not installed")
    assert outcomes["npm"] == "ok"


def test_git_clones_and_pushes_over_ssh(outcomes: dict[str, str], server: str) -> None:
    if not server:
        pytest.skip("no ssh server is installed: apt install openssh-server")
    assert outcomes["git"] == "ok"
