"""Attention that reads active keys only, against the dense float64 computation."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings

from pattern_studio.metrics.sparse_attention import sparse_attention
from pattern_studio.metrics.subject import subjects
from tests.metrics.captures import Brute, studies


@settings(max_examples=40, deadline=None)
@given(studies())
def test_equals_the_dense_computation(study):
    capture, pattern, block = study
    for subject in subjects(pattern, capture, block=block):
        layer = subject.layer
        q, k, v = (tensor.double() for tensor in (layer.q, layer.k, layer.v))
        with mock.patch("pattern_studio.metrics.sparse_attention.ROWS", 7):
            found = sparse_attention(subject.kept, q, k, v, capture.scale)
        expected = Brute(capture, subject.number, pattern, block).outputs[1]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
