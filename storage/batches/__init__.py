"""Record batches in buffers: walk, validate, recompress."""
