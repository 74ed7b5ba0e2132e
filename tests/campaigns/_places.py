"""Places for ``./dev campaign bare``: a bare Debian root, or a home nobody else may enter; and a terminal in each."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.live import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "flask-idempotency")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CLONE = "flask-idempotency"  # the folder's name, in every place
SETTINGS = re.compile(r"(PIP_|UV_)\w+|(https?|no|all)_proxy|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|PYENV_ROOT", re.IGNORECASE)
URL = re.compile(r"\b(?:https?|ftp)://(?!127\.0\.0\.1\b|localhost\b)[^\s'\"<>)\]]*")
DOTS = re.compile(r"\.+ *\[ *\d+%\]$")  # pytest's progress, nothing failed in it

# Runs in a mount namespace of its own: what it mounts is seen by this command only, and gone when that ends.
ENTER = """
root=$1; shift
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir "$root/dev/shm" "$root/dev/pts"
for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
exec chroot "$@"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere to type commands, with a clone of the project.

    :param way: the command line that goes there; what is typed follows it.
    :param clone: the clone's folder, as seen from there.
    :param env: the whole environment.
    """

    way: tuple[str, ...]
    clone: str
    env: Mapping[str, str]

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        there = ["env", "-i", *(f"{name}={value}" for name, value in {**self.env, **env}.items())]
        line = [*self.way, *there, "sh", "-c", 'cd "$0" && exec "$@"', self.clone, *command]
        return subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a terminal's Ctrl-C reaches all of it
        )


@dataclass(slots=True)
class Transcript:
    """Prints what happens, without an address of a registry or a path of this machine, and counts what went wrong."""

    masks: dict[str, str] = field(default_factory=dict)
    failures: int = 0

    def say(self, text: str) -> None:
        for path, mask in sorted(self.masks.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(path, mask)
        print(URL.sub("<address>", text), flush=True)

    def check(self, what: str, ok: bool) -> None:
        self.failures += not ok
        self.say(f"  {'ok' if ok else 'WRONG'}: {what}")


@dataclass(slots=True)
class Ended:
    """A command that ended: its exit code and all it printed."""

    code: int
    text: str


class Running:
    """A command that runs in a place; its output is printed as it comes."""

    def __init__(self, transcript: Transcript, process: subprocess.Popen[str], seconds: float) -> None:
        self._transcript = transcript
        self._process = process
        self._began = time.monotonic()
        self._timer = threading.Timer(seconds, self.signal, (signal.SIGKILL,))
        self._timer.start()
        self._text = ""

    def lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._text += line
            if not DOTS.match(line):
                self._transcript.say("    " + line.rstrip())
            yield line

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        self._timer.cancel()
        self.signal(signal.SIGKILL)
        with self._process:  # waits, and closes its output
            pass

    def end(self) -> Ended:
        for _ in self.lines():
            pass
        code = self._process.wait()
        self._transcript.say(f"  [exit {code}, {time.monotonic() - self._began:.0f} s]")
        return Ended(code, self._text)


@contextlib.contextmanager
def running(transcript: Transcript, place: Place, command: str, seconds: float = 1800, **env: str) -> Iterator[Running]:
    """Type `command`; what is still running after the block, or after `seconds`, is killed."""
    transcript.say(f"  $ {' '.join([*(f'{name}={value}' for name, value in env.items()), command])}")
    process = place.start(shlex.split(command), env)
    started = Running(transcript, process, seconds)
    try:
        yield started
    finally:
        started.close()


def run(transcript: Transcript, place: Place, command: str, seconds: float = 1800, **env: str) -> Ended:
    with running(transcript, place, command, seconds, **env) as started:
        return started.end()


# -- what this machine knows about registries --------------------------------------------------------------------


def settings(root: Path | None = None) -> dict[str, str]:
    """The variables that say where Python and the registries are, less those that name what `root` does not have."""
    found = {name: value for name, value in os.environ.items() if SETTINGS.fullmatch(name)}
    absent = {n for n, v in found.items() if root and v.startswith("/") and not (root / v.lstrip("/")).exists()}
    return {name: value for name, value in found.items() if name not in absent}


def _pip_settings(root: Path) -> str:
    """This machine's pip settings, less those that name files which `root` does not have."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    lines = []
    for name, value in re.findall(r"^global\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
        parts = [part for part in value.split() if not part.startswith("file:")]
        parts = [part for part in parts if not part.startswith("/") or (root / part.lstrip("/")).exists()]
        lines += [f"{name} = {' '.join(parts)}"] if parts else []
    return "\n".join(["[global]", *lines, ""])


# -- a bare root -------------------------------------------------------------------------------------------------


def _pristine() -> Path:
    """A tar of Debian's smallest root, of this machine's release; made once, kept in the user's cache."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = os.environ.get("IDEMPOTENCY_BARE_SUITE") or release["VERSION_CODENAME"].strip('"')
    kept = CACHE / f"minbase-{suite}.tar"
    if kept.exists():
        return kept
    if shutil.which("debootstrap") is None:
        subprocess.run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", "debootstrap"], check=True)
    ask = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Component: main"]
    mirror = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0]
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"making-{suite}-{os.getpid()}"
    try:
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", suite, str(folder), mirror], capture_output=True, text=True
        )
        assert made.returncode == 0, f"debootstrap ended with {made.returncode}: {made.stdout[-2000:]}"
        subprocess.run(["tar", "-cf", f"{folder}.tar", "--one-file-system", "-C", str(folder), "."], check=True)
        Path(f"{folder}.tar").rename(kept)  # whole or not there
    finally:
        remove(folder)
    return kept


def lay(root: Path) -> None:
    """Lay a bare root into the folder `root`, with this machine's package settings."""
    root.mkdir()
    root.chmod(0o755)
    subprocess.run(["tar", "-xf", str(_pristine()), "-C", str(root)], check=True)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    shutil.copytree("/etc/apt", root / "etc/apt", dirs_exist_ok=True)
    shutil.copytree("/usr/local/share/ca-certificates", root / "usr/local/share/ca-certificates", dirs_exist_ok=True)
    (root / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
    for name in (CERTIFICATES, "/etc/resolv.conf"):
        shutil.copyfile(name, root / name.lstrip("/"))
    (root / "etc/pip.conf").write_text(_pip_settings(root))


def clone_into(folder: Path) -> Path:
    """A clone of what is committed. No hard links: its owner may be changed."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(folder / CLONE)], check=True)
    return folder / CLONE


def in_root(root: Path, user: str = "root") -> Place:
    home = "/root" if user == "root" else f"/home/{user}"
    env = {"HOME": home, "USER": user, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
    way = ("unshare", "--mount", "sh", "-euc", ENTER, "sh", str(root), f"--userspec={user}", str(root))
    return Place(way, f"{home}/{CLONE}", {**env, **settings(root)})


def prepare(root: Path, commands: str) -> None:
    """What somebody with root did before: its output is shown only when it fails."""
    place = in_root(root)
    process = Place(place.way, "/", place.env).start(["sh", "-ec", commands], {"DEBIAN_FRONTEND": "noninteractive"})
    text = process.communicate()[0]
    assert process.returncode == 0, f"{commands} ended with {process.returncode}: {text[-2000:]}"


def in_home(home: Path) -> Place:
    """This machine, as root, with an empty home."""
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not p.startswith(sys.prefix))
    env = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb", **settings()}
    return Place((), f"{home}/{CLONE}", env)


# -- going away --------------------------------------------------------------------------------------------------


def end_processes(folder: Path) -> None:
    """Kill what still lives in a root below `folder`."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "root").readlink().is_relative_to(folder):
                os.kill(int(process.name), signal.SIGKILL)


def remove(folder: Path) -> None:
    """Remove a folder, never what is mounted below it."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert not [mount for mount in mounts if Path(mount).is_relative_to(folder)], f"something is mounted in {folder}"
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
