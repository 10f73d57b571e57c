import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Variable(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    value: bytes
    def __init__(self, name: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class StartProcessRequest(_message.Message):
    __slots__ = ("id", "argv", "cwd", "variables", "input", "open_input", "terminal", "deadline_seconds", "idle_seconds", "grace_seconds", "max_output_bytes", "keep_bytes", "hold_seconds", "instance_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OPEN_INPUT_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEP_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    cwd: bytes
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    input: bytes
    open_input: bool
    terminal: Terminal
    deadline_seconds: float
    idle_seconds: float
    grace_seconds: float
    max_output_bytes: int
    keep_bytes: int
    hold_seconds: float
    instance_id: str
    def __init__(self, id: _Optional[str] = ..., argv: _Optional[_Iterable[bytes]] = ..., cwd: _Optional[bytes] = ..., variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., input: _Optional[bytes] = ..., open_input: _Optional[bool] = ..., terminal: _Optional[_Union[Terminal, _Mapping]] = ..., deadline_seconds: _Optional[float] = ..., idle_seconds: _Optional[float] = ..., grace_seconds: _Optional[float] = ..., max_output_bytes: _Optional[int] = ..., keep_bytes: _Optional[int] = ..., hold_seconds: _Optional[float] = ..., instance_id: _Optional[str] = ...) -> None: ...

class Terminal(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class StartProcessResponse(_message.Message):
    __slots__ = ("pid", "started")
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    pid: int
    started: _timestamp_pb2.Timestamp
    def __init__(self, pid: _Optional[int] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("begin", "input", "resize")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    begin: AttachBegin
    input: ProcessInput
    resize: Terminal
    def __init__(self, begin: _Optional[_Union[AttachBegin, _Mapping]] = ..., input: _Optional[_Union[ProcessInput, _Mapping]] = ..., resize: _Optional[_Union[Terminal, _Mapping]] = ...) -> None: ...

class AttachBegin(_message.Message):
    __slots__ = ("id", "stdout_offset", "stderr_offset")
    ID_FIELD_NUMBER: _ClassVar[int]
    STDOUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STDERR_OFFSET_FIELD_NUMBER: _ClassVar[int]
    id: str
    stdout_offset: int
    stderr_offset: int
    def __init__(self, id: _Optional[str] = ..., stdout_offset: _Optional[int] = ..., stderr_offset: _Optional[int] = ...) -> None: ...

class ProcessInput(_message.Message):
    __slots__ = ("offset", "data", "end")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    end: bool
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("stdout", "stderr", "input_taken", "exit", "beat")
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    INPUT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    stdout: ProcessOutput
    stderr: ProcessOutput
    input_taken: InputTaken
    exit: ProcessExit
    beat: ProcessBeat
    def __init__(self, stdout: _Optional[_Union[ProcessOutput, _Mapping]] = ..., stderr: _Optional[_Union[ProcessOutput, _Mapping]] = ..., input_taken: _Optional[_Union[InputTaken, _Mapping]] = ..., exit: _Optional[_Union[ProcessExit, _Mapping]] = ..., beat: _Optional[_Union[ProcessBeat, _Mapping]] = ...) -> None: ...

class ProcessOutput(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class InputTaken(_message.Message):
    __slots__ = ("offset", "closed")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    offset: int
    closed: bool
    def __init__(self, offset: _Optional[int] = ..., closed: _Optional[bool] = ...) -> None: ...

class ProcessBeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProcessExit(_message.Message):
    __slots__ = ("status", "signal", "cause", "duration_seconds", "stdout_bytes", "stderr_bytes")
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CAUSE_UNSPECIFIED: _ClassVar[ProcessExit.Cause]
        CAUSE_ITSELF: _ClassVar[ProcessExit.Cause]
        CAUSE_SIGNAL: _ClassVar[ProcessExit.Cause]
        CAUSE_DEADLINE: _ClassVar[ProcessExit.Cause]
        CAUSE_IDLE: _ClassVar[ProcessExit.Cause]
        CAUSE_OUTPUT: _ClassVar[ProcessExit.Cause]
        CAUSE_SHUTDOWN: _ClassVar[ProcessExit.Cause]
    CAUSE_UNSPECIFIED: ProcessExit.Cause
    CAUSE_ITSELF: ProcessExit.Cause
    CAUSE_SIGNAL: ProcessExit.Cause
    CAUSE_DEADLINE: ProcessExit.Cause
    CAUSE_IDLE: ProcessExit.Cause
    CAUSE_OUTPUT: ProcessExit.Cause
    CAUSE_SHUTDOWN: ProcessExit.Cause
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    status: int
    signal: int
    cause: ProcessExit.Cause
    duration_seconds: float
    stdout_bytes: int
    stderr_bytes: int
    def __init__(self, status: _Optional[int] = ..., signal: _Optional[int] = ..., cause: _Optional[_Union[ProcessExit.Cause, str]] = ..., duration_seconds: _Optional[float] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ...) -> None: ...

class SignalProcessRequest(_message.Message):
    __slots__ = ("id", "signal", "then_kill_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    THEN_KILL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    signal: int
    then_kill_seconds: float
    def __init__(self, id: _Optional[str] = ..., signal: _Optional[int] = ..., then_kill_seconds: _Optional[float] = ...) -> None: ...

class SignalProcessResponse(_message.Message):
    __slots__ = ("over",)
    OVER_FIELD_NUMBER: _ClassVar[int]
    over: bool
    def __init__(self, over: _Optional[bool] = ...) -> None: ...

class WaitProcessRequest(_message.Message):
    __slots__ = ("id", "max_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    max_seconds: float
    def __init__(self, id: _Optional[str] = ..., max_seconds: _Optional[float] = ...) -> None: ...

class WaitProcessResponse(_message.Message):
    __slots__ = ("running", "exit")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    running: bool
    exit: ProcessExit
    def __init__(self, running: _Optional[bool] = ..., exit: _Optional[_Union[ProcessExit, _Mapping]] = ...) -> None: ...

class ListProcessesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListProcessesResponse(_message.Message):
    __slots__ = ("processes",)
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessState]
    def __init__(self, processes: _Optional[_Iterable[_Union[ProcessState, _Mapping]]] = ...) -> None: ...

class ProcessState(_message.Message):
    __slots__ = ("id", "pid", "program", "started", "exit", "stdout_bytes", "stderr_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    pid: int
    program: bytes
    started: _timestamp_pb2.Timestamp
    exit: ProcessExit
    stdout_bytes: int
    stderr_bytes: int
    def __init__(self, id: _Optional[str] = ..., pid: _Optional[int] = ..., program: _Optional[bytes] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., exit: _Optional[_Union[ProcessExit, _Mapping]] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ...) -> None: ...

class ReleaseProcessRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReleaseProcessResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FindProgramRequest(_message.Message):
    __slots__ = ("name", "variables")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    def __init__(self, name: _Optional[bytes] = ..., variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ...) -> None: ...

class FindProgramResponse(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: bytes
    def __init__(self, path: _Optional[bytes] = ...) -> None: ...
