"""Helper functions that generated masks bring along: the text of each, by name, in the order in which they stand."""

from __future__ import annotations

HELPERS = {
    "_flags": '''def _flags(length, spans):
    """bool [length]: True inside the half-open spans."""
    flags = torch.zeros(length, dtype=torch.bool)
    for start, stop in spans:
        flags[start:stop] = True
    return flags
''',
    "_documents": '''def _documents(length, first, outside):
    """int64 [length]: the document of the positions from `first` on, `outside` where there is none."""
    position = torch.arange(length) + first
    document = torch.searchsorted(torch.tensor(DOC_ENDS), position, right=True)
    return torch.where((position >= 0) & (document < len(DOC_ENDS)), document, outside)
''',
    "_document_starts": '''def _document_starts(length, first):
    """int64 [length]: where the document of each position from `first` on starts, 0 outside all."""
    starts = torch.tensor((0, *DOC_ENDS[:-1], 0))
    return starts[_documents(length, first, -1)]
''',
    "_blocks": '''def _blocks(rows, columns, margin):
    """bool [blocks of queries, blocks of keys]: True for the listed spans, inside a margin of False."""
    table = torch.zeros(len(rows) + 2 * margin, columns + 2 * margin, dtype=torch.bool)
    for row, spans in enumerate(rows):
        for start, stop in spans:
            table[row + margin, start + margin : stop + margin] = True
    return table
''',
    "_tile_codes": '''def _tile_codes(groups):
    """int32 [groups, query blocks, key blocks]: 0 for a skipped tile, 1 for a full one, else its code."""
    codes = torch.zeros(len(groups), -(-Q_LEN // BLOCK_Q), -(-KV_LEN // BLOCK_K), dtype=torch.int32)
    for group, strokes in zip(codes, groups):
        for row, rows, start, step, length, growth, code in strokes:
            for n in range(rows):
                first = start + n * step
                group[row + n, first : first + length + n * growth] = code
    return codes
''',
    "_bit_masks": '''def _bit_masks(text):
    """bool [masks, BLOCK_Q, BLOCK_K]: first the mask that allows all, then those of the text."""
    packed = torch.frombuffer(bytearray(zlib.decompress(base64.b85decode("".join(text)))), dtype=torch.uint8)
    bits = (packed[:, None] >> torch.arange(8)) & 1
    masks = bits.reshape(-1, -(-BLOCK_Q * BLOCK_K // 8) * 8)[:, : BLOCK_Q * BLOCK_K]
    masks = masks.reshape(-1, BLOCK_Q, BLOCK_K).bool()
    return torch.cat([torch.ones(1, BLOCK_Q, BLOCK_K, dtype=torch.bool), masks])
''',
    "_tile_lists": '''def _tile_lists(tiles, device):
    """Number [1, heads, query blocks] and indices [1, heads, query blocks, key blocks] of the tiles, int32."""
    indices = tiles.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1, dtype=torch.int32)[None].to(device), indices.to(torch.int32)[None].to(device)
''',
}
