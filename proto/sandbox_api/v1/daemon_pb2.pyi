import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandbox_api.v1 import bundle_pb2 as _bundle_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("version", "contracts", "capabilities", "home", "workspace", "roots", "uid", "gid", "limits", "instance_id", "time", "kernel", "machine", "c_library")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    C_LIBRARY_FIELD_NUMBER: _ClassVar[int]
    version: str
    contracts: _containers.RepeatedScalarFieldContainer[str]
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    home: bytes
    workspace: bytes
    roots: _containers.RepeatedScalarFieldContainer[bytes]
    uid: int
    gid: int
    limits: _bundle_pb2.BundleLimits
    instance_id: str
    time: _timestamp_pb2.Timestamp
    kernel: str
    machine: str
    c_library: str
    def __init__(self, version: _Optional[str] = ..., contracts: _Optional[_Iterable[str]] = ..., capabilities: _Optional[_Iterable[str]] = ..., home: _Optional[bytes] = ..., workspace: _Optional[bytes] = ..., roots: _Optional[_Iterable[bytes]] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., limits: _Optional[_Union[_bundle_pb2.BundleLimits, _Mapping]] = ..., instance_id: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kernel: _Optional[str] = ..., machine: _Optional[str] = ..., c_library: _Optional[str] = ...) -> None: ...

class DiagnoseRequest(_message.Message):
    __slots__ = ("profiles", "variables")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[_bundle_pb2.Profile]
    variables: _containers.ScalarMap[str, str]
    def __init__(self, profiles: _Optional[_Iterable[_Union[_bundle_pb2.Profile, _Mapping]]] = ..., variables: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DiagnoseResponse(_message.Message):
    __slots__ = ("findings",)
    class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEVEL_UNSPECIFIED: _ClassVar[DiagnoseResponse.Level]
        LEVEL_OK: _ClassVar[DiagnoseResponse.Level]
        LEVEL_WARNING: _ClassVar[DiagnoseResponse.Level]
        LEVEL_PROBLEM: _ClassVar[DiagnoseResponse.Level]
    LEVEL_UNSPECIFIED: DiagnoseResponse.Level
    LEVEL_OK: DiagnoseResponse.Level
    LEVEL_WARNING: DiagnoseResponse.Level
    LEVEL_PROBLEM: DiagnoseResponse.Level
    class Finding(_message.Message):
        __slots__ = ("check", "format", "level", "message", "hint")
        CHECK_FIELD_NUMBER: _ClassVar[int]
        FORMAT_FIELD_NUMBER: _ClassVar[int]
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        HINT_FIELD_NUMBER: _ClassVar[int]
        check: str
        format: str
        level: DiagnoseResponse.Level
        message: str
        hint: str
        def __init__(self, check: _Optional[str] = ..., format: _Optional[str] = ..., level: _Optional[_Union[DiagnoseResponse.Level, str]] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[DiagnoseResponse.Finding]
    def __init__(self, findings: _Optional[_Iterable[_Union[DiagnoseResponse.Finding, _Mapping]]] = ...) -> None: ...

class ResolveHomeRequest(_message.Message):
    __slots__ = ("variable", "directory", "variables", "follow_root_link")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VARIABLE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_ROOT_LINK_FIELD_NUMBER: _ClassVar[int]
    variable: str
    directory: str
    variables: _containers.ScalarMap[str, str]
    follow_root_link: bool
    def __init__(self, variable: _Optional[str] = ..., directory: _Optional[str] = ..., variables: _Optional[_Mapping[str, str]] = ..., follow_root_link: _Optional[bool] = ...) -> None: ...

class ResolveHomeResponse(_message.Message):
    __slots__ = ("home", "exists")
    HOME_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    home: bytes
    exists: bool
    def __init__(self, home: _Optional[bytes] = ..., exists: _Optional[bool] = ...) -> None: ...
