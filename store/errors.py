"""Why the store cannot do what it was asked. Each message names the file and what helps."""


class StoreError(Exception):
    """The store did not do it. After a failed commit nothing of its batch is stored."""


class StoreCorrupt(StoreError):
    """What lies on the disk is not what was written, or no store at all."""


class StoreInUse(StoreError):
    """Another process has the store open, or this one has it open twice."""


class StoreFull(StoreError):
    """No room: disk full, or quota reached. The same batch may be tried again when there is room."""


class StoreUnavailable(StoreError):
    """The file system refuses: I/O error, read-only, no permission, no such folder, closed."""


class StoreTooNew(StoreError):
    """A later version of Trunkline wrote the store."""
