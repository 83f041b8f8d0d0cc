"""Questions about certain documents: their best passages have half of the places for themselves.

The other half goes to the usual ranking over the whole collection, so that an attached contract can be compared with
the rules in the library. All hits keep the scores of the usual ranking.
"""

from collections.abc import Collection, Sequence

from appliance.errors import UnknownDocument
from appliance.retrieval.base import Hit, SearchableCatalog


def chunks_of_documents(catalog: SearchableCatalog, collection_id: int, documents: Sequence[str]) -> list[int]:
    """The ids of all chunks of these documents. Raises UnknownDocument for one that this collection does not have."""
    chunk_ids: list[int] = []
    for document_id in dict.fromkeys(documents):
        own = catalog.chunk_ids_of(collection_id, document_id)
        if not own:
            raise UnknownDocument(
                f"the collection holds no document {document_id[:80]!r} to ask about: attach it again, or ask without"
            )
        chunk_ids += own
    return chunk_ids


def with_attached(hits: Sequence[Hit], attached: Collection[int], top_k: int) -> list[Hit]:
    """At most `top_k` of `hits`, best first, each once; `hits` are best first and hold every attached chunk.

    At least ceil(top_k / 2) of them are attached chunks, or all of these where there are fewer.
    """
    forced = {hit.chunk_id for hit in [hit for hit in hits if hit.chunk_id in attached][: -(-top_k // 2)]}
    others = {hit.chunk_id for hit in [hit for hit in hits if hit.chunk_id not in forced][: top_k - len(forced)]}
    return [hit for hit in hits if hit.chunk_id in forced | others]
