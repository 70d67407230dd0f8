"""The registry, export, check and read: names, fidelities, refusals, and what is told of them."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import pattern_studio as ps
from pattern_studio import exporters
from pattern_studio.cli import main
from pattern_studio.exporters import TARGETS, Fidelity, check, doctor, export, read, read_design, targets
from tests.exporters.native import SAMPLE, sample

FOLDER = Path(exporters.__file__).parent
NAMES = [
    "flex_attention",
    "flex_mask_mod",
    "flash_attention_4",
    "deepspeed",
    "xformers",
    "huggingface",
    "minference",
    "vertical_slash",
    "natten",
    "flashinfer_bsr",
    "flashinfer_variable",
    "block_sparse_attention",
    "spargeattn",
    "magi_attention",
    "json",
    "npz",
    "safetensors",
]


def test_every_target_is_listed_with_its_file():
    assert targets() == NAMES
    files = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")}
    assert files == {*NAMES, "doctor"}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(NAMES) <= tests
    for name, target in TARGETS.items():
        assert target.name == name
        assert target.suffix.startswith(".")
        assert target.about
        assert any(character.isdigit() for character in target.consumer), "the version that was read"


CONSUMERS = {"flex_attention": "torch", "flex_mask_mod": "torch", "huggingface": "transformers"}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_target_says_of_its_proof_is_so(name):
    """What is run is imported by the target's own test, or has a test of its own name among those for a GPU."""
    proof, folder = TARGETS[name].proof, Path(__file__).parent
    gpu = (folder / "test_gpu_consumers.py").read_text()
    assert (proof == "gpu") == (f"def test_{name}(" in gpu and name not in CONSUMERS)
    if proof == "run" and name not in ("json", "npz", "safetensors"):  # whose consumer is our own reader
        tree = ast.parse((folder / f"test_{name}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert any((module or "").split(".")[0] == CONSUMERS[name] for module in imported)


def test_the_command_lists_every_target_with_its_proof(capsys):
    assert main(["targets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[: len(NAMES)]] == [[name, TARGETS[name].proof] for name in NAMES]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_siblings_do_not_import_each_other(path):
    if path.stem in ("__init__", "_registry"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            assert (node.module or "").startswith("_"), f"{path.name} imports its sibling {node.module}"


def test_importing_exporters_does_not_import_torch():
    import subprocess
    import sys

    code = "import sys, pattern_studio.exporters; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=FOLDER.parents[1]).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_files_have_their_kind(name):
    pattern, problem = ps.causal & ps.window(127, 0), ps.Problem(256)
    file = export(pattern, problem, 128, to=name, allow="cover")
    assert (file.target, file.suffix, file.media_type) == (name, TARGETS[name].suffix, TARGETS[name].media_type)
    assert isinstance(file.content, bytes if file.suffix in (".npz", ".safetensors") else str)
    assert file.data == (file.content if isinstance(file.content, bytes) else file.content.encode())
    if file.suffix == ".py":
        tree = compile(file.content, name, "exec", ast.PyCF_ONLY_AST)
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not {(module or "").split(".")[0] for module in imported} & {"pattern_studio", "attention_core"}
    assert export(pattern, problem, 128, to=name, allow="cover").data == file.data, "equal input gives equal bytes"


@pytest.mark.parametrize("name", NAMES)
def test_heads_that_differ_are_held_or_refused_and_split(name):
    pattern = ps.parse("heads({0: causal & window(6, 0), 1: causal & window(20, 0), 2: causal & window(6, 0)})")
    problem = ps.Problem(128, heads=3)
    fidelity = check(pattern, problem, 128, to=name)
    if name in ("natten", "flashinfer_bsr", "magi_attention"):  # one pattern for all heads
        assert "one pattern for all heads, and this one has 2: export each head's pattern" in fidelity.reason
        with pytest.raises(ps.StudioError, match="one pattern for all heads"):
            export(pattern, problem, 128, to=name, allow="cover")
        found = doctor(pattern, problem, 128, name)
        assert [case.heads for case in found.cases] == [(0, 2), (1,)]
        assert [file.fidelity.kind for file in found.export()] == ["exact", "exact"]
    else:
        assert fidelity.kind in ("exact", "cover")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("problem", [ps.Problem(0), ps.Problem(0, 5), ps.Problem(5, 0)])
def test_no_tokens_are_refused_or_written(name, problem):
    fidelity = check(ps.causal, problem, to=name)
    if name in ("json", "npz", "safetensors"):
        assert read_design(export(ps.causal, problem, to=name).data).problem == problem
    else:
        assert fidelity.kind == "unsupported"


def test_fidelities_read_as_they_are_named():
    shown = [Fidelity("exact"), Fidelity("cover", 240), Fidelity("lossy", 7), Fidelity("unsupported", reason="no way")]
    assert [str(f) for f in shown] == ["exact", "cover(+240)", "lossy(-7)", "unsupported(no way)"]


def test_only_what_is_asked_for_is_covered():
    with pytest.raises(ps.StudioError, match="adds 16,256 pairs; take another target or ask for it by name"):
        export(ps.causal, ps.Problem(256), to="deepspeed", allow="lossy")
    assert export(ps.causal, ps.Problem(256), to="deepspeed", allow=("cover", "lossy")).fidelity.pairs == 16256
    with pytest.raises(ps.StudioError, match="allow takes 'cover' or 'lossy', got 'everything'"):
        export(ps.causal, ps.Problem(256), allow="everything")


def test_unknown_names_are_answered():
    with pytest.raises(ps.StudioError, match=r"unknown target 'flex_atention'; did you mean 'flex_attention'\?"):
        export(ps.causal, ps.Problem(8), to="flex_atention")
    with pytest.raises(ps.StudioError, match="unknown target 'pdf'; the targets are flex_attention, flex_mask_mod"):
        check(ps.causal, ps.Problem(8), to="pdf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("causal", ps.Problem(8)), "export takes a Pattern, got str; read text with parse"),
        ((ps.causal, 8), "export takes a Problem, got int; write Problem"),
        ((ps.causal, ps.Problem(8), 0), "block_q must lie between 1 and 65536, got 0"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ps.StudioError, match=message):
        export(*arguments)


def test_read_tells_formats_apart():
    layout = ps.lower(SAMPLE[0], SAMPLE[1], block=SAMPLE[2])
    assert read(sample("json")) == SAMPLE[0]
    assert read(sample("npz")) == read(sample("safetensors")) == layout
    file = export(ps.chunk(128), ps.Problem(256), to="deepspeed")
    assert isinstance(read(file.data), ps.Pattern)
    with pytest.raises(ps.StudioError, match="a deepspeed file holds no pattern text"):
        read_design(file.data)


def test_a_safetensors_header_as_long_as_zip_files_begin():
    """A header of 0x4B50 bytes makes the file begin with "PK"."""
    data = sample("safetensors")
    size = int.from_bytes(data[:8], "little")
    longer = b"PK" + bytes(6) + data[8 : 8 + size].ljust(0x4B50) + data[8 + size :]
    assert read(longer) == read(data)


def test_pipes_are_read_and_what_has_no_end_is_not(monkeypatch):
    """Both say that they have 0 bytes."""
    data = sample("npz")
    end, begin = os.pipe()
    with os.fdopen(begin, "wb") as file:
        file.write(data)  # less than a pipe holds
    assert read(f"/dev/fd/{end}") == read(data)
    os.close(end)
    monkeypatch.setattr("pattern_studio.exporters.MAX_BYTES", 1000)
    with pytest.raises(ps.StudioError, match="at most 1,000 bytes, got one without an end"):
        read("/dev/zero")


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.read])
def test_readable_targets_read_their_own_files(name):
    pattern, problem = ps.causal & ps.window(127, 0), ps.Problem(256)
    found = read(export(pattern, problem, 128, to=name, allow="cover").data)
    assert isinstance(found, (ps.Pattern, ps.BlockLayout))
