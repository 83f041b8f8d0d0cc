"""Token ids of chunks, kept so that a question need not tokenise them again."""

# ruff: noqa: S608 - only our own column names, conditions and question marks are put into statements

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from storage.catalog.base import TokenIds
from storage.catalog.section import Section, in_groups, marks


class Tokens(Section):
    """The part of the catalog that keeps token ids."""

    def token_ids(self, chunk_ids: Sequence[int], tokenizer: str) -> dict[int, TokenIds]:
        """The ids [tokens] int32 that are kept for these chunks; those of no ready document are left out."""
        kept: dict[int, TokenIds] = {}
        with self._connection.read() as sqlite:
            for group in in_groups(chunk_ids):
                rows = sqlite.execute(
                    "SELECT token_ids.chunk_id, token_ids.ids FROM token_ids JOIN chunks ON chunks.id = chunk_id"
                    " JOIN documents ON documents.id = chunks.document_id WHERE documents.state = 'ready'"
                    f" AND tokenizer = ? AND chunk_id IN ({marks(group)})",
                    (tokenizer, *group),
                )
                for chunk_id, ids in rows:
                    kept[chunk_id] = np.frombuffer(ids, dtype="<i4").astype(np.int32)
        return kept

    def keep_token_ids(
        self, tokenizer: str, ids_by_chunk: Mapping[int, npt.NDArray[np.integer] | Sequence[int]]
    ) -> None:
        """Keep the ids; a chunk that was deleted meanwhile is passed over. Raises StorageError above 32 bits."""
        with self._connection.write() as sqlite:
            sqlite.executemany(
                "INSERT INTO token_ids (chunk_id, tokenizer, ids) SELECT id, ?, ? FROM chunks WHERE id = ?"
                " ON CONFLICT (chunk_id, tokenizer) DO UPDATE SET ids = excluded.ids",
                [(tokenizer, _encoded(ids), chunk_id) for chunk_id, ids in ids_by_chunk.items()],
            )


def _encoded(ids: npt.NDArray[np.integer] | Sequence[int]) -> bytes:
    wide = np.asarray(ids, dtype=np.int64)
    narrow = wide.astype("<i4")
    if not np.array_equal(wide, narrow):
        raise OverflowError("a token id is above 32 bits")
    return narrow.tobytes()
