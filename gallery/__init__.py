"""The gallery: named patterns with their pictures and figures, and runnable stories."""
