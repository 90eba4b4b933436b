"""Tries to reach the real files of the workspace: by other paths, by inherited descriptors, by moving what they lie in."""

import os

from tests.confinement.attempts import RUNNER, attempt, call, mark, marking, sh, victim, world


@marking
def write_at_the_real_path() -> None:
    mark("write_at_the_real_path", f"{world.lower}/mark1")


@marking
def write_through_a_symlinked_parent() -> None:
    mark("write_through_a_symlinked_parent", f"{world.home}/links/proj/mark2")


@marking
def write_through_a_bind_mount() -> None:
    mark("write_through_a_bind_mount", f"{world.alias}/mark3")


@marking
def write_through_a_bind_mount_of_a_part() -> None:
    mark("write_through_a_bind_mount_of_a_part", f"{world.alias_of_part}/mark4")


@marking
def write_by_own_root() -> None:
    mark("write_by_own_root", f"/proc/self/root{world.lower}/mark5")


@marking
def write_by_the_root_of_process_1() -> None:
    mark("write_by_the_root_of_process_1", f"/proc/1/root{world.lower}/mark6")


@marking
def write_by_the_root_of_the_daemon() -> None:
    mark("write_by_the_root_of_the_daemon", f"/proc/{world.daemon}/root{world.lower}/mark7")


@marking
def write_by_the_cwd_of_somebody_outside() -> None:
    mark("write_by_the_cwd_of_somebody_outside", f"/proc/{world.bystander}/cwd/mark8")


@marking
def write_by_descriptors_of_the_daemon() -> None:
    for name in os.listdir(f"/proc/{world.daemon}/fd"):
        mark("write_by_descriptors_of_the_daemon", f"/proc/{world.daemon}/fd/{name}/mark9")


@marking
def write_by_the_root_of_the_runner() -> None:
    mark("write_by_the_root_of_the_runner", f"/proc/{RUNNER}/root{world.lower}/mark10")


@marking
def write_by_the_cwd_of_the_runner() -> None:
    mark("write_by_the_cwd_of_the_runner", f"/proc/{RUNNER}/cwd/../proj/mark11")


@attempt
def write_by_the_mounts_of_the_runner() -> None:
    sh(f"nsenter --mount=/proc/{RUNNER}/ns/mnt sh -c 'echo ESCAPED write_by_the_mounts_of_the_runner > {world.lower}/mark12'")


@marking
def write_by_an_inherited_directory() -> None:
    mark("write_by_an_inherited_directory", "mark13", dir_fd=world.fd_of_lower)


@marking
def write_by_an_inherited_parent() -> None:
    mark("write_by_an_inherited_parent", "proj/mark14", dir_fd=world.fd_of_home)


@marking
def change_to_an_inherited_directory() -> None:
    os.fchdir(world.fd_of_lower)
    mark("change_to_an_inherited_directory", "mark15")


def reopen(fd: int, name: str) -> None:
    again = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_TRUNC)
    os.write(again, f"ESCAPED {name}\n".encode())


@attempt
def open_an_inherited_file_for_writing() -> None:
    reopen(world.fd_of_file, "open_an_inherited_file_for_writing")


@attempt
def open_what_an_inherited_descriptor_names() -> None:
    """O_PATH, by which nothing was opened yet."""
    reopen(world.fd_of_path, "open_what_an_inherited_descriptor_names")


@marking
def link_a_real_file_elsewhere() -> None:
    os.link(victim("link_a_real_file_elsewhere"), f"{world.home}/linked")
    mark("link_a_real_file_elsewhere", f"{world.home}/linked")


@marking
def move_a_real_file_away() -> None:
    os.rename(victim("move_a_real_file_away"), f"{world.home}/moved")


@marking
def remove_a_real_file() -> None:
    os.unlink(victim("remove_a_real_file"))


@marking
def remove_a_real_file_by_another_name() -> None:
    os.unlink(f"{world.alias}/victims/remove_a_real_file_by_another_name")


@attempt
def move_the_real_directory() -> None:
    os.rename(world.lower, f"{world.home}/proj2")


@attempt
def move_what_the_real_directory_lies_in() -> None:
    os.rename(os.path.dirname(world.home), f"{world.base}2")


@attempt
def exchange_the_real_directory() -> None:
    call(316, -100, world.lower.encode(), -100, f"{world.home}/dir".encode(), 2)


@attempt
def remove_the_real_directory() -> None:
    os.rmdir(world.lower)
