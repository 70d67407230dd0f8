"""The commands that the end-to-end test does not walk: what they print, and their errors."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pattern_studio as ps
from pattern_studio.cli import COMMANDS, main
from pattern_studio.exporters import read
from pattern_studio.generators import GENERATORS


def printed(capsys, *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out.rstrip("\n")


def refused(capsys, *arguments: str) -> str:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert not told.out
    assert len(told.err.splitlines()) == 1
    return told.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_command_has_help(command, capsys):
    name = command.__name__.rpartition(".")[2]
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert command.ABOUT in " ".join(capsys.readouterr().out.split())


class TestStats:
    def test_lossy_counts_what_it_settles(self, capsys):
        exact = json.loads(printed(capsys, "stats", "causal", "--q-len", "256", "--json"))
        assert "lossy" not in exact
        told = json.loads(printed(capsys, "stats", "causal", "--q-len", "256", "--lossy", "cover", "--json"))
        assert told["lossy"]["pairs_added"] == 2 * 128 * 127 // 2
        assert told["lossy"]["pairs"] == told["pairs"] + told["lossy"]["pairs_added"]
        told = json.loads(printed(capsys, "stats", "causal", "--q-len", "256", "--lossy", "strict", "--json"))
        assert told["lossy"]["rows_emptied"] == 128
        told = json.loads(printed(capsys, "stats", "causal", "--q-len", "256", "--lossy", "threshold=0.6", "--json"))
        assert told["lossy"]["tiles_full"] == 1

    @pytest.mark.parametrize("name", ["threshold", "threshold=x", "round"])
    def test_lossy_names_its_choices(self, name, capsys):
        assert "--lossy takes cover, strict or threshold=SHARE" in refused(
            capsys, "stats", "causal", "--q-len", "256", "--lossy", name
        )


class TestGenerate:
    @pytest.mark.parametrize("family", GENERATORS)
    def test_prints_a_pattern_that_parses(self, family, capsys):
        arguments = ("generate", family, "0.25", "--q-len", "4096", "--block", "64")
        text = printed(capsys, *arguments).splitlines()[0]
        told = json.loads(printed(capsys, *arguments, "--json"))
        assert told["pattern"] == text
        assert ps.lower(ps.parse(text), q_len=4096, block=64).tiles() == told["tiles"]

    def test_says_what_it_knows_and_what_can_not_be(self, capsys):
        assert "generate knows local_window" in refused(capsys, "generate", "windows", "0.1", "--q-len", "4096")
        assert "works at block 32" in refused(capsys, "generate", "local_window", "0.02", "--q-len", "4096")


class TestRead:
    def test_a_token_mask_and_a_block_mask(self, tmp_path, capsys):
        file = tmp_path / "mask.npy"
        np.save(file, ps.dense_mask(ps.parse("causal & (window(15, 0) | sink(2))"), ps.Problem(64))[0])
        assert printed(capsys, "read", str(file)) == "causal & (window(15, 0) | sink(2))"
        np.save(file, np.eye(4, dtype=bool))
        told = json.loads(printed(capsys, "read", str(file), "--block", "32", "--json"))
        assert told == {"pattern": "chunk(32)", "named": True, "heads": 1}

    @pytest.mark.parametrize("target", ["json", "npz", "safetensors"])
    def test_what_export_wrote(self, target, tmp_path, capsys):
        file = tmp_path / f"pattern.{target}"
        export = ("export", "causal & window(9, 0)", "--q-len", "64", "--block", "16", "--to", target)
        printed(capsys, *export, "--out", str(file))
        assert printed(capsys, "read", str(file)) == "causal & window(9, 0)"
        assert json.loads(printed(capsys, "read", str(file), "--json"))["block"] == [16, 16]

    def test_what_is_no_mask(self, tmp_path, capsys):
        file = tmp_path / "mask.npy"
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        assert "plain row-major numbers are read, never objects" in refused(capsys, "read", str(file))
        file.write_bytes(b"")
        assert "expected a mask as numpy.save" in refused(capsys, "read", str(file))
        file.write_bytes(b"\x93NUMPY\x01\x00")
        assert "no .npy array" in refused(capsys, "read", str(file))


class TestConventions:
    def test_a_config(self, tmp_path, capsys):
        file = tmp_path / "config.json"
        file.write_text('{"model_type": "mistral", "sliding_window": 4096, "num_hidden_layers": 2}')
        assert "sliding_window=4096 is causal & window(4095, 0)" in printed(
            capsys, "conventions", "--config", str(file)
        )
        arguments = ("conventions", "--config", str(file), "--pattern")
        assert printed(capsys, *arguments, "causal & window(4095, 0)").splitlines()[-1].startswith("ok")
        assert "counts the query itself" in printed(capsys, *arguments, "causal & window(4096, 0)", code=1)

    def test_flash(self, capsys):
        assert "is causal & window(3, 0)" in printed(capsys, "conventions", "--flash=3,7", "--causal")

    def test_bad_input(self, tmp_path, capsys):
        file = tmp_path / "config.json"
        file.write_text("{")
        assert "no JSON text" in refused(capsys, "conventions", "--config", str(file))
        file.write_text("[" * 100_000)
        assert "no JSON text" in refused(capsys, "conventions", "--config", str(file))
        assert "--flash takes left,right" in refused(capsys, "conventions", "--flash=3")
        assert "--causal belongs to --flash" in refused(capsys, "conventions", "--config", str(file), "--causal")


class TestExport:
    def test_one_head_for_a_target_that_has_one_pattern(self, tmp_path, capsys):
        text = "heads({0: causal, 1: causal & window(9, 0)})"
        arguments = ("export", text, "--q-len", "64", "--block", "16", "--heads", "2", "--to", "flashinfer_bsr")
        arguments += ("--out", str(tmp_path / "head.npz"))
        assert "export each head's pattern by itself" in refused(capsys, *arguments)
        assert "(exact)" in printed(capsys, *arguments, "--head", "1")
        layout = read(tmp_path / "head.npz")
        assert (layout.expand(0, 0, 64) == ps.dense_mask(ps.parse("causal & window(9, 0)"), ps.Problem(64))[0]).all()
        assert "expected --head from 0 to 1, the last of --heads, got 2" in refused(capsys, *arguments, "--head", "2")

    def test_inexact_only_when_allowed(self, tmp_path, capsys):
        arguments = ("export", "causal & window(9, 0)", "--q-len", "64", "--block", "16", "--to", "deepspeed")
        assert "allow" in refused(capsys, *arguments)
        file = tmp_path / "layout.py"
        assert "(cover(+" in printed(capsys, *arguments, "--allow", "cover", "--out", str(file))
