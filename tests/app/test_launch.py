"""How the app is started: the same look with and without a config file, on this machine only."""

from __future__ import annotations

import socket
import sys
import tomllib
from pathlib import Path

import pattern_studio_app
import pytest
from pattern_studio_app.launch import main, options
from pattern_studio_app.serve import HOST, listening
from pattern_studio_app.theme import OPTIONS
from streamlit import config

from pattern_studio import StudioError


def test_the_config_file_says_the_same_as_the_launcher():
    folder = Path(pattern_studio_app.__file__).parent
    sections = tomllib.loads((folder / ".streamlit" / "config.toml").read_text())
    assert flat(sections) == OPTIONS


def flat(table: dict, prefix: str = "") -> dict:
    """Nested sections as names with dots."""
    parts: dict = {}
    for name, value in table.items():
        parts |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return parts


def test_streamlit_knows_every_option():
    known = {option.key for option in config._config_options_template.values()}
    assert set(OPTIONS) <= known


def test_it_serves_this_machine_only_and_reports_nothing():
    given = options(8600)
    assert given["server.address"] == HOST == "127.0.0.1"
    assert given["browser.gatherUsageStats"] is False
    assert given["server.port"] == 8600
    with listening(0) as door:
        assert door.getsockname()[0] == HOST


def test_a_taken_port_is_refused_with_its_number():
    with listening(0) as door:
        port = door.getsockname()[1]
        with pytest.raises(StudioError, match=f"expected port {port} to be free.*choose another with --port"):
            listening(port)


def test_answers_in_two_parts_are_not_held_back():
    with listening(0) as door, socket.create_connection(door.getsockname()):
        door.setblocking(True)
        taken, _ = door.accept()
        with taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_script_lies_apart_from_the_pages():
    """Streamlit would run files of a folder `pages` beside its script by themselves."""
    folder = Path(pattern_studio_app.__file__).parent
    assert (folder / "entry" / "studio.py").exists()
    assert not (folder / "entry" / "pages").exists()


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_ports_out_of_range_are_refused(port, capsys):
    with pytest.raises(SystemExit):
        main(["--port", port])
    assert "--port" in capsys.readouterr().err


def test_without_streamlit_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "pattern_studio_app.serve", raising=False)
    monkeypatch.setitem(sys.modules, "streamlit.web.bootstrap", None)
    with pytest.raises(StudioError, match=r"pip install 'pattern-studio\[app\]'"):
        main([])
