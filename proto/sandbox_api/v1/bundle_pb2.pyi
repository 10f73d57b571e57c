import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandbox_api.v1 import payload_pb2 as _payload_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_POLICY_UNSPECIFIED: _ClassVar[LinkPolicy]
    LINK_POLICY_REFUSE: _ClassVar[LinkPolicy]
    LINK_POLICY_SKIP: _ClassVar[LinkPolicy]
LINK_POLICY_UNSPECIFIED: LinkPolicy
LINK_POLICY_REFUSE: LinkPolicy
LINK_POLICY_SKIP: LinkPolicy

class Pattern(_message.Message):
    __slots__ = ("source", "ignore_case", "multi_line", "dot_all", "verbose", "ascii")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    MULTI_LINE_FIELD_NUMBER: _ClassVar[int]
    DOT_ALL_FIELD_NUMBER: _ClassVar[int]
    VERBOSE_FIELD_NUMBER: _ClassVar[int]
    ASCII_FIELD_NUMBER: _ClassVar[int]
    source: str
    ignore_case: bool
    multi_line: bool
    dot_all: bool
    verbose: bool
    ascii: bool
    def __init__(self, source: _Optional[str] = ..., ignore_case: _Optional[bool] = ..., multi_line: _Optional[bool] = ..., dot_all: _Optional[bool] = ..., verbose: _Optional[bool] = ..., ascii: _Optional[bool] = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("format", "root_variable", "root_directory", "sessions", "buckets", "include", "exclude", "required", "relocated", "validate", "bucket", "relocate", "lock")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ROOT_VARIABLE_FIELD_NUMBER: _ClassVar[int]
    ROOT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    RELOCATED_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    RELOCATE_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    format: str
    root_variable: str
    root_directory: str
    sessions: str
    buckets: bool
    include: Pattern
    exclude: Pattern
    required: _containers.RepeatedScalarFieldContainer[str]
    relocated: _containers.RepeatedScalarFieldContainer[str]
    validate: str
    bucket: str
    relocate: str
    lock: Pattern
    def __init__(self, format: _Optional[str] = ..., root_variable: _Optional[str] = ..., root_directory: _Optional[str] = ..., sessions: _Optional[str] = ..., buckets: _Optional[bool] = ..., include: _Optional[_Union[Pattern, _Mapping]] = ..., exclude: _Optional[_Union[Pattern, _Mapping]] = ..., required: _Optional[_Iterable[str]] = ..., relocated: _Optional[_Iterable[str]] = ..., validate: _Optional[str] = ..., bucket: _Optional[str] = ..., relocate: _Optional[str] = ..., lock: _Optional[_Union[Pattern, _Mapping]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("profile", "id", "variables", "follow_root_link")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_ROOT_LINK_FIELD_NUMBER: _ClassVar[int]
    profile: Profile
    id: str
    variables: _containers.ScalarMap[str, str]
    follow_root_link: bool
    def __init__(self, profile: _Optional[_Union[Profile, _Mapping]] = ..., id: _Optional[str] = ..., variables: _Optional[_Mapping[str, str]] = ..., follow_root_link: _Optional[bool] = ...) -> None: ...

class BundleLimits(_message.Message):
    __slots__ = ("max_bytes", "max_files")
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_FILES_FIELD_NUMBER: _ClassVar[int]
    max_bytes: int
    max_files: int
    def __init__(self, max_bytes: _Optional[int] = ..., max_files: _Optional[int] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("profile", "variables", "follow_root_link")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_ROOT_LINK_FIELD_NUMBER: _ClassVar[int]
    profile: Profile
    variables: _containers.ScalarMap[str, str]
    follow_root_link: bool
    def __init__(self, profile: _Optional[_Union[Profile, _Mapping]] = ..., variables: _Optional[_Mapping[str, str]] = ..., follow_root_link: _Optional[bool] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("id", "path", "modified", "complete", "in_use_pid")
    ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    IN_USE_PID_FIELD_NUMBER: _ClassVar[int]
    id: str
    path: bytes
    modified: _timestamp_pb2.Timestamp
    complete: bool
    in_use_pid: int
    def __init__(self, id: _Optional[str] = ..., path: _Optional[bytes] = ..., modified: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., complete: _Optional[bool] = ..., in_use_pid: _Optional[int] = ...) -> None: ...

class CaptureRequest(_message.Message):
    __slots__ = ("place", "limits", "links", "held")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    place: Place
    limits: BundleLimits
    links: LinkPolicy
    held: _containers.RepeatedCompositeFieldContainer[HeldFile]
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., limits: _Optional[_Union[BundleLimits, _Mapping]] = ..., links: _Optional[_Union[LinkPolicy, str]] = ..., held: _Optional[_Iterable[_Union[HeldFile, _Mapping]]] = ...) -> None: ...

class HeldFile(_message.Message):
    __slots__ = ("path", "size", "sha256")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    size: int
    sha256: bytes
    def __init__(self, path: _Optional[bytes] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ManifestEntry(_message.Message):
    __slots__ = ("path", "size", "sha256", "from_offset")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    size: int
    sha256: bytes
    from_offset: int
    def __init__(self, path: _Optional[bytes] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ..., from_offset: _Optional[int] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ManifestEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[ManifestEntry, _Mapping]]] = ...) -> None: ...

class CaptureResponse(_message.Message):
    __slots__ = ("header", "chunk", "trailer")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    header: CaptureHeader
    chunk: _payload_pb2.Chunk
    trailer: CaptureTrailer
    def __init__(self, header: _Optional[_Union[CaptureHeader, _Mapping]] = ..., chunk: _Optional[_Union[_payload_pb2.Chunk, _Mapping]] = ..., trailer: _Optional[_Union[CaptureTrailer, _Mapping]] = ...) -> None: ...

class CaptureHeader(_message.Message):
    __slots__ = ("source", "manifest_bytes", "files_count", "bytes_count", "payload_bytes")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_COUNT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    manifest_bytes: int
    files_count: int
    bytes_count: int
    payload_bytes: int
    def __init__(self, source: _Optional[bytes] = ..., manifest_bytes: _Optional[int] = ..., files_count: _Optional[int] = ..., bytes_count: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class CaptureTrailer(_message.Message):
    __slots__ = ("payload", "left_out", "left_out_count", "in_use_pid")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_COUNT_FIELD_NUMBER: _ClassVar[int]
    IN_USE_PID_FIELD_NUMBER: _ClassVar[int]
    payload: _payload_pb2.Trailer
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOut]
    left_out_count: int
    in_use_pid: int
    def __init__(self, payload: _Optional[_Union[_payload_pb2.Trailer, _Mapping]] = ..., left_out: _Optional[_Iterable[_Union[LeftOut, _Mapping]]] = ..., left_out_count: _Optional[int] = ..., in_use_pid: _Optional[int] = ...) -> None: ...

class LeftOut(_message.Message):
    __slots__ = ("path", "why")
    class Why(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WHY_UNSPECIFIED: _ClassVar[LeftOut.Why]
        WHY_NOT_SELECTED: _ClassVar[LeftOut.Why]
        WHY_SYMLINK: _ClassVar[LeftOut.Why]
    WHY_UNSPECIFIED: LeftOut.Why
    WHY_NOT_SELECTED: LeftOut.Why
    WHY_SYMLINK: LeftOut.Why
    PATH_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    why: LeftOut.Why
    def __init__(self, path: _Optional[bytes] = ..., why: _Optional[_Union[LeftOut.Why, str]] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("header", "chunk", "trailer", "resume")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    header: RestoreHeader
    chunk: _payload_pb2.Chunk
    trailer: _payload_pb2.Trailer
    resume: RestoreResume
    def __init__(self, header: _Optional[_Union[RestoreHeader, _Mapping]] = ..., chunk: _Optional[_Union[_payload_pb2.Chunk, _Mapping]] = ..., trailer: _Optional[_Union[_payload_pb2.Trailer, _Mapping]] = ..., resume: _Optional[_Union[RestoreResume, _Mapping]] = ...) -> None: ...

class RestoreHeader(_message.Message):
    __slots__ = ("place", "limits", "manifest_bytes", "digest", "durability", "owner", "force", "restore_id", "digests_follow")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    place: Place
    limits: BundleLimits
    manifest_bytes: int
    digest: bytes
    durability: _payload_pb2.Durability
    owner: _payload_pb2.Owner
    force: bool
    restore_id: str
    digests_follow: bool
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., limits: _Optional[_Union[BundleLimits, _Mapping]] = ..., manifest_bytes: _Optional[int] = ..., digest: _Optional[bytes] = ..., durability: _Optional[_Union[_payload_pb2.Durability, str]] = ..., owner: _Optional[_Union[_payload_pb2.Owner, _Mapping]] = ..., force: _Optional[bool] = ..., restore_id: _Optional[str] = ..., digests_follow: _Optional[bool] = ...) -> None: ...

class RestoreResume(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, entries: _Optional[_Iterable[int]] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("need", "result")
    NEED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    need: RestoreNeed
    result: RestoreResult
    def __init__(self, need: _Optional[_Union[RestoreNeed, _Mapping]] = ..., result: _Optional[_Union[RestoreResult, _Mapping]] = ...) -> None: ...

class RestoreNeed(_message.Message):
    __slots__ = ("lacking", "parts", "staged_bytes")
    LACKING_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    lacking: bytes
    parts: _containers.RepeatedCompositeFieldContainer[StagedPart]
    staged_bytes: int
    def __init__(self, lacking: _Optional[bytes] = ..., parts: _Optional[_Iterable[_Union[StagedPart, _Mapping]]] = ..., staged_bytes: _Optional[int] = ...) -> None: ...

class StagedPart(_message.Message):
    __slots__ = ("entry", "size", "sha256")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    entry: int
    size: int
    sha256: bytes
    def __init__(self, entry: _Optional[int] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class RestoreResult(_message.Message):
    __slots__ = ("target", "unchanged", "recovery", "files_count", "bytes_count", "digest", "relocated", "not_atomic")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    FILES_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RELOCATED_FIELD_NUMBER: _ClassVar[int]
    NOT_ATOMIC_FIELD_NUMBER: _ClassVar[int]
    target: bytes
    unchanged: bool
    recovery: str
    files_count: int
    bytes_count: int
    digest: bytes
    relocated: _containers.RepeatedScalarFieldContainer[bytes]
    not_atomic: bool
    def __init__(self, target: _Optional[bytes] = ..., unchanged: _Optional[bool] = ..., recovery: _Optional[str] = ..., files_count: _Optional[int] = ..., bytes_count: _Optional[int] = ..., digest: _Optional[bytes] = ..., relocated: _Optional[_Iterable[bytes]] = ..., not_atomic: _Optional[bool] = ...) -> None: ...

class ValidateRequest(_message.Message):
    __slots__ = ("header", "chunk", "trailer")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    header: ValidateHeader
    chunk: _payload_pb2.Chunk
    trailer: _payload_pb2.Trailer
    def __init__(self, header: _Optional[_Union[ValidateHeader, _Mapping]] = ..., chunk: _Optional[_Union[_payload_pb2.Chunk, _Mapping]] = ..., trailer: _Optional[_Union[_payload_pb2.Trailer, _Mapping]] = ...) -> None: ...

class ValidateHeader(_message.Message):
    __slots__ = ("profile", "id", "limits", "manifest_bytes", "digest")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    profile: Profile
    id: str
    limits: BundleLimits
    manifest_bytes: int
    digest: bytes
    def __init__(self, profile: _Optional[_Union[Profile, _Mapping]] = ..., id: _Optional[str] = ..., limits: _Optional[_Union[BundleLimits, _Mapping]] = ..., manifest_bytes: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class ValidateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRecoveryRequest(_message.Message):
    __slots__ = ("profile", "variables", "follow_root_link", "id")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_ROOT_LINK_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    profile: Profile
    variables: _containers.ScalarMap[str, str]
    follow_root_link: bool
    id: str
    def __init__(self, profile: _Optional[_Union[Profile, _Mapping]] = ..., variables: _Optional[_Mapping[str, str]] = ..., follow_root_link: _Optional[bool] = ..., id: _Optional[str] = ...) -> None: ...

class ListRecoveryResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: RecoveryEntry
    def __init__(self, entry: _Optional[_Union[RecoveryEntry, _Mapping]] = ...) -> None: ...

class RecoveryEntry(_message.Message):
    __slots__ = ("name", "id", "session_path", "set_aside")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_PATH_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    session_path: bytes
    set_aside: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., session_path: _Optional[bytes] = ..., set_aside: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class UndoRestoreRequest(_message.Message):
    __slots__ = ("place", "name", "force")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    place: Place
    name: str
    force: bool
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class UndoRestoreResponse(_message.Message):
    __slots__ = ("target", "recovery")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    target: bytes
    recovery: str
    def __init__(self, target: _Optional[bytes] = ..., recovery: _Optional[str] = ...) -> None: ...

class PruneRecoveryRequest(_message.Message):
    __slots__ = ("profile", "variables", "follow_root_link", "id", "keep_count", "older_than_seconds")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_ROOT_LINK_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    profile: Profile
    variables: _containers.ScalarMap[str, str]
    follow_root_link: bool
    id: str
    keep_count: int
    older_than_seconds: int
    def __init__(self, profile: _Optional[_Union[Profile, _Mapping]] = ..., variables: _Optional[_Mapping[str, str]] = ..., follow_root_link: _Optional[bool] = ..., id: _Optional[str] = ..., keep_count: _Optional[int] = ..., older_than_seconds: _Optional[int] = ...) -> None: ...

class PruneRecoveryResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, removed: _Optional[_Iterable[str]] = ...) -> None: ...
