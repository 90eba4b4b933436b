"""Tries to have agentfsd do it: by its commands, its state and registry, and by other mounts and their daemons."""

import errno
import os
import socket

from tests.confinement.attempts import agentfsd, attempt, mark, marking, read, world


@marking
def mount_the_workspace_again() -> None:
    """A daemon of one's own over the real directory, which is the branch here."""
    agentfsd("mount", world.lower, f"{world.outside}/empty", "--state", f"{world.outside}/empty/state")


@marking
def run_without_confinement() -> None:
    agentfsd(
        "run", "--confine", "off", "-b", "mine", "--", "sh", "-c", f"echo ESCAPED run_without_confinement >{world.lower}/mark31"
    )


@attempt
def merge_into_main() -> None:
    agentfsd("merge", "mine", "main")


@attempt
def undo_what_a_person_did() -> None:
    agentfsd("undo")


@attempt
def forget_what_can_be_undone() -> None:
    agentfsd("gc", "--forget-undo")


@attempt
def change_the_rules() -> None:
    agentfsd("rules", "add", "allow **")


@attempt
def export_another_branch() -> None:
    agentfsd("export", "other", f"{world.point}/exported")


@attempt
def compare_with_another_branch() -> str:
    return agentfsd("diff", "other", "--patch")


@attempt
def restore_another_branch_here() -> None:
    agentfsd("restore", "other")


@attempt
def ask_for_a_descriptor_of_another_branch() -> str:
    from agentfs_client.control import ControlClient

    with ControlClient.connect(f"{world.state}/control.sock") as client:
        return os.read(client.open_fd("secret", os.O_RDONLY, branch="other").fd, 100).decode()


@attempt
def list_contents() -> list[str]:
    found = [name for name in os.listdir(world.state) if name not in ("control.sock", "handoff.sock")]
    if not found:
        raise OSError(errno.ENOENT, "covered")
    return found


@attempt
def remove_the_state() -> None:
    os.unlink(f"{world.state}/meta.db")


@marking
def write_into_the_state() -> None:
    mark("write_into_the_state", f"{world.state}/mark22")


@marking
def write_into_the_state_by_another_name() -> None:
    mark("write_into_the_state_by_another_name", f"{world.alias_of_state}/mark23")


@marking
def write_contents_by_another_name() -> None:
    mark("write_contents_by_another_name", f"{world.alias_of_state}/objects/mark24")


@attempt
def move_what_the_state_lies_in() -> None:
    os.rename(f"{world.home}/.local", f"{world.home}/.local2")


@attempt
def move_the_state() -> None:
    os.rename(os.path.dirname(world.state), f"{world.home}/states")


@attempt
def replace_the_socket() -> None:
    os.unlink(f"{world.state}/control.sock")


@attempt
def read_the_registry() -> list[str]:
    found = [name for name in os.listdir(world.registry) if world.other_record in name]
    if not found:
        raise OSError(errno.ENOENT, "covered")
    return found


@marking
def write_into_the_registry() -> None:
    mark("write_into_the_registry", f"{world.registry}/mark25.json")


@marking
def make_a_registry_that_does_not_exist_yet() -> None:
    os.makedirs(f"/tmp/agentfsd-{os.geteuid()}", exist_ok=True)
    mark("make_a_registry_that_does_not_exist_yet", f"/tmp/agentfsd-{os.geteuid()}/mark.json")


@attempt
def talk_to_another_daemon() -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(world.other_socket)


@attempt
def discard_another_branch() -> None:
    agentfsd("discard", "other")


@attempt
def commit_the_branch() -> None:
    agentfsd("commit", "mine")


@attempt
def be_bound_to_another_branch() -> None:
    agentfsd("bind", str(os.getpid()), "other")


@attempt
def change_the_policy() -> None:
    agentfsd("policy", "set", "confine", "off")


@attempt
def run_in_another_branch() -> None:
    agentfsd("run", "-b", "other", "--", "true")


@attempt
def end_the_daemon() -> None:
    agentfsd("umount", world.point)


@attempt
def read_another_branch() -> str:
    return read(f"{world.point}/.agentfs/branches/other/secret")


@attempt
def read_another_mount() -> str:
    return read(f"{world.other_point}/secret")


@marking
def write_into_another_mount() -> None:
    mark("write_into_another_mount", f"{world.other_point}/mark26")


@attempt
def read_what_lies_below_another_mount() -> list[str]:
    found = os.listdir(f"{world.other_point}/.agentfs")
    return found
