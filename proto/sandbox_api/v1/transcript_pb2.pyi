import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandbox_api.v1 import payload_pb2 as _payload_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LockSign(_message.Message):
    __slots__ = ("directory", "pattern", "contains")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    directory: bytes
    pattern: str
    contains: bytes
    def __init__(self, directory: _Optional[bytes] = ..., pattern: _Optional[str] = ..., contains: _Optional[bytes] = ...) -> None: ...

class TranscriptRestoreRequest(_message.Message):
    __slots__ = ("header", "chunk", "trailer", "file", "commit")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    header: TranscriptRestoreHeader
    chunk: _payload_pb2.Chunk
    trailer: _payload_pb2.Trailer
    file: TranscriptFile
    commit: TranscriptCommit
    def __init__(self, header: _Optional[_Union[TranscriptRestoreHeader, _Mapping]] = ..., chunk: _Optional[_Union[_payload_pb2.Chunk, _Mapping]] = ..., trailer: _Optional[_Union[_payload_pb2.Trailer, _Mapping]] = ..., file: _Optional[_Union[TranscriptFile, _Mapping]] = ..., commit: _Optional[_Union[TranscriptCommit, _Mapping]] = ...) -> None: ...

class TranscriptRestoreHeader(_message.Message):
    __slots__ = ("home", "format", "id", "durability", "owner", "force", "locks", "expected_bytes", "restore_id")
    HOME_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    format: str
    id: str
    durability: _payload_pb2.Durability
    owner: _payload_pb2.Owner
    force: bool
    locks: _containers.RepeatedCompositeFieldContainer[LockSign]
    expected_bytes: int
    restore_id: str
    def __init__(self, home: _Optional[bytes] = ..., format: _Optional[str] = ..., id: _Optional[str] = ..., durability: _Optional[_Union[_payload_pb2.Durability, str]] = ..., owner: _Optional[_Union[_payload_pb2.Owner, _Mapping]] = ..., force: _Optional[bool] = ..., locks: _Optional[_Iterable[_Union[LockSign, _Mapping]]] = ..., expected_bytes: _Optional[int] = ..., restore_id: _Optional[str] = ...) -> None: ...

class TranscriptStagedRequest(_message.Message):
    __slots__ = ("home", "format", "id", "restore_id")
    HOME_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    format: str
    id: str
    restore_id: str
    def __init__(self, home: _Optional[bytes] = ..., format: _Optional[str] = ..., id: _Optional[str] = ..., restore_id: _Optional[str] = ...) -> None: ...

class TranscriptStagedFile(_message.Message):
    __slots__ = ("path", "size", "sha256")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    size: int
    sha256: bytes
    def __init__(self, path: _Optional[bytes] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class TranscriptFile(_message.Message):
    __slots__ = ("path", "mode", "append_lines", "from_offset", "prefix_sha256", "placed_last")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    APPEND_LINES_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PREFIX_SHA256_FIELD_NUMBER: _ClassVar[int]
    PLACED_LAST_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    mode: int
    append_lines: bool
    from_offset: int
    prefix_sha256: bytes
    placed_last: bool
    def __init__(self, path: _Optional[bytes] = ..., mode: _Optional[int] = ..., append_lines: _Optional[bool] = ..., from_offset: _Optional[int] = ..., prefix_sha256: _Optional[bytes] = ..., placed_last: _Optional[bool] = ...) -> None: ...

class TranscriptCommit(_message.Message):
    __slots__ = ("files_count", "bytes_count")
    FILES_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_COUNT_FIELD_NUMBER: _ClassVar[int]
    files_count: int
    bytes_count: int
    def __init__(self, files_count: _Optional[int] = ..., bytes_count: _Optional[int] = ...) -> None: ...

class TranscriptRestoreResponse(_message.Message):
    __slots__ = ("unchanged", "recovery", "replaced", "added")
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    unchanged: bool
    recovery: str
    replaced: _containers.RepeatedScalarFieldContainer[bytes]
    added: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, unchanged: _Optional[bool] = ..., recovery: _Optional[str] = ..., replaced: _Optional[_Iterable[bytes]] = ..., added: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("home", "held", "patterns", "interval_milliseconds")
    HOME_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    held: _containers.RepeatedCompositeFieldContainer[FollowedHeld]
    patterns: _containers.RepeatedCompositeFieldContainer[FollowedPattern]
    interval_milliseconds: int
    def __init__(self, home: _Optional[bytes] = ..., held: _Optional[_Iterable[_Union[FollowedHeld, _Mapping]]] = ..., patterns: _Optional[_Iterable[_Union[FollowedPattern, _Mapping]]] = ..., interval_milliseconds: _Optional[int] = ...) -> None: ...

class FollowedHeld(_message.Message):
    __slots__ = ("path", "size", "sha256", "prefix_sizes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    PREFIX_SIZES_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    size: int
    sha256: bytes
    prefix_sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, path: _Optional[bytes] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ..., prefix_sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class FollowedPattern(_message.Message):
    __slots__ = ("directory", "pattern", "whole_lines")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    WHOLE_LINES_FIELD_NUMBER: _ClassVar[int]
    directory: bytes
    pattern: str
    whole_lines: bool
    def __init__(self, directory: _Optional[bytes] = ..., pattern: _Optional[str] = ..., whole_lines: _Optional[bool] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("begin", "data", "mark", "beat")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    begin: FollowBegin
    data: FollowData
    mark: FollowMark
    beat: FollowBeat
    def __init__(self, begin: _Optional[_Union[FollowBegin, _Mapping]] = ..., data: _Optional[_Union[FollowData, _Mapping]] = ..., mark: _Optional[_Union[FollowMark, _Mapping]] = ..., beat: _Optional[_Union[FollowBeat, _Mapping]] = ...) -> None: ...

class FollowBegin(_message.Message):
    __slots__ = ("number", "path", "offset")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    number: int
    path: bytes
    offset: int
    def __init__(self, number: _Optional[int] = ..., path: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class FollowData(_message.Message):
    __slots__ = ("number", "offset", "data", "mark_sha256")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MARK_SHA256_FIELD_NUMBER: _ClassVar[int]
    number: int
    offset: int
    data: bytes
    mark_sha256: bytes
    def __init__(self, number: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., mark_sha256: _Optional[bytes] = ...) -> None: ...

class FollowMark(_message.Message):
    __slots__ = ("number", "size", "sha256")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    number: int
    size: int
    sha256: bytes
    def __init__(self, number: _Optional[int] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class FollowBeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FindHoldersRequest(_message.Message):
    __slots__ = ("home", "locks")
    HOME_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    locks: _containers.RepeatedCompositeFieldContainer[LockSign]
    def __init__(self, home: _Optional[bytes] = ..., locks: _Optional[_Iterable[_Union[LockSign, _Mapping]]] = ...) -> None: ...

class FindHoldersResponse(_message.Message):
    __slots__ = ("holders",)
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    holders: _containers.RepeatedCompositeFieldContainer[Holder]
    def __init__(self, holders: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("path", "pid")
    PATH_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    pid: int
    def __init__(self, path: _Optional[bytes] = ..., pid: _Optional[int] = ...) -> None: ...

class TranscriptRecoveryRequest(_message.Message):
    __slots__ = ("home", "format", "id")
    HOME_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    format: str
    id: str
    def __init__(self, home: _Optional[bytes] = ..., format: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class TranscriptRecoveryEntry(_message.Message):
    __slots__ = ("name", "id", "set_aside", "files", "files_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILES_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    set_aside: _timestamp_pb2.Timestamp
    files: _containers.RepeatedScalarFieldContainer[bytes]
    files_count: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., set_aside: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., files: _Optional[_Iterable[bytes]] = ..., files_count: _Optional[int] = ...) -> None: ...

class TranscriptUndoRequest(_message.Message):
    __slots__ = ("home", "format", "id", "name", "force", "locks")
    HOME_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    format: str
    id: str
    name: str
    force: bool
    locks: _containers.RepeatedCompositeFieldContainer[LockSign]
    def __init__(self, home: _Optional[bytes] = ..., format: _Optional[str] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., force: _Optional[bool] = ..., locks: _Optional[_Iterable[_Union[LockSign, _Mapping]]] = ...) -> None: ...

class TranscriptUndoResponse(_message.Message):
    __slots__ = ("recovery", "restored", "removed")
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    recovery: str
    restored: _containers.RepeatedScalarFieldContainer[bytes]
    removed: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, recovery: _Optional[str] = ..., restored: _Optional[_Iterable[bytes]] = ..., removed: _Optional[_Iterable[bytes]] = ...) -> None: ...

class TranscriptPruneRequest(_message.Message):
    __slots__ = ("home", "format", "id", "keep_count", "older_than_seconds")
    HOME_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    format: str
    id: str
    keep_count: int
    older_than_seconds: int
    def __init__(self, home: _Optional[bytes] = ..., format: _Optional[str] = ..., id: _Optional[str] = ..., keep_count: _Optional[int] = ..., older_than_seconds: _Optional[int] = ...) -> None: ...

class TranscriptPruneResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, removed: _Optional[_Iterable[str]] = ...) -> None: ...
