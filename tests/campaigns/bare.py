"""README's two commands where nothing is set up: a bare Debian root, a 0700 home, a user without root.

About 20 minutes. It needs root, Debian, git and the registries. Minutes and seed have no meaning here.
IDEMPOTENCY_BARE names the parts to run, as ``root,home,user,plain,pythons``; IDEMPOTENCY_BARE_SUITE another release
of Debian for the bare roots.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import requests

from tests.campaigns import _places as places
from tests.campaigns._places import Place, Transcript
from tests.live import HOST, ROOT
from tools.services import SERVICES

PORT = 8321  # where ./dev demo listens if it is not told
APT_LINE = f"apt-get install --no-install-recommends {SERVICES['browser'].apt}"


def run(minutes: float, seed: int) -> int:
    del minutes, seed  # each part takes as long as it takes, and nothing is random
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SystemExit("this campaign makes bare Debian roots: it runs as root on Debian")
    transcript = Transcript({str(ROOT): "<project>", sys.base_prefix: "<python>", str(Path.home()): "<home>"})
    chosen = os.environ.get("IDEMPOTENCY_BARE", ",".join(PARTS)).split(",")
    for name in chosen:
        folder = Path(tempfile.mkdtemp(prefix="bare-")).resolve()
        transcript.masks[str(folder)] = "<folder>"
        transcript.say(f"\n== {name}: {PARTS[name].__doc__}")
        try:
            PARTS[name](transcript, folder)
        except Exception as error:  # the other parts are worth their time
            transcript.check(f"the part goes through: {type(error).__name__}: {error}", ok=False)
        finally:
            places.end_processes(folder)
            places.remove(folder)
    return transcript.failures


# -- the two commands --------------------------------------------------------------------------------------------


def demo_works(transcript: Transcript, place: Place) -> None:
    """Start it, wait for its address, order twice with one token and once with another, Ctrl-C."""
    command = "./dev demo" if _is_free(PORT) else "./dev demo --port 0"  # somebody's demo runs on this machine
    with places.running(transcript, place, command, seconds=600) as demo:
        opened = (re.search(r"is open:\s+(http://\S+)", line) for line in demo.lines())
        url = next((found.group(1) for found in opened if found), None)
        transcript.check("the demo says where it is open", url is not None)
        if url:
            _order(transcript, url)
        demo.signal(signal.SIGINT)
        ended = demo.end()
    transcript.check("it keeps its tokens in a real Valkey", "in a real Valkey" in ended.text)
    transcript.check("Ctrl-C closes the shop, exit 0", ended.code == 0 and "The shop is closed." in ended.text)


def _order(transcript: Transcript, url: str) -> None:
    first_form, second_form = _form(url), _form(url)
    first, again, second = (_post(url, form) for form in (first_form, first_form, second_form))
    transcript.check(f"an order is made: {first.status_code}", first.status_code in (302, 303))
    transcript.check(
        f"the same form again gets the same answer: {again.status_code}, replayed",
        (again.status_code, again.headers.get("Location")) == (first.status_code, first.headers.get("Location"))
        and again.headers.get("Idempotent-Replayed") == "true",
    )
    transcript.check("a fresh form makes another", second.headers.get("Location") != first.headers.get("Location"))
    made = re.search(r'data-total="(\d+)"', requests.get(f"{url}/orders", timeout=30).text)
    transcript.check("the shop lists two orders for three POSTs", made is not None and made.group(1) == "2")


def _form(url: str) -> tuple[str, str]:
    """The order form as a page shows it: where it goes, and its token."""
    page = requests.get(f"{url}/order", timeout=30)
    form = re.search(r'<form[^>]*id="order".*?</form>', page.text, re.DOTALL)
    action, token = (
        re.search(pattern, form.group() if form else "")
        for pattern in (r'action="([^"]+)"', r'name="idempotency_token"[^>]*value="([^"]+)"')
    )
    assert action, f"{page.status_code}, no form in the page: {page.text[:500]}"
    assert token, f"{page.status_code}, no token in the form: {page.text[:500]}"
    return action.group(1), token.group(1)


def _post(url: str, form: tuple[str, str]) -> requests.Response:
    action, token = form
    fields = {"item": "Green tea", "quantity": "2", "idempotency_token": token}
    return requests.post(url + action, fields, allow_redirects=False, timeout=30)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def suite_passes(transcript: Transcript, place: Place, command: str = "./dev test", **env: str) -> str:
    ended = places.run(transcript, place, command, **env)
    transcript.check(
        "all passed",
        ended.code == 0 and re.search(r"^[1-9]\d* passed, 0 failed$", ended.text, re.MULTILINE) is not None,
    )
    return ended.text


# -- the parts ---------------------------------------------------------------------------------------------------


def bare_root(transcript: Transcript, folder: Path) -> None:
    """a bare Debian root (debootstrap, minbase), as root"""
    places.lay(folder / "root")
    places.clone_into(folder / "root/root")
    place = places.in_root(folder / "root")
    places.run(transcript, place, "sh -c 'command -v python3 make git curl || echo none of these is here'")
    demo_works(transcript, place)
    suite_passes(transcript, place)
    transcript.check("policy-rc.d is gone again", not (folder / "root/usr/sbin/policy-rc.d").exists())


def private_home(transcript: Transcript, folder: Path) -> None:
    """this machine, as root, from a clone under a home of 0700"""
    home = folder / "home"
    home.mkdir(mode=0o700)
    place = places.in_home(places.clone_into(home).parent)
    demo_works(transcript, place)
    suite_passes(transcript, place)


def without_root(transcript: Transcript, folder: Path) -> None:
    """a bare root without apt; then a user without root, before and after Python is there"""
    root = folder / "root"
    places.lay(root)
    places.clone_into(root / "root")
    apt, hidden = root / "usr/bin/apt-get", root / "usr/bin/no-apt-get"
    apt.rename(hidden)
    refused(transcript, places.in_root(root), "./dev demo", "install Python 3.11 or newer with its venv module")
    hidden.rename(apt)
    _visitor(root)
    visitor = places.in_root(root, "visitor")
    refused(transcript, visitor, "./dev test", "sudo apt-get install python3 python3-venv")
    places.prepare(root, "apt-get -qq update && apt-get -qq install -y --no-install-recommends python3 python3-venv")
    transcript.say("  (root has installed python3 and python3-venv)")
    said = refused(transcript, visitor, "./dev test", "./dev test --without browser")
    transcript.check("the browser alone is missing", re.findall(r"\((\w+)\) is missing", said) == ["browser"])
    transcript.check("with the line that installs it", APT_LINE in said)
    said = suite_passes(transcript, visitor, "./dev test --without browser")
    counted = re.search(r"^left out by --without: [1-9]\d* tests that need Chromium$", said, re.MULTILINE)
    transcript.check("the closing line counts what was left out", counted is not None)
    with_ci = places.run(transcript, visitor, "./dev test --without browser", CI="true")
    transcript.check("with CI set nothing may be left out", with_ci.code == 2)
    demo_works(transcript, visitor)


def refused(transcript: Transcript, place: Place, command: str, line: str) -> str:
    ended = places.run(transcript, place, command)
    lines = [text.strip() for text in ended.text.splitlines()]
    transcript.check(f"exit 3, and one line to run: {line}", ended.code == 3 and any(t.startswith(line) for t in lines))
    return ended.text


def _visitor(root: Path) -> None:
    """A user with the clone in a home of 0700."""
    places.prepare(root, "useradd --create-home visitor")
    (root / "root" / places.CLONE).rename(root / "home/visitor" / places.CLONE)
    places.prepare(root, "chown -R visitor: /home/visitor && chmod 700 /home/visitor")


def plain_pytest(transcript: Transcript, folder: Path) -> None:
    """pip install -e ".[dev]" into a fresh environment, then plain pytest"""
    place = places.in_home(places.clone_into(folder).parent)
    for command in ("python3 -m venv ../venv", "../venv/bin/pip install -q -e '.[dev]'"):
        transcript.check("exit 0", places.run(transcript, place, command).code == 0)
    ended = places.run(transcript, place, "../venv/bin/pytest -q")
    transcript.check("green", ended.code == 0)
    counted = re.search(
        r"^left out: [1-9]\d* tests that need Chromium; ./dev test runs them$", ended.text, re.MULTILINE
    )
    transcript.check("the closing lines count what ./dev test adds", counted is not None)


def other_pythons(transcript: Transcript, folder: Path) -> None:
    """./dev test under the other Pythons of this machine's version manager"""
    here = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for name in ("python3.11", "python3.12", "python3.13", "python3.14"):
        python = _find(name)
        if name == here:
            continue
        if python is None:
            transcript.say(f"  not shown: {name} is not on this machine")
            continue
        home = folder / name
        home.mkdir()
        transcript.masks[str(python)] = name
        suite_passes(transcript, places.in_home(places.clone_into(home).parent), PYTHON=str(python))


def _find(name: str) -> Path | None:
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    managed = sorted(versions.glob(f"{name.removeprefix('python')}.*/bin/{name}"))
    on_path = shutil.which(name)
    return managed[-1] if managed else Path(on_path) if on_path else None


PARTS: dict[str, Callable[[Transcript, Path], None]] = {
    "root": bare_root,
    "home": private_home,
    "user": without_root,
    "plain": plain_pytest,
    "pythons": other_pythons,
}
