"""Named patterns: every file reads, every preset is there, and what is wrong with a file is said."""

from __future__ import annotations

import re

import pytest

import pattern_studio as ps
from gallery.named import FAMILIES, FOLDER, gallery, load
from pattern_studio.presets import PRESETS

GOOD = "title: T\nfamily: Ours\nsource: S\ntokens: 8\nblock: 4\nnote: N.\n\ncausal\n"


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_every_file_reads_and_lowers(path):
    one = load(path)
    assert path.suffix == ".txt"
    assert re.fullmatch(r"[a-z0-9_]+", one.name)
    assert ps.parse(str(one.pattern)) == one.pattern
    assert one.layout.pairs > 0
    assert one.layout.empty_rows == 0, "a pattern is shown where each query sees something"
    assert 128 <= one.problem.q_len <= 1024
    assert one.problem.q_len % one.block == 0
    assert one.head < one.problem.heads
    assert one.note.endswith((".", "?")), "a note is made of sentences"


def test_every_preset_is_in_the_gallery():
    words = {word for one in gallery() for word in re.findall(r"[a-z_0-9]+(?=\()", one.text)}
    assert set(PRESETS) <= words


def test_every_family_is_there_and_in_order():
    families = [one.family for one in gallery()]
    assert tuple(dict.fromkeys(families)) == FAMILIES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD.replace("title: T\n", ""), "bad.txt: expected each of title, .* missing: title, unknown: none"),
        (GOOD.replace("title", "tittle"), "missing: title, unknown: tittle"),
        (GOOD + "", None),
        (GOOD.replace("\n\n", "\n"), "an empty line and a pattern, got no pattern"),
        (GOOD.replace("causal\n", " \n"), "got no pattern; write it below"),
        (GOOD.replace("Ours", "Theirs"), "expected a family among Decoders, .*, got 'Theirs'"),
        (GOOD.replace("tokens: 8", "tokens: many"), "tokens takes a whole number, got 'many'"),
        (GOOD.replace("title: T\n", "title: T\ntitle: U\n"), "once"),
        (GOOD.replace("note", "docs: 3, 4\nnote"), "document lengths must add up to kv_len 8, got a sum of 7"),
        (GOOD.replace("causal", "casual"), "bad.txt: .*did you mean 'causal'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    path.write_text(content)
    if message is None:
        assert load(path).pattern == ps.causal
        return
    with pytest.raises(ps.StudioError, match=message):
        load(path)
