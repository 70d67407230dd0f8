"""Which metric predicts what a pattern costs a real model? Run `python -m benchmarks.predictors`."""
