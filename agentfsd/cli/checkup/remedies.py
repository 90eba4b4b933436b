"""The commands that install or permit what is missing, for this machine's distribution and this user.

It never runs them. It imports only the standard library, because it must work where nothing else is installed.
"""

import importlib.util
import os
import shlex
import sys

OS_RELEASE = "/etc/os-release"
_CONTAINER_MARKS = ("/run/.containerenv", "/.dockerenv", "/run/systemd/container")

_INSTALL = {"debian": "apt-get install -y", "fedora": "dnf install -y", "arch": "pacman -S --needed --noconfirm"}
_PACKAGES = {  # for each need, its packages by family
    "fusermount3": {"debian": "fuse3", "fedora": "fuse3", "arch": "fuse3"},
    "pyfuse3": {
        "debian": "libfuse3-dev pkg-config gcc libc6-dev python3-dev",
        "fedora": "fuse3-devel pkgconf-pkg-config gcc python3-devel",
        "arch": "fuse3 pkgconf gcc",
    },
    "compiler": {"debian": "gcc libc6-dev", "fedora": "gcc glibc-devel", "arch": "gcc"},
    "git": {"debian": "git", "fedora": "git", "arch": "git"},
}


def family() -> str:
    """Return the distribution's family: debian, fedora, arch, or "" for any other."""
    fields = {}
    try:
        with open(OS_RELEASE) as file:
            for line in file:
                name, _, value = line.strip().partition("=")
                fields[name] = value.strip("\"'")
    except OSError:
        return ""
    names = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    return next((known for name in names for known in _INSTALL if name == known or (name, known) == ("rhel", "fedora")), "")


def install(*wanted: str) -> str:
    """Return the command that installs packages; for unknown distributions, a sentence with Debian's names of them."""
    here = family()
    packages = " ".join(dict.fromkeys(" ".join(_PACKAGES[name][here or "debian"] for name in wanted).split()))
    return as_root(f"{_INSTALL[here]} {packages}") if here else f"install what Debian calls {packages}"


def pip(requirement: str) -> str:
    """Return the command that installs a Python package into agentfsd's environment."""
    has_pip = importlib.util.find_spec("pip") is not None
    return f"{shlex.quote(sys.executable)} -m pip install {requirement}" if has_pip else f"pip install {requirement}"


def as_root(command: str) -> str:
    return command if os.geteuid() == 0 else f"sudo {command}"


def in_container() -> bool:
    """Say whether this is a container, as far as container engines leave a mark."""
    return any(os.path.exists(mark) for mark in _CONTAINER_MARKS)


def gain_sys_admin() -> str:
    return "mount as root" if os.geteuid() != 0 else start_container("--cap-add SYS_ADMIN")


def start_container(options: str) -> str:
    return f"start the container with {options} (podman, docker)"
