"""The transcript of ``./dev campaign bare`` may be shown to anybody."""

from __future__ import annotations

import pytest

from tests.campaigns import _places as places
from tests.campaigns._places import Transcript


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Looking in indexes: https://me:secret@index.example/simple/", "Looking in indexes: <address>"),
        ("Get:1 http://mirror.example/debian bookworm", "Get:1 <address> bookworm"),
        ("is open:  http://127.0.0.1:8321/order", "is open:  http://127.0.0.1:8321/order"),
        ("File /home/anna/tmp/clone/a.py", "File <folder>/clone/a.py"),
        ("File /home/anna/b.py", "File <home>/b.py"),
    ],
)
def test_a_transcript_names_no_registry_and_no_path_of_this_machine(capsys, text, shown):
    Transcript({"/home/anna": "<home>", "/home/anna/tmp": "<folder>"}).say(text)
    assert capsys.readouterr().out == f"{shown}\n"


def test_what_went_wrong_is_counted(capsys):
    transcript = Transcript()
    transcript.check("this", ok=True)
    transcript.check("that", ok=False)
    assert transcript.failures == 1
    assert capsys.readouterr().out == "  ok: this\n  WRONG: that\n"


def test_settings_that_name_a_file_are_taken_along_only_where_it_is(monkeypatch, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ca.crt").touch()
    for name in [name for name in places.os.environ if places.SETTINGS.fullmatch(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CERT", "/etc/ca.crt")
    monkeypatch.setenv("PIP_FIND_LINKS", "/somewhere/wheels")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert places.settings(tmp_path) == {"PIP_CERT": "/etc/ca.crt", "HTTPS_PROXY": "http://proxy.example:3128"}


def test_a_command_runs_in_a_clean_environment_and_its_end_is_seen(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("CI", "true")
    place = places.Place((), str(tmp_path), {"PATH": "/usr/bin:/bin"})
    transcript = Transcript({str(tmp_path.resolve()): "<clone>", str(tmp_path): "<clone>"})
    ended = places.run(transcript, place, "sh -c 'pwd; echo $CI $EXTRA; exit 3'", EXTRA="more")
    assert (ended.code, ended.text.splitlines()[1:]) == (3, ["more"])
    assert "    <clone>\n" in capsys.readouterr().out


def test_a_command_that_does_not_end_is_killed(tmp_path):
    place = places.Place((), str(tmp_path), {"PATH": "/usr/bin:/bin"})
    assert places.run(Transcript(), place, "sleep 60", seconds=0.2).code == -9
