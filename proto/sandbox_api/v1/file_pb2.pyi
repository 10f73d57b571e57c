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

class FileInfo(_message.Message):
    __slots__ = ("path", "kind", "size", "modified", "mode", "uid", "gid")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[FileInfo.Kind]
        KIND_FILE: _ClassVar[FileInfo.Kind]
        KIND_DIRECTORY: _ClassVar[FileInfo.Kind]
        KIND_SYMLINK: _ClassVar[FileInfo.Kind]
        KIND_OTHER: _ClassVar[FileInfo.Kind]
    KIND_UNSPECIFIED: FileInfo.Kind
    KIND_FILE: FileInfo.Kind
    KIND_DIRECTORY: FileInfo.Kind
    KIND_SYMLINK: FileInfo.Kind
    KIND_OTHER: FileInfo.Kind
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    kind: FileInfo.Kind
    size: int
    modified: _timestamp_pb2.Timestamp
    mode: int
    uid: int
    gid: int
    def __init__(self, path: _Optional[bytes] = ..., kind: _Optional[_Union[FileInfo.Kind, str]] = ..., size: _Optional[int] = ..., modified: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ...) -> None: ...

class FindRequest(_message.Message):
    __slots__ = ("directory", "pattern", "max_files", "contains", "head_bytes")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    MAX_FILES_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    HEAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    directory: bytes
    pattern: str
    max_files: int
    contains: bytes
    head_bytes: int
    def __init__(self, directory: _Optional[bytes] = ..., pattern: _Optional[str] = ..., max_files: _Optional[int] = ..., contains: _Optional[bytes] = ..., head_bytes: _Optional[int] = ...) -> None: ...

class FindResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    def __init__(self, path: _Optional[bytes] = ...) -> None: ...

class StatResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("path", "offset", "prefix_sha256", "max_bytes", "prefix_sizes", "part_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PREFIX_SHA256_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_SIZES_FIELD_NUMBER: _ClassVar[int]
    PART_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    offset: int
    prefix_sha256: bytes
    max_bytes: int
    prefix_sizes: _containers.RepeatedScalarFieldContainer[int]
    part_bytes: int
    def __init__(self, path: _Optional[bytes] = ..., offset: _Optional[int] = ..., prefix_sha256: _Optional[bytes] = ..., max_bytes: _Optional[int] = ..., prefix_sizes: _Optional[_Iterable[int]] = ..., part_bytes: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("header", "chunk", "trailer", "grew")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    GREW_FIELD_NUMBER: _ClassVar[int]
    header: ReadHeader
    chunk: _payload_pb2.Chunk
    trailer: _payload_pb2.Trailer
    grew: bool
    def __init__(self, header: _Optional[_Union[ReadHeader, _Mapping]] = ..., chunk: _Optional[_Union[_payload_pb2.Chunk, _Mapping]] = ..., trailer: _Optional[_Union[_payload_pb2.Trailer, _Mapping]] = ..., grew: _Optional[bool] = ...) -> None: ...

class ReadHeader(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("header", "chunk", "trailer")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    header: WriteHeader
    chunk: _payload_pb2.Chunk
    trailer: _payload_pb2.Trailer
    def __init__(self, header: _Optional[_Union[WriteHeader, _Mapping]] = ..., chunk: _Optional[_Union[_payload_pb2.Chunk, _Mapping]] = ..., trailer: _Optional[_Union[_payload_pb2.Trailer, _Mapping]] = ...) -> None: ...

class WriteHeader(_message.Message):
    __slots__ = ("path", "mode", "make_parents", "must_not_exist", "durability", "owner")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MAKE_PARENTS_FIELD_NUMBER: _ClassVar[int]
    MUST_NOT_EXIST_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    mode: int
    make_parents: bool
    must_not_exist: bool
    durability: _payload_pb2.Durability
    owner: _payload_pb2.Owner
    def __init__(self, path: _Optional[bytes] = ..., mode: _Optional[int] = ..., make_parents: _Optional[bool] = ..., must_not_exist: _Optional[bool] = ..., durability: _Optional[_Union[_payload_pb2.Durability, str]] = ..., owner: _Optional[_Union[_payload_pb2.Owner, _Mapping]] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    def __init__(self, path: _Optional[bytes] = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
