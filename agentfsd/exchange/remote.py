"""Push to and fetch from remotes over every transport that libgit2 supports: file, git, ssh, http and https.

libgit2 cannot be interrupted while a network does not answer. So the work runs in a daemon thread, and Ctrl-C stops waiting for
it.
"""

import errno
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from typing import TypeVar

import pygit2
from pygit2.enums import CredentialType

from agentfs_files.trees.tree_source import Step
from agentfsd.domain_errors import Refusal
from agentfsd.exchange.repository import NOTES, Repository
from agentfsd.exchange.states import HEADS, REMOTE, TAGS

_BEFORE = "refs/agentfs/before/"
REMOTE_NOTES = REMOTE + "notes"

_URL = re.compile(r"[a-z][a-z0-9+.-]*://|[^/:]+@?[^/:]*:(?!/)", re.ASCII)
_R = TypeVar("_R")


def is_url(text: str) -> bool:
    """Tell whether *text* names a remote and not a path. `host:path` means ssh, as it does for git."""
    return _URL.match(text) is not None and not os.path.lexists(text)


def fetch(repository: Repository, url: str, step: Step = lambda done, total: None) -> None:
    """Fetch branches, tags and notes into refs/agentfs/remote/, and delete whatever else was there."""
    _rename(repository, REMOTE, _BEFORE)  # libgit2 tells the remote about these refs, so it does not send their objects again
    specs = [f"+{HEADS}*:{REMOTE}heads/*", f"+{TAGS}*:{REMOTE}tags/*", f"+{NOTES}:{REMOTE_NOTES}", f"+HEAD:{REMOTE}HEAD"]
    remote = repository.git.remotes.create_anonymous(url)
    callbacks = _Callbacks(step)
    try:
        _apart(url, lambda: remote.fetch(specs, callbacks=callbacks))
    finally:
        _forget(repository, _BEFORE)


def forget(repository: Repository) -> None:
    """Delete the refs that record what was seen at a remote."""
    _forget(repository, REMOTE)


def _forget(repository: Repository, prefix: str) -> None:
    for name in [name for name in repository.git.references if name.startswith(prefix)]:
        repository.git.references.delete(name)


def _rename(repository: Repository, prefix: str, other: str) -> None:
    for name in [name for name in repository.git.references if name.startswith(prefix)]:
        target = repository.git.references[name].resolve().target
        repository.git.references.create(other + name.removeprefix(prefix), target, force=True)
    _forget(repository, prefix)


def push(repository: Repository, url: str, refs: list[str], step: Step = lambda done, total: None) -> int:
    """Push those of *refs* that differ from what `fetch` saw.

    Returns:
        The number of refs that were pushed.
    """
    changed = [ref for ref in refs if _differs(repository, ref)]
    if changed:
        remote = repository.git.remotes.create_anonymous(url)
        callbacks = _Callbacks(step)
        _apart(url, lambda: remote.push([f"+{ref}:{ref}" for ref in changed], callbacks=callbacks))
        if callbacks.refused:
            raise Refusal(errno.EPERM, "push-refused", f"{url} refused " + ", ".join(callbacks.refused))
    return len(changed)


def _differs(repository: Repository, ref: str) -> bool:
    here = repository.target(ref)
    there = repository.target(REMOTE_NOTES if ref == NOTES else REMOTE + ref.removeprefix("refs/"))
    return here is not None and (there is None or there.id != here.id)


class _Callbacks(pygit2.RemoteCallbacks):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step = step
        self._asked: set[CredentialType] = set()
        self.refused: list[str] = []

    def transfer_progress(self, stats: pygit2.remotes.TransferProgress) -> None:
        self._step(stats.received_objects, stats.total_objects)

    def push_transfer_progress(self, objects_pushed: int, total_objects: int, bytes_pushed: int) -> None:
        self._step(objects_pushed, total_objects)

    def push_update_reference(self, refname: str, message: str | None) -> None:
        if message is not None:
            self.refused.append(f"{refname} ({message})")

    def credentials(
        self, url: str, username_from_url: str | None, allowed_types: CredentialType
    ) -> pygit2.credentials.Username | pygit2.credentials.UserPass | pygit2.credentials.Keypair:
        """Offer the keys of the ssh agent, or for http what `git credential` knows. Offer each only once, because libgit2 keeps
        asking.
        """
        if allowed_types & CredentialType.USERNAME:
            return pygit2.Username(username_from_url or "git")
        for kind in (CredentialType.SSH_KEY, CredentialType.USERPASS_PLAINTEXT):
            if allowed_types & kind and kind not in self._asked:
                self._asked.add(kind)
                if kind == CredentialType.SSH_KEY:
                    return pygit2.KeypairFromAgent(username_from_url or "git")
                return _known_to_git(url)
        raise pygit2.GitError("it wants a login that neither the ssh agent nor `git credential` has")


def _known_to_git(url: str) -> pygit2.UserPass:
    program = shutil.which("git")
    if program is None:
        raise pygit2.GitError("it wants a login, and there is no `git credential` to ask")
    done = subprocess.run(
        [program, "credential", "fill"], input=f"url={url}\n\n", capture_output=True, text=True, check=False,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}, cwd="/",  # where no branch names a program for logins
    )  # fmt: skip
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if "username" not in said or "password" not in said:
        raise pygit2.GitError("it wants a login that `git credential` does not know")
    return pygit2.UserPass(said["username"], said["password"])


def _apart(url: str, work: Callable[[], _R]) -> _R:
    """Run *work* in a thread and wait for it. Raises Refusal with git's message if it fails."""
    results: list[_R] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as exc:  # noqa: BLE001 - raised again below, in the thread that waits
            errors.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)  # a short wait, so that Python can handle signals
    if errors:
        exc = errors[0]
        if isinstance(exc, pygit2.GitError | KeyError | ValueError):
            raise Refusal(errno.EIO, "git-remote", f"{url}: {exc}") from exc
        raise exc
    return results[0]
