"""What the storage floor raises. Every message is one line that names the thing and the mend."""


class StorageError(Exception):
    """Base of all storage errors."""


class BlockDamaged(StorageError):
    """A block file is missing, torn, flipped or not what its key promises; the block is a miss."""


class BlockRefused(StorageError):
    """A tensor cannot be encoded (wrong shape, empty, not finite)."""


class CatalogDamaged(StorageError):
    """The catalog is not a readable database of this application."""


class HomeRefused(StorageError):
    """The folder named as data folder holds something else; nothing in it was touched."""


class FilesStay(StorageError):
    """Something is out of use for good, but files of it could not be removed; they are named, and tried again."""


class HomeBusy(StorageError):
    """Another process is writing to this data folder."""


class DiskFull(StorageError):
    """The file system has no room; nothing stored was changed."""


class UnknownRow(StorageError):
    """The catalog holds no such collection, document or block."""


class EmbeddingMismatch(StorageError):
    """A collection was begun with another embedding model."""
