"""Streamlit's own browser code, handed out without delay: from memory, and what Design needs asked for at once.

Streamlit reads each of its files anew for each visitor, on a thread, in pieces, while the browser needs both cores. And
its page names only those that any app needs: the code of a text field is asked for when the first text field arrives.
React then draws a grey bar for it, even where the code is there by now, since a promise is always kept a moment later,
and draws the whole page twice. So kinds that are there before the first element are handed over without a promise.
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
_KIND = re.compile(r"""(\blazy\)\(\(\)=>)(\w+\(\(\)=>import\(`\./([\w.-]+\.js)`\))""")  # how React is told of a kind
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
        self.page = page.replace("</head>", f"{links}{_early(kinds)}</head>", 1).encode()
        self.files = {
            f"/static/{name}": ((mimetypes.guess_type(name)[0] or "").encode(), (root / "static" / name).read_bytes())
            for name in {*_NAMED.findall(page), *more}
        }
        for path, (kind, body) in self.files.items():
            if path.startswith("/static/js/index."):
                self.files[path] = kind, at_once(body.decode(), kinds).encode()

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


def _early(kinds: Iterable[str]) -> str:
    """The script that runs these files before anything of theirs is drawn, and keeps them where `at_once` looks."""
    named = list(enumerate(kinds))
    imports = "".join(f'import * as k{n} from "./static/js/{name}";' for n, name in named)
    there = ",".join(f'"{name}":{{then:take=>take(k{n})}}' for n, name in named)
    return f'<script type="module">{imports}globalThis.psKinds={{{there}}}</script>\n'


def at_once(code: str, kinds: Iterable[str]) -> str:
    """Streamlit's code with these kinds of elements taken from the page's early script, where it ran, else as ever.

    >>> at_once("A=(0,U.lazy)(()=>H(()=>import(`./Html.a1.js`),[7])),B=H(()=>import(`./Html.a1.js`))", ["Html.a1.js"])
    'A=(0,U.lazy)(()=>globalThis.psKinds?.["Html.a1.js"]??H(()=>import(`./Html.a1.js`),[7])),B=H(()=>import(`./Html.a1.js`))'
    """
    wanted = set(kinds)

    def ready(found: re.Match[str]) -> str:
        tells, asks, name = found.groups()
        return f'{tells}globalThis.psKinds?.["{name}"]??{asks}' if name in wanted else found.group()

    return _KIND.sub(ready, code)


async def _answer(send: Any, kind: bytes, age: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"cache-control", age)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
