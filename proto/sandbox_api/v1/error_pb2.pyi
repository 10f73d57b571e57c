from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Failure(_message.Message):
    __slots__ = ("code", "reason", "message", "hint", "facts", "offenders", "offender_count")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class Offender(_message.Message):
        __slots__ = ("path", "problem")
        PATH_FIELD_NUMBER: _ClassVar[int]
        PROBLEM_FIELD_NUMBER: _ClassVar[int]
        path: str
        problem: str
        def __init__(self, path: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    OFFENDERS_FIELD_NUMBER: _ClassVar[int]
    OFFENDER_COUNT_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    message: str
    hint: str
    facts: _containers.ScalarMap[str, str]
    offenders: _containers.RepeatedCompositeFieldContainer[Failure.Offender]
    offender_count: int
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., facts: _Optional[_Mapping[str, str]] = ..., offenders: _Optional[_Iterable[_Union[Failure.Offender, _Mapping]]] = ..., offender_count: _Optional[int] = ...) -> None: ...
