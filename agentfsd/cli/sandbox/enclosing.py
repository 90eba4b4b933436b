"""Carry out a plan of layout.py in the command's own mount namespace, in a single-threaded process that is about to exec.

This module knows no branch. What the command may see again is copied (open_tree(2)) before anything is covered. A copy keeps its
attributes, so a place stays writable when the root becomes read-only.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentfs_host.mount_table import is_within
from agentfsd.cli.sandbox import inherited_descriptors
from agentfsd.cli.sandbox.layout import Cover, Place, RunPlan
from agentfsd.cli.sandbox.view import View
from agentfsd.linux import home_directory, namespaces, patient_mounts

_PATIENCE_S = 2.0
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
_OF_THE_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi")


class Impossible(Exception):
    """A part of the plan failed, and the command must not start without it."""

    def __init__(self, what: str, code: int, why: str = "") -> None:
        super().__init__(f"{what}: {why}" if why else what)
        self.errno = code


def show(view: View, plan: RunPlan | None) -> list[str]:
    """Enter the namespaces of *view*, show the view, and carry out *plan*.

    Returns:
        What could not be done, each with the reason. Always empty if the whole plan is required.

    Raises:
        OSError: The view itself is not permitted.
        Impossible: A required part of the plan failed.
    """
    branch, inside = _enter(view)
    if plan is not None and plan.confinement.covers:
        inherited_descriptors.reopen_files_to_read()
    enclosure = _Enclosure(plan, view.home) if plan is not None else None
    if enclosure is not None:
        enclosure.prepare(view.targets)
    first, *others = view.targets
    namespaces.move_mount(branch, first)
    if inside is not None:
        namespaces.move_mount(inside, os.path.join(first, view.inside[1]))
    for target in others:
        namespaces.bind_over(first, target)
    return enclosure.finish(first) if enclosure is not None else []


def _enter(view: View) -> tuple[int, int | None]:
    """Enter the view's namespaces. Return the branch's mount and what to mount inside it, which may lie beneath it."""
    if view.mount is None:
        namespaces.enter_private_mounts()
        return namespaces.copy_tree(view.source), None
    namespaces.enter_mounts_beside(view.user_namespace)
    return view.mount, namespaces.copy_tree(view.inside[0])


@dataclass(slots=True)
class _Copy:
    """A copy of a mount that is shown again later. Exec closes ``fd``."""

    fd: int
    is_dir: bool


class _Enclosure:
    """Carries out the plan: ``prepare`` before the branch is shown, and ``finish`` after it.

    The branch may lie in a directory that is covered, or hide one that is shown.
    """

    def __init__(self, plan: RunPlan, home: int | None) -> None:
        self._plan, self._confinement, self._home = plan, plan.confinement, home
        self._copies: dict[str, _Copy] = {}
        self._sealed: list[str] = []
        self._fresh = [place.path for place in plan.places if place.how in ("fresh", "hide")]
        self._missing: list[str] = []

    def prepare(self, targets: Sequence[str]) -> None:
        """Copy what is shown again, and cover the rest."""
        if self._confinement.net == "none":
            self._attempt("a network of its own", namespaces.enter_own_network)
        self._copy()
        if self._confinement.rest == "ro":
            self._attempt("everything else read-only", self._close_root)
        for place in self._plan.places:
            self._attempt(f"{place.path} {place.how}", lambda place=place: self._place(place))  # type: ignore[misc]
        if self._confinement.is_strict:
            self._attempt("devices", self._few_devices)
            if os.geteuid() == 0:
                self._attempt("settings of the kernel", self._close_kernel)
        for path in self._plan.pins:
            self._make_way(path)
            if os.access(os.path.dirname(path), os.W_OK) and os.path.isdir(path):
                self._attempt(f"renaming {path}", lambda path=path: namespaces.bind_over(path, path))  # type: ignore[misc]
        for target in targets:
            self._make_way(target)

    def finish(self, branch: str) -> list[str]:
        """Put the copies in place. Return what could not be done, each with the reason."""
        for name in self._plan.homes:
            source = os.path.join(home_directory.find(), name.below)
            self._attempt(f"the home directory in {name.path}", lambda name=name, source=source: self._bind(source, name.path))  # type: ignore[misc]
        for view in self._plan.views:
            source = os.path.join(branch, view.below) if view.below else branch
            self._attempt(f"the real files in {view.path}", lambda view=view, source=source: self._bind(source, view.path))  # type: ignore[misc]
        self._cover_mounts([cover.path for cover in self._plan.covers if cover.is_mount and _is_there(cover.path)])
        for cover in self._plan.covers:
            if cover.is_mount:
                continue
            self._attempt(f"a cover over {cover.path}", lambda cover=cover: self._cover(cover))  # type: ignore[misc]
        for path in self._sealed:
            self._attempt(f"{path} read-only", lambda path=path: namespaces.make_read_only(path))  # type: ignore[misc]
        return self._missing

    def _attempt(self, what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as exc:
            if self._confinement.is_asked:
                raise Impossible(what, exc.errno or 0, exc.strerror or os.strerror(exc.errno or 0)) from exc
            self._missing.append(f"{what}: {exc.strerror}")

    def _copy(self) -> None:
        wanted = [place.path for place in self._plan.places if place.how in ("ro", "rw")]
        wanted += [path for cover in self._plan.covers for path in cover.keep]
        if self._confinement.is_strict:
            wanted += [path for name in (*_DEVICES, "pts", "mqueue") if os.path.exists(path := f"/dev/{name}")]
            wanted += [path for path in _OF_THE_KERNEL if os.geteuid() == 0 and os.path.exists(path)]
        for path in dict.fromkeys(wanted):
            self._attempt(path, lambda path=path: self._copy_one(path))  # type: ignore[misc]

    def _copy_one(self, path: str) -> None:
        fd = namespaces.copy_tree(path)
        self._copies[path] = _Copy(fd, stat.S_ISDIR(os.fstat(fd).st_mode))

    def _close_root(self) -> None:
        """Make the root read-only, except for /dev/shm and for what programs need to write in /proc."""
        namespaces.make_read_only("/")
        for path in ("/proc", *(("/dev/shm",) if self._confinement.tmp == "shared" else ())):
            if os.path.ismount(path):
                namespaces.make_writable(path)

    def _place(self, place: Place) -> None:
        if place.how in ("ro", "rw"):
            copy = self._copies[place.path]
            if place.how == "ro":
                namespaces.make_read_only(copy.fd)
            self._put(place.path, copy)
        elif place.how == "overlay":
            assert self._home is not None
            self._make_way(place.path)
            namespaces.move_mount(self._home, place.path)
            self._fresh.append(place.path)
        elif place.how == "hide" and not os.path.lexists(place.path):
            pass  # the branch has removed it from the home directory
        elif place.how == "hide" and not os.path.isdir(place.path):
            namespaces.bind_over("/dev/null", place.path)
        else:
            self._make_way(place.path)
            namespaces.mount_tmpfs(place.path, f"mode={place.mode}")
            if place.how == "hide":
                self._sealed.append(place.path)

    def _cover(self, cover: Cover) -> None:
        kept = [path for path in cover.keep if path in self._copies]
        if not kept and not _is_there(cover.path):
            return  # what it lies in is hidden as a whole
        self._make_way(cover.path)
        namespaces.mount_tmpfs(cover.path, "mode=700,size=64k")
        self._fresh.append(cover.path)
        for path in kept:
            self._put(path, self._copies[path])
        if not cover.is_writable:
            self._sealed.append(cover.path)

    def _cover_mounts(self, paths: Sequence[str]) -> None:
        """Cover the mount points of other daemons, which may not answer."""
        for path, code in patient_mounts.cover(paths, "mode=700,size=64k", _PATIENCE_S).items():
            if code in (errno.ENOENT, errno.ENOTDIR):
                continue  # it was unmounted meanwhile, and its mount point removed
            if code:
                why = "its daemon does not answer" if code == errno.ETIMEDOUT else os.strerror(code)
                self._attempt(f"a cover over {path}", lambda code=code, why=why: _fail(code, why))  # type: ignore[misc]
            else:
                self._fresh.append(path)
                self._sealed.append(path)

    def _put(self, path: str, copy: _Copy) -> None:
        if copy.is_dir:
            self._make_way(path)
        elif not os.path.lexists(path):
            self._make_way(os.path.dirname(path))
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        namespaces.move_mount(copy.fd, path)

    def _bind(self, source: str, target: str) -> None:
        """Show *source* at *target*; nothing if the branch has deleted it."""
        self._make_way(target)
        if os.path.lexists(source):
            namespaces.bind_over(source, target)
        elif os.path.isdir(target):
            namespaces.mount_tmpfs(target, "mode=700,size=64k")
            self._sealed.append(target)
        else:
            namespaces.bind_over(os.devnull, target)

    def _make_way(self, directory: str) -> None:
        """Create a directory, but only in a place that is empty in this run. Nothing is created in the real file system."""
        if any(is_within(directory, place) for place in self._fresh):
            os.makedirs(directory, exist_ok=True)

    def _few_devices(self) -> None:
        namespaces.mount_tmpfs("/dev", "mode=755")
        self._fresh.append("/dev")
        for name in (*_DEVICES, "pts", "mqueue"):
            if f"/dev/{name}" in self._copies:
                self._put(f"/dev/{name}", self._copies[f"/dev/{name}"])
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")
        os.mkdir("/dev/shm")
        self._sealed.append("/dev")
        namespaces.mount_tmpfs("/dev/shm", "mode=1777")

    def _close_kernel(self) -> None:
        for path in _OF_THE_KERNEL:
            if path in self._copies:
                namespaces.make_read_only(self._copies[path].fd)
                self._put(path, self._copies[path])


def _fail(code: int, why: str) -> None:
    raise OSError(code, why)


def _is_there(path: str) -> bool:
    """Return whether a path exists, without asking the file system that is mounted there."""
    try:
        return os.path.basename(path) in os.listdir(os.path.dirname(path))
    except OSError:
        return False
