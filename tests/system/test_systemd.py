"""The units under a real systemd, in namespaces of its own (tests/booted.py): mounts that others see, kills, reloads, reboots."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentfsd
from tests.booted import SYSTEMD, UNITS, Machine, needs_systemd
from tests.mounted import needs_fuse, needs_open_checkout

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd" / "system" / "agentfsd@.service"
USER_UNIT = ROOT / "systemd" / "user" / "agentfsd@.service"
BIN = Path(sys.executable).parent
MOST_EXPOSED = 48  # tenths, of `systemd-analyze security`; most of what is left is the mount namespace that it shares with all


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    needs_fuse()
    needs_systemd()
    made = Machine(tmp_path_factory.mktemp("machine"))
    shutil.copy(UNIT, made.units)
    for directory, program, target in (
        ("usr/local/bin", "agentfsd", "agentfsd"),
        ("usr/sbin", "mount.agentfsd", "mount.agentfsd"),
        ("usr/sbin", "mount.fuse.agentfsd", "mount.agentfsd"),
    ):
        (made.boot / directory).mkdir(parents=True, exist_ok=True)
        (made.boot / directory / program).symlink_to(BIN / target)
    options = f"state={made.shared}/fstab-state,noauto,nofail,x-systemd.requires=basic.target"
    (made.boot / "etc" / "fstab").write_text(f"{made.shared}/project {made.shared}/work agentfsd {options} 0 0\n")
    for name in ("project", "work"):
        (made.shared / name).mkdir()
    (made.shared / "project" / "file").write_text("lower\n")
    try:
        yield made.start()
    finally:
        made.end()


class Workspace:
    """One instance: a directory that is overlaid at its own path."""

    def __init__(self, machine: Machine, name: str, conf: str = "") -> None:
        self.machine, self.path = machine, machine.shared / name
        self.path.mkdir()
        (self.path / "file").write_text("lower\n")
        self.unit = machine.sh(f"systemd-escape -p --template=agentfsd@.service '{self.path}'").strip()
        self.configure("conf", f"STATE={machine.shared}/{name}-state\n{conf}")

    def configure(self, kind: str, text: str) -> None:
        """Also for the next start of the machine."""
        self.machine.write(f"/etc/agentfsd{self.path}.{kind}", text)

    def systemctl(self, *words: str, check: bool = True) -> str:
        return self.machine.sh(f"systemctl {' '.join(words)} '{self.unit}'", check=check)

    def shown(self, name: str) -> str:
        return self.systemctl("show", "--value", "-p", name).strip()

    def sh(self, script: str, check: bool = True) -> str:
        return self.machine.sh(f"cd '{self.path}'; {script}", check=check)

    def back(self, restarts: int) -> bool:
        return (self.shown("NRestarts"), self.shown("ActiveState")) == (str(restarts), "active")


def test_enabled_workspace_is_mounted_for_all_and_survives_kill_stop_and_reboot(machine: Machine) -> None:
    work = Workspace(machine, "first workspace-1")
    work.systemctl("enable", "--now")
    assert work.sh("findmnt -n -o FSTYPE -T .; cat file") == "fuse.agentfsd\nlower\n"
    assert work.shown("StatusText") == f"{work.path} is mounted on {work.path}"
    work.sh("echo kept >new; mkdir -p /run/user/0; XDG_RUNTIME_DIR=/run/user/0 agentfsd branch create fix-1")  # as root logs in

    work.sh(f"kill -9 {work.shown('MainPID')}")
    machine.wait(lambda: work.back(1))
    assert work.sh("cat new; agentfsd branch list --json | grep -c '\"name\"'") == "kept\n2\n"

    work.systemctl("stop")
    assert sorted(work.sh("ls").split()) == ["file"]
    work.systemctl("start")
    assert work.sh("cat new") == "kept\n"

    machine.shut_down()
    machine.start()
    machine.wait(lambda: work.shown("ActiveState") == "active")
    assert work.sh("cat new; agentfsd branch list --json | grep -c '\"name\"'") == "kept\n2\n"
    work.systemctl("disable", "--now")


@contextlib.contextmanager
def _upgraded() -> Iterator[None]:
    """As after an upgrade: a file of the program is newer than the daemon that runs."""
    file = agentfsd.__file__
    old = os.stat(file)
    os.utime(file)
    try:
        yield
    finally:
        os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))


def test_programs_go_on_when_the_daemon_is_killed_or_replaced(machine: Machine) -> None:
    work = Workspace(machine, "living")
    work.systemctl("start")
    program = "exec 3>>$0; for n in $(seq 400); do echo $n >&3; sleep 0.02; done"
    work.sh(f"setsid sh -ec '{program}' main.log >/dev/null 2>&1 &")
    work.sh("agentfsd run -b fix --new -- sh -c 'setsid sh -ec \"$0\" run.log >/dev/null 2>&1 &' '" + program + "'")
    killed = work.shown("MainPID")
    work.sh(f"kill -9 {killed}")
    machine.wait(lambda: work.back(1))
    before = work.shown("MainPID")
    work.sh("agentfsd restart")
    machine.wait(lambda: work.shown("MainPID") not in (before, "0"))
    assert work.back(1)
    assert "in the place of 2 daemons killed or replaced\n" in work.sh("agentfsd status")
    before = work.shown("MainPID")
    with _upgraded():
        work.systemctl("reload")
        machine.wait(lambda: work.shown("MainPID") not in (before, "0"))
    assert work.back(1)
    wanted = "".join(f"{number}\n" for number in range(1, 401))
    machine.wait(lambda: work.sh("cat main.log") == wanted)
    machine.wait(lambda: work.sh("cat .agentfs/branches/fix/run.log") == wanted)
    work.systemctl("stop")
    assert sorted(work.sh("ls").split()) == ["file"]


def test_reload_reads_the_settings_and_the_journal_has_the_fields(machine: Machine) -> None:
    work = Workspace(machine, "reloaded")
    work.systemctl("start")
    work.configure("settings", "retention.max_count = 5\n")
    work.systemctl("reload")
    machine.wait(lambda: '"retention.max_count": "5"' in work.sh("agentfsd policy show --json"))
    work.configure("settings", "retention.max_count = few\n")
    work.systemctl("reload")
    machine.wait(lambda: "settings stay as they were" in work.shown("StatusText"))
    assert work.shown("ActiveState") == "active"
    work.sh("agentfsd branch create fix-2; agentfsd discard fix-2")
    found = json.loads(work.sh(f"journalctl --sync; journalctl -o json PRIORITY=3 AGENTFS_MOUNT='{work.path}'"))
    assert "few" in found["MESSAGE"]
    assert (found["LOGGER"], found["_SYSTEMD_UNIT"]) == ("agentfsd", work.unit)
    assert "discard" in work.sh("journalctl -o cat AGENTFS_BRANCH=fix-2")
    work.systemctl("stop")


def test_daemon_that_stands_still_is_killed_and_comes_back(machine: Machine) -> None:
    work = Workspace(machine, "watched", "OPTIONS=--backstore ramdisk --ramdisk-size 16\n")
    machine.write(f"{UNITS}/{work.unit}.d/short.conf", "[Service]\nWatchdogSec=700ms\nTimeoutAbortSec=100ms\n")
    machine.sh("systemctl daemon-reload")
    work.systemctl("start")
    work.sh("echo kept >new")
    time.sleep(1)
    assert work.back(0)
    work.sh(f"kill -STOP {work.shown('MainPID')}")
    machine.wait(lambda: work.back(1))
    assert work.sh("cat new") == "kept\n"
    assert '"backstore": "ramdisk"' in work.sh("agentfsd status --json")
    work.systemctl("stop")


def test_stop_while_somebody_is_inside_takes_the_mount_away(machine: Machine) -> None:
    work = Workspace(machine, "busy")
    work.systemctl("start")
    inside = work.sh("sleep 60 >/dev/null 2>&1 & echo $!").strip()
    began = time.monotonic()
    work.systemctl("stop")
    assert time.monotonic() - began < 10
    assert work.shown("Result") == "success"
    assert str(work.path) not in machine.sh("findmnt -rn -t fuse.agentfsd -o TARGET", check=False)
    machine.sh(f"kill {inside}")


def test_full_disk_is_said_and_survived_and_over_when_there_is_room(machine: Machine) -> None:
    fill = "dd if=/dev/zero of=/small/others$$ bs=4k status=none 2>/dev/null || true"
    machine.sh(f"mkdir /small; mount -t tmpfs -o size=24m tmpfs /small; {fill}")
    work = Workspace(machine, "cramped", "STATE=/small/state\n")
    work.systemctl("--no-block", "start")
    machine.wait(lambda: "it is tried again" in work.shown("StatusText"))
    machine.sh("rm /small/others*")
    machine.wait(lambda: work.shown("ActiveState") == "active")

    work.sh("echo kept >new; agentfsd branch create fix-4; agentfsd run -b fix-4 -- sh -c 'echo kept too >new'")
    machine.sh(fill)
    assert "No space left" in work.sh("cp /bin/sh copy 2>&1 || true")
    machine.wait(lambda: "no room is left in /small/state" in work.shown("StatusText"))
    assert "no room is left where contents are kept" in work.sh("agentfsd status")
    work.sh("rm file")

    restarts, pid = int(work.shown("NRestarts")), work.shown("MainPID")
    machine.sh(f"kill -STOP {pid}; rm /small/state/meta.db-reserve; {fill}; kill -9 {pid}")
    machine.wait(lambda: work.back(restarts + 1))
    assert "No space left" in work.sh("cp /bin/sh copy 2>&1 || true")
    assert "no room is left in /small/state" in work.shown("StatusText")
    machine.sh("rm /small/others*")
    machine.wait(lambda: "room" not in work.shown("StatusText"))
    assert (
        work.sh("cat new .agentfs/branches/fix-4/new; cp /bin/true new; ls; agentfsd fsck")
        == "kept\nkept too\ncopy\nnew\nsound\n"
    )
    work.systemctl("stop")
    machine.sh("umount /small")


def test_daemon_that_cannot_come_back_leaves_a_mount_that_answers_nobody(machine: Machine) -> None:
    work = Workspace(machine, "lost")
    work.systemctl("start")
    work.sh("echo kept >new")
    database, pid = f"{machine.shared}/lost-state/meta.db", work.shown("MainPID")
    machine.sh(f"kill -STOP {pid}; mv '{database}' '{database}.lost'; kill -9 {pid}")
    machine.wait(lambda: work.shown("ActiveState") == "failed")
    assert "not connected" in machine.sh(f"ls '{work.path}' 2>&1 || true")
    assert "restore it from a backup" in machine.sh(f"journalctl --sync; journalctl -o cat -p err -u '{work.unit}'")
    machine.sh(f"mv '{database}.lost' '{database}'; systemctl reset-failed '{work.unit}'")
    work.systemctl("start")
    assert work.sh("cat new") == "kept\n"
    work.systemctl("stop")
    assert work.sh("ls") == "file\n"


def test_hardening_leaves_the_daemon_what_it_needs(machine: Machine) -> None:
    work = Workspace(machine, "hardened", "OPTIONS=--allow-other -o suid,dev\n")
    work.systemctl("start")
    write = "dd if=/dev/zero of=large bs=1M count=8 status=none"
    work.sh(f"agentfsd run -b big --new --io passthrough -- sh -ec '{write}; cat large | wc -c'")
    work.sh("agentfsd interpose set enabled=on min_read_bytes=1")
    work.sh("agentfsd run --interpose -b big -- sh -c 'cat large >copy'")
    assert '"enabled": "on"' in work.sh("agentfsd interpose get --json")
    given = work.sh("agentfsd status --json")
    assert int(re.findall(r'"forwardings": (\d+)', given)[0]) > 0
    assert '"session": "native"' in given
    work.sh("mknod null c 1 3; mkfifo pipe; cp /bin/true true; chmod u+s true; chown nobody file; setfattr -n user.a -v b file")
    work.sh("agentfsd commit main --hooks")
    work.systemctl("stop")
    assert work.sh("stat -c '%n %F %a %U' file null true").splitlines() == [
        "file regular file 644 nobody", "null character special file 644 root", "true regular file 4755 root",
    ]  # fmt: skip
    log = machine.sh(f"journalctl -o cat -p warning -u '{work.unit}'")
    said = [line for line in log.splitlines() if not line.startswith(("-- No entries --", "slow: "))]  # a busy machine is slow
    assert said == []


def test_port_for_metrics_needs_the_drop_in_that_the_refusal_names(machine: Machine) -> None:
    pytest.importorskip("prometheus_client")
    work = Workspace(machine, "measured", "OPTIONS=--metrics 127.0.0.1:0\n")
    work.systemctl("--no-block", "start")
    machine.wait(lambda: work.shown("ActiveState") == "failed")
    said = machine.sh(f"journalctl --sync; journalctl -o cat -p err -u '{work.unit}'")
    (lines,) = set(re.findall(r"lines (\S+=.*?) and (\S+=\S+?)\)", said))
    machine.write(f"{UNITS}/{work.unit}.d/port.conf", "\n".join(["[Service]", *lines, ""]))
    machine.sh(f"systemctl daemon-reload; systemctl reset-failed '{work.unit}'")
    work.systemctl("start")
    address = json.loads(work.sh("agentfsd status --json"))["metrics"]
    ask = f"import urllib.request as u; print(u.urlopen('http://{address}/metrics', timeout=9).status)"
    assert machine.sh(f'{sys.executable} -c "{ask}"') == "200\n"
    work.systemctl("stop")


def test_workspace_mounted_elsewhere_by_a_file_named_after_the_instance(machine: Machine) -> None:
    machine.write(
        "/etc/agentfsd/elsewhere.conf", f"LOWER={machine.shared}/project\nSTATE={machine.shared}/elsewhere\nOPTIONS=-o ro\n"
    )
    machine.sh("mkdir /elsewhere; systemctl start agentfsd@elsewhere")
    assert machine.sh("cat /elsewhere/file; touch /elsewhere/new 2>/dev/null || echo refused") == "lower\nrefused\n"
    machine.sh("systemctl stop agentfsd@elsewhere")


def test_line_of_fstab_is_a_mount_for_mount_and_for_systemd(machine: Machine) -> None:
    target = machine.shared / "work"
    unit = machine.sh(f"systemd-escape -p --suffix=mount '{target}'").strip()
    for mount, umount in (
        (f"mount {target}", f"umount {target}"),
        (f"systemctl start '{unit}'", f"systemctl stop '{unit}'"),
        (f"mount -t fuse.agentfsd {machine.shared}/project {target} -o state={machine.shared}/fstab-state", f"umount {target}"),
    ):
        machine.sh(mount)
        assert machine.sh(f"cat {target}/file; findmnt -n -o FSTYPE {target}") == "lower\nfuse.agentfsd\n"
        machine.sh(umount)
        machine.wait(lambda: machine.sh(f"findmnt {target}", check=False) == "")


def test_user_has_the_same_of_his_own(machine: Machine) -> None:
    needs_open_checkout()
    machine.sh(
        f"""
        mkdir -p /home/agent/work /home/agent/.config/agentfsd/home/agent /run/user/65534 /run/user-units
        echo lower >/home/agent/work/file
        echo 'OPTIONS=-o noexec' >/home/agent/.config/agentfsd/home/agent/work.conf
        cp '{USER_UNIT}' /run/user-units
        for name in basic default paths shutdown sockets timers; do cp "/usr/lib/systemd/user/$name.target" /run/user-units; done
        chown -R 65534:65534 /home/agent /run/user/65534
        systemd-run --quiet --unit=manager --uid=65534 --gid=65534 -p Delegate=yes -p Type=notify \
            -E HOME=/home/agent -E XDG_RUNTIME_DIR=/run/user/65534 -E SYSTEMD_UNIT_PATH=/run/user-units -- {SYSTEMD} --user
        """
    )
    as_user = "setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/home/agent XDG_RUNTIME_DIR=/run/user/65534"
    unit = "agentfsd@home-agent-work"
    machine.sh(f"{as_user} systemctl --user start {unit}")
    assert machine.sh(f"{as_user} sh -ec 'cd /home/agent/work; cat file; findmnt -n -o FSTYPE .'") == "lower\nfuse.agentfsd\n"
    pid = machine.sh(f"{as_user} systemctl --user show --value -p MainPID {unit}").strip()
    machine.sh(f"{as_user} sh -ec 'echo kept >/home/agent/work/new'; kill -9 {pid}")
    machine.wait(
        lambda: machine.sh(f"{as_user} systemctl --user show --value -p NRestarts -p ActiveState {unit}") == "1\nactive\n"
    )
    assert machine.sh(f"{as_user} cat /home/agent/work/new; {as_user} agentfsd status | grep -c work") != "0"
    machine.sh(f"{as_user} systemctl --user stop {unit}")
    assert machine.sh("ls /home/agent/work") == "file\n"
    machine.sh("systemctl kill -s KILL manager")


# -- without a running systemd


def verified(unit: Path, place: Path, *manager: str) -> subprocess.CompletedProcess[str]:
    """The unit as it is, but for the program's directory, which is this checkout's."""
    text = unit.read_text()
    assert "ExecStart=agentfsd mount --foreground" in text
    copy = place / "agentfsd@srv-project.service"
    copy.write_text(text.replace("ExecStart=agentfsd ", f"ExecStart={BIN}/agentfsd "))
    command = ["systemd-analyze", *manager, "verify", "--man=no", "--recursive-errors=no", str(copy)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("unit", "manager"), [(UNIT, "--system"), (USER_UNIT, "--user")])
def test_units_are_sound(unit: Path, manager: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_analyze()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = verified(unit, tmp_path, manager)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_hardening_stays_what_it_is(tmp_path: Path) -> None:
    needs_analyze()
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager", str(UNIT)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def needs_analyze() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    said = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"\d+", said)[0]) < 250:
        pytest.skip("this systemd-analyze is older than 250")


def test_units_give_the_mount_no_namespace_of_its_own() -> None:
    """It would be seen by the daemon alone."""
    hiding = (
        "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectProc", "ProtectKernel",
        "ProtectControlGroups", "ReadOnlyPaths", "InaccessiblePaths", "Bind", "DynamicUser", "Root", "MountFlags",
    )  # fmt: skip
    for unit in (UNIT, USER_UNIT):
        assert not [line for line in unit.read_text().splitlines() if line.startswith(hiding)]
    assert os.path.exists(ROOT / "systemd" / "README")
