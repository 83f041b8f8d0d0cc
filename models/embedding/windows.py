"""Cutting a run of word pieces into windows that the model can read."""


def window_bounds(pieces: int, limit_pieces: int, overlap_pieces: int) -> list[tuple[int, int]]:
    """Spans `[start, end)` that cover `pieces` word pieces, each at most `limit_pieces` long.

    Neighbours share at least `overlap_pieces`, and all spans have the same length: a short last window would see its
    few words without their surroundings. An empty text has one empty span. `overlap_pieces < limit_pieces` is required.
    """
    if pieces <= limit_pieces:
        return [(0, pieces)]
    step_pieces = limit_pieces - overlap_pieces
    count = 1 + -(-(pieces - limit_pieces) // step_pieces)
    # Smallest common length for which `count` windows with this overlap still reach the end.
    length = -(-(pieces + (count - 1) * overlap_pieces) // count)
    last_start = pieces - length
    starts = [(last_start * index) // (count - 1) for index in range(count)]
    return [(start, start + length) for start in starts]
