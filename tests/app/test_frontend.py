"""Streamlit's browser code: which files Design needs, and what is answered from memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pattern_studio_app.frontend import KINDS, Frontend, at_once, needed
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit import file_util

ROOT = Path(file_util.get_static_dir())


@pytest.fixture(scope="module")
def visitor() -> TestClient:
    other = Starlette(routes=[Route("/{rest:path}", lambda request: PlainTextResponse("Streamlit's own"))])
    return TestClient(Frontend(other, ROOT, ["design", "quality"]))


def test_imports_are_followed_and_those_for_later_are_not(tmp_path):
    (tmp_path / "Slider.a1.js").write_text('import{a as b}from"./part.b2.js";const c=()=>import(`./later.c3.js`);')
    (tmp_path / "part.b2.js").write_text('import"./base.d4.js";import"./part.b2.js"')
    (tmp_path / "base.d4.js").write_text("export const a = 1")
    (tmp_path / "later.c3.js").write_text("")
    assert needed(tmp_path, ["Slider", "Gone"]) == {"js/Slider.a1.js", "js/part.b2.js", "js/base.d4.js"}


@pytest.mark.parametrize("kind", KINDS)
def test_streamlit_has_a_file_of_each_kind(kind):
    assert len(list((ROOT / "static" / "js").glob(f"{kind}.*.js"))) == 1


@pytest.mark.parametrize("path", ["/", "/quality"])
def test_pages_are_streamlits_with_more_named_ahead(visitor, path):
    answer = visitor.get(path)
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"].startswith("text/html")
    added = re.sub(r'<link rel="modulepreload" crossorigin href="./static/js/[\w.-]+">\n', "", answer.text)
    kinds = re.findall(r'import \* as k\d+ from "./static/js/(\w+)\.', added)
    assert kinds == sorted(KINDS)
    assert re.sub(r'<script type="module">import .*</script>\n', "", added) == re.sub(
        r'<link rel="modulepreload" crossorigin href="./static/js/[\w.-]+">\n', "", (ROOT / "index.html").read_text()
    )


def test_every_file_that_the_page_names_is_answered_as_it_lies_there_but_for_how_kinds_are_asked_for(visitor):
    names = set(re.findall(r"\./static/([\w./-]+)", visitor.get("/").text))
    assert len(names) > 50
    taken: list[bytes] = []
    for name in names:
        answer = visitor.get(f"/static/{name}")
        ours = re.compile(rb'globalThis\.psKinds\?\.\["([A-Za-z]+)\.[\w.-]+"\]\?\?')
        taken += ours.findall(answer.content)
        assert ours.sub(b"", answer.content) == (ROOT / "static" / name).read_bytes()
        assert "immutable" in answer.headers["cache-control"]
    assert visitor.get(f"/static/{min(n for n in names if n.endswith('.js'))}").headers["content-type"] in (
        "text/javascript",
        "application/javascript",
    )
    assert sorted(name.decode() for name in taken) == sorted(KINDS)  # Streamlit tells React of all as at_once expects


def test_other_kinds_and_what_is_no_kind_are_left_as_they_are():
    code = "a=(0,U.lazy)(()=>H(()=>import(`./Audio.a1.js`),[1])),b=H(()=>import(`./Html.a1.js`),[2])"
    assert at_once(code, ["Html.a1.js"]) == code


@pytest.mark.parametrize("path", ["/elsewhere", "/static/../index.html", "/_stcore/health", "/static/js/none.js"])
def test_the_rest_is_left_to_streamlit(visitor, path):
    assert visitor.get(path).text == "Streamlit's own"
    assert visitor.post("/").status_code == 405  # handed on, and refused there
