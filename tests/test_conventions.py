"""Conventions: held against transformers' own masks, hand-drawn cases, and every slip by its words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from transformers import masking_utils

import pattern_studio as ps
from pattern_studio.conventions import check, read_config, read_flash
from pattern_studio.conventions.families import FAMILIES

N = 24


def dense(pattern: ps.Pattern, layer: int | None = None, n: int = N) -> np.ndarray:
    return ps.dense_mask(pattern, ps.Problem(n), layer=layer)[0]


def told(pattern: str, config: dict) -> str:
    findings = check(ps.parse(pattern), read_config({"num_hidden_layers": 1, **config})).findings
    assert len(findings) == 1
    assert not findings[0].matches
    return str(findings[0])


class TestAgainstTransformers:
    """Class defaults, layer types and masks of the installed version are the truth."""

    @pytest.mark.parametrize("model_type", FAMILIES)
    def test_defaults_and_layer_types(self, model_type):
        theirs = transformers.CONFIG_MAPPING[model_type](num_hidden_layers=13)
        ours = read_config({"model_type": model_type, "num_hidden_layers": 13})
        assert not ours.notes
        by_layer = {layer: meaning for meaning in ours.meanings for layer in meaning.layers}
        window, chunk = getattr(theirs, "sliding_window", None), getattr(theirs, "attention_chunk_size", None)
        uniform = "sliding_attention" if window is not None else "full_attention"
        for layer, kind in enumerate(getattr(theirs, "layer_types", None) or [uniform] * 13):
            setting = {"full_attention": "full_attention", "chunked_attention": f"attention_chunk_size={chunk}"}.get(
                kind, f"local_attention={2 * window}" if model_type == "modernbert" else f"sliding_window={window}"
            )
            assert by_layer[layer].setting == setting
        assert ours.meanings == read_config(theirs).meanings

    @pytest.mark.parametrize(
        ("model_type", "settings"),
        [
            ("mistral", {"sliding_window": 4}),
            ("mistral", {"sliding_window": 1}),
            ("mistral", {"sliding_window": None}),
            ("phi3", {"sliding_window": 7}),
            ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2}),
            ("qwen3", {"use_sliding_window": False, "sliding_window": 5, "max_window_layers": 0}),
            ("gemma2", {"sliding_window": 6}),
            ("gemma3_text", {"sliding_window": 6, "sliding_window_pattern": 3}),
            ("llama4_text", {"attention_chunk_size": 5}),
            ("llama4_text", {"attention_chunk_size": 5, "no_rope_layers": [0, 1, 1, 0]}),
            ("smollm3", {"use_sliding_window": True, "sliding_window": 3, "no_rope_layer_interval": 2}),
            ("modernbert", {"local_attention": 8}),
            ("modernbert", {"local_attention": 7, "global_attn_every_n_layers": 2}),
        ],
    )
    def test_masks(self, model_type, settings):
        config = transformers.CONFIG_MAPPING[model_type](num_hidden_layers=4, **settings)
        config._attn_implementation = "eager"
        asked = {"config": config, "inputs_embeds": torch.zeros(1, N, 8), "attention_mask": torch.ones(1, N)}
        if model_type == "modernbert":
            full = masking_utils.create_bidirectional_mask(**asked)
            masks = {
                "full_attention": torch.zeros(1, 1, N, N) if full is None else full,
                "sliding_attention": masking_utils.create_bidirectional_sliding_window_mask(**asked),
            }
        else:
            masks = masking_utils.create_masks_for_generate(**asked, cache=None, position_ids=None)
        kinds = getattr(config, "layer_types", None) or ["all"] * 4
        pattern = read_config({"model_type": model_type, "num_hidden_layers": 4, **settings}).pattern
        for layer in range(4):
            theirs = masks[kinds[layer]] if isinstance(masks, dict) else masks
            assert theirs is not None
            np.testing.assert_array_equal(dense(pattern, layer), (theirs[0, 0] == 0).numpy())

    def test_gemma3_both_ways_halves_its_window(self):
        settings = {"use_bidirectional_attention": True, "sliding_window": 10, "sliding_window_pattern": 2}
        config = transformers.CONFIG_MAPPING["gemma3_text"](num_hidden_layers=2, **settings)
        i, j = np.indices((N, N))
        ours = read_config({"model_type": "gemma3_text", "num_hidden_layers": 2, **settings})
        # The model's overlay is |i - j| < config.sliding_window, with the value that the class has halved.
        np.testing.assert_array_equal(dense(ours.pattern, 0), abs(i - j) < config.sliding_window)
        assert dense(ours.pattern, 1).all()
        assert ours.pattern == read_config(config).pattern


class TestA1TheSameWindowInTwoBackends:
    """transformers#29623, #39408."""

    def test_counts(self):
        pattern = read_config({"sliding_window": 4, "num_hidden_layers": 1, "model_type": "mistral"}).pattern
        assert str(pattern) == "causal & window(3, 0)"
        assert dense(pattern, n=8).sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4]
        assert pattern == read_flash(3, 0, causal=True).pattern

    def test_the_slip_has_a_name(self):
        config = {"model_type": "mistral", "sliding_window": 4096}
        found = told("causal & window(4096, 0)", config)
        assert found == (
            "differs: layer 0: W in Hugging Face counts the query itself: window(W - 1, 0); this keeps 4097 keys"
        )
        assert "this keeps 4095 keys" in told("causal & window(4094, 0)", config)
        assert "causal is missing" in told("window(4095, 4095)", config)
        assert "a sliding window moves with the query" in told("causal & chunk(4096)", config)
        assert "this has no window" in told("causal", config)
        assert "lacks pairs of causal & window(4095, 0) (sliding_window=4096): query 13 has key 0 missing" in told(
            "causal & window(12, 0)", config
        )

    def test_what_matches_may_be_written_another_way(self):
        ours = ps.parse("window(9, 9) - ~causal - (window(9, 9) - window(3, 3))")
        checkup = check(ours, read_config({"model_type": "mistral", "sliding_window": 4, "num_hidden_layers": 1}))
        assert checkup.matches
        assert str(checkup).endswith("\n\nok: layer 0: this is causal & window(3, 0) (sliding_window=4)")


def test_chunks_and_both_sides():
    config = {"model_type": "llama4_text", "attention_chunk_size": 64}
    assert "a chunk has 64 keys; this has one more" in told("causal & chunk(65)", config)
    assert "chunks have fixed borders" in told("causal & window(63, 0)", config)
    assert "looks ahead inside a chunk" in told("chunk(64)", config)
    config = {"model_type": "modernbert", "layer_types": ["sliding_attention"]}
    assert "local_attention counts both sides: 64 keys on each" in told("window(128, 128)", config)
    assert "the reach is 64 keys on each side, the last one included" in told("window(63, 63)", config)
    assert "this is causal: the model attends both ways" in told("causal & window(64, 0)", config)


def test_layers_are_checked_one_by_one():
    config = {"model_type": "gemma3_text", "sliding_window": 8, "num_hidden_layers": 8}
    convention = read_config(config)
    assert str(convention.pattern) == (
        "layers({range(0, 5): causal & window(7, 0), range(6, 8): causal & window(7, 0), 5: causal})"
    )
    assert check(convention.pattern, convention).matches
    ours = ps.parse("layers({0:5: causal & window(7, 0), 5: causal, 6: causal & window(8, 0), 7: causal})")
    found = [(finding.layers, finding.matches) for finding in check(ours, convention).findings]
    assert found == [((0, 1, 2, 3, 4), True), ((6,), False), ((7,), False), ((5,), True)]
    with pytest.raises(ps.StudioError, match=r"layer 6 has no pattern in layers\(\); it has range\(0, 5\)"):
        check(ps.parse("layers({0:5: causal})"), convention)


def test_alternating_layers_are_one_stepped_range():
    config = {"model_type": "gpt_oss", "num_hidden_layers": 6}
    convention = read_config(config)
    assert str(convention.pattern) == ("layers({range(0, 5, 2): causal & window(127, 0), range(1, 6, 2): causal})")
    assert str(convention.meanings[1]).startswith("layers 1-5 in steps of 2: full_attention is causal")


def test_every_head_is_held_against_it():
    config = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 3}
    checkup = check(ps.parse("heads({0:2: causal, 2: dense})"), read_config(config))
    assert not checkup.matches
    assert checkup.findings[0].sentence == (
        "this keeps more pairs than causal (full_attention): query 0 has key 1 kept"
    )


def test_composite_models_are_read_by_their_text_part():
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 1}}
    assert read_config(config).meanings[0].setting == "sliding_window=4096"


def test_what_is_not_known_is_said():
    unknown = read_config({"model_type": "zebra", "sliding_window": 4, "num_hidden_layers": 2})
    assert unknown.notes[0].startswith("model_type 'zebra' is not among llama, mistral")
    assert str(unknown.pattern) == "causal & window(3, 0)"
    mixed = read_config({"model_type": "llama", "layer_types": ["linear_attention", "full_attention"]})
    assert mixed.notes == ("layer 0: linear_attention has no mask that a pattern could be held against",)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("mistral", "takes a config as a dict, got str; json.load the file"),
        ({"model_type": "mistral"}, "neither num_hidden_layers nor layer_types; add num_hidden_layers"),
        ({"model_type": "mistral", "num_hidden_layers": 0}, "num_hidden_layers must lie between 1 and"),
        ({"model_type": "mistral", "num_hidden_layers": 1, "sliding_window": 0}, "sliding_window must lie between 1"),
        (
            {"model_type": "llama", "num_hidden_layers": 2, "layer_types": ["full_attention"]},
            "layer_types names 1 layers, fewer than num_hidden_layers 2; correct one",
        ),
        ({"layer_types": ["sliding_attention"]}, "the config has sliding_attention layers and no sliding_window"),
        ({"layer_types": ["conv"]}, r"no layer of this config attends under a mask: its layer types are \['conv'\]"),
    ],
)
def test_a_config_that_does_not_say_enough(config, message):
    with pytest.raises(ps.StudioError, match=message):
        read_config(config)


class TestFlash:
    def test_both_ends_count_from_the_query(self):
        """FlashAttention-2: keys from i - left to i + right, both included; -1 is open."""
        i, j = np.indices((N, N))
        for left in (-1, 0, 3):
            for right in (-1, 0, 2):
                want = ((j >= i - left) | (left < 0)) & ((j <= i + right) | (right < 0))
                np.testing.assert_array_equal(dense(read_flash(left, right).pattern), want)
                np.testing.assert_array_equal(
                    dense(read_flash(left, right, True).pattern),
                    want & (j <= i) | (((j >= i - left) | (left < 0)) & (j <= i)),
                )

    def test_texts(self):
        assert str(read_flash(-1, -1).pattern) == "dense"
        assert str(read_flash(-1, -1, causal=True).pattern) == "causal"
        assert str(read_flash(5, -1).pattern) == "~causal | window(5, 0)"
        assert str(read_flash(-1, 2).pattern) == "causal | window(0, 2)"
        assert read_flash(5, 5, causal=True).notes == (
            "causal=True sets right to 0; the 5 that was given has no effect",
        )

    def test_slips(self):
        def said(pattern: str, *pair) -> str:
            return check(ps.parse(pattern), read_flash(*pair)).findings[0].sentence

        assert "flash's left does not count the query itself: left=4 is window(4, ...)" in said("window(3, 0)", 4, 0)
        assert "this sees 5" in said("window(5, 0)", 4, 0)
        assert "this looks ahead" in said("window(4, 4)", 4, 0, True)
        assert "right=4 without causal=True does" in said("window(4, 0)", 4, 4)
        assert check(ps.parse("window(4, 0)"), read_flash(4, 9, True)).matches

    def test_bad_pairs(self):
        with pytest.raises(ps.StudioError, match="flash's left must lie between -1 and"):
            read_flash(-2, 0)
        with pytest.raises(ps.StudioError, match="flash's causal must be True or False, got 1"):
            read_flash(3, 0, 1)  # type: ignore[arg-type]


def test_a_problem_of_ones_own_and_what_is_no_pattern():
    convention = read_flash(4, 0)
    assert check(ps.causal, convention, ps.Problem(5)).matches
    assert not check(ps.causal, convention, ps.Problem(6)).matches
    with pytest.raises(ps.StudioError, match="takes a Pattern, got str; read text with parse"):
        check("causal", convention)  # type: ignore[arg-type]
