"""The same pattern over many GPUs: sequence-sharded attention that fetches only the keys its rows read."""
