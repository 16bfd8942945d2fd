from serai._core.cursor cimport View
from serai._core.pages cimport Appender

cdef class Writer(Appender):
    cdef readonly bint java
    cdef object _lock
    cdef object __weakref__
    cdef int fit(self) except -1

cdef class Message(View):
    cdef readonly bint java
