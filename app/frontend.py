"""Streamlit's own browser code, handed out without delay: from memory, and what Design needs asked for at once.

Streamlit reads each of its files anew for each visitor, on a thread, in pieces, while the browser needs both cores. And
its page names only those that any app needs: the code of a text field is asked for when the first text field arrives.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

KINDS = (  # of elements on Design, by the names of Streamlit's files
    "BidiComponent",
    "Button",
    "ButtonGroup",
    "Checkbox",
    "Html",
    "Metric",
    "NumberInput",
    "Selectbox",
    "Slider",
    "TextInput",
)
_IMPORTS = re.compile(r"""(?:\bimport|\bfrom)\s*["']\./([\w.-]+\.js)["']""")  # not import(...), which comes later
_NAMED = re.compile(r"""["']\./static/([\w./-]+)["']""")
AGES = b"public, immutable, max-age=31536000"  # as Streamlit has it: a file's name changes with its content


class Frontend:
    """ASGI middleware: answers for the page itself and the files that Design needs, and leaves the rest to `app`.

    `root` is Streamlit's folder with index.html, `pages` the paths that are answered with it.
    """

    def __init__(self, app: Any, root: Path, pages: Iterable[str]) -> None:
        self.app, self.pages = app, {"/", *(f"/{path}" for path in pages)}
        page = (root / "index.html").read_text(encoding="utf-8")
        scripts = root / "static" / "js"
        more = needed(scripts, KINDS) - set(_NAMED.findall(page))
        links = "".join(f'<link rel="modulepreload" crossorigin href="./static/{name}">\n' for name in sorted(more))
        kinds = sorted(file.name for kind in KINDS for file in scripts.glob(f"{kind}.*.js"))
        imports = "".join(f'import "./static/js/{name}";' for name in kinds)
        early = f'<script type="module">{imports}</script>\n'  # run, too, before the first of them is drawn
        self.page = page.replace("</head>", f"{links}{early}</head>", 1).encode()
        self.files = {
            f"/static/{name}": ((mimetypes.guess_type(name)[0] or "").encode(), (root / "static" / name).read_bytes())
            for name in {*_NAMED.findall(page), *more}
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and scope["method"] == "GET":
            if path in self.files:
                kind, body = self.files[path]
                return await _answer(send, kind, AGES, body)
            if path in self.pages:
                return await _answer(send, b"text/html; charset=utf-8", b"no-cache", self.page)
        await self.app(scope, receive, send)


def needed(folder: Path, kinds: Iterable[str]) -> set[str]:
    """The script files of these kinds of elements and all that they import, as paths below `static`."""
    found: set[str] = set()
    open_ = [file.name for kind in kinds for file in folder.glob(f"{kind}.*.js")]
    while open_:
        name = open_.pop()
        if f"js/{name}" not in found:
            found.add(f"js/{name}")
            open_ += _IMPORTS.findall((folder / name).read_text(encoding="utf-8"))
    return found


async def _answer(send: Any, kind: bytes, age: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"cache-control", age)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
