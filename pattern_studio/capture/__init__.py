"""Captures: q, k and v of real models, to measure patterns against.

`record` and `smollm2` need transformers (the `models` extra), so they are imported from their own modules.
"""

from pattern_studio.capture.bundled import bundled, bundled_path
from pattern_studio.capture.capture import Capture
from pattern_studio.capture.gradients import LossGradients
from pattern_studio.capture.layer import LayerCapture
from pattern_studio.capture.minds import LayerMinds, Minds

__all__ = ["Capture", "LayerCapture", "LayerMinds", "LossGradients", "Minds", "bundled", "bundled_path"]
