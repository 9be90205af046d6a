# The numbers of call sites: which line of the user's own code asks, and by which calls it was reached. Included by
# _recorder.pyx.

from libcpp.unordered_set cimport unordered_set


cdef size_t _MOST_STACKS = 1 << 16  # of those beyond, only the innermost frames are told apart
cdef size_t _FRAMES_BEYOND = 4


cdef class CallSites:
    """Numbers the stacks of calls that ask, and names each by its call site.

    A call site is the innermost frame of the user's own code, and the asker, if one is set. Several stacks may have one
    site. A function that calls itself counts once in a stack, with its innermost call. O(frames) for a request, with a
    look into a table at the end; what a stack is named is found when it is new.

    Parameters
    ----------
    is_user_code
        ``f(code) -> bool | None``: asked once for each code object; None: stowplan's own, which is named nowhere.
    stacks
        Innermost frames of others' code that are added where such code asked, called by the user's.
    callers
        Frames of the user's own code that called the innermost one: so many are added, the outermost first.

    Attributes
    ----------
    sites
        By number: ``"file:line function"``; with its callers, what it called, and the asker if there was one,
        ``"file:line caller > file:line function > package/file:line function > asker"``.
    frames
        By number: of the stack, the outermost frame first, its code and its place: the offset of the instruction that
        runs in it, or, until Python 3.10, the line.
    recursive
        Addresses of the codes that have called themselves: of their frames in a row, `frames` has the innermost alone.
    asker
        Text that is added to the call sites from now on (a framework's function, say); None: nothing is added.
    """

    cdef object is_user_code
    cdef readonly list sites  #: list[str]
    cdef readonly list frames  #: list[tuple[tuple[CodeType, int], ...]]
    cdef list codes  # kept alive, so that no other code gets their addresses
    cdef unordered_set[void*] outside  # code of stowplan that runs the program: no stack goes beyond
    cdef unordered_set[void*] recurring
    cdef dict users  # by address of a code in `codes`: what `is_user_code` says; equal codes may be of different files
    cdef list askers
    cdef dict number_of_asker
    cdef int32_t asking  # -1: none
    cdef unordered_map[uint64_t, int32_t] number_of_stack  # by a hash of code and place of each frame, and the asker
    cdef size_t stacks
    cdef size_t callers

    def __init__(self, is_user_code: Callable[[CodeType], bool | None], size_t stacks=0, size_t callers=0):
        self.is_user_code = is_user_code
        self.stacks, self.callers = stacks, callers
        self.sites, self.frames, self.codes = [], [], []
        self.users, self.askers, self.number_of_asker = {}, [], {}
        self.asking = -1

    def begin_here(self):
        """Leave out, from now on, the frames of stowplan that are on the stack, and those that called them."""
        cdef PyObject* frame = innermost_frame()
        cdef PyObject* outer
        cdef PyObject* code
        while frame != NULL:
            code = code_of(frame)
            if self.is_users(<object>code) is None:
                self.outside.insert(code)
            Py_DECREF(<object>code)
            outer = calling_frame(frame)
            Py_DECREF(<object>frame)
            frame = outer

    def is_users(self, code: CodeType) -> bool | None:
        """Whether code is the user's own; None: it is stowplan's."""
        if id(code) not in self.users:
            self.codes.append(code)
            self.users[id(code)] = self.is_user_code(code)
        return self.users[id(code)]

    @property
    def recursive(self) -> set[int]:
        return {<uintptr_t>code for code in self.recurring}

    @property
    def asker(self) -> str | None:
        return None if self.asking < 0 else self.askers[self.asking]

    @asker.setter
    def asker(self, name: str | None):
        self.asking = -1 if name is None else self.number_of_asker_named(name)

    cdef int32_t number_of_asker_named(self, str name) except -2:
        number = self.number_of_asker.setdefault(name, len(self.askers))
        if number == len(self.askers):
            self.askers.append(name)
        return number

    cdef int32_t here(self, int32_t asking) except -2:
        """Return the number of the stack with an asker, -1 for one without a site."""
        cdef uint64_t stack = self.walk(asking, NULL, <size_t>-1)
        cdef size_t frames = <size_t>-1
        known = self.number_of_stack.find(stack)
        if known != self.number_of_stack.end():
            return dereference(known).second
        if self.number_of_stack.size() >= _MOST_STACKS:
            frames = _FRAMES_BEYOND
            stack = self.walk(asking, NULL, frames)
            known = self.number_of_stack.find(stack)
            if known != self.number_of_stack.end():
                return dereference(known).second
        called = []
        self.walk(asking, <PyObject*>called, frames)
        name = self.name_of(called, asking)
        cdef int32_t number = -1
        if name:
            number = len(self.sites)
            self.sites.append(name)
            self.frames.append(tuple([
                (code, place) for code, place, _ in reversed(called) if self.is_users(code) is not None
            ]))
        self.number_of_stack[stack] = number
        return number

    cdef uint64_t walk(self, int32_t asking, PyObject* called, size_t frames) except? 0:
        """Return a hash of the stack, of so many frames; append (code, place, line) of each to a list, if there is one.

        The innermost comes first. The code of what is appended is kept alive from then on.
        """
        cdef uint64_t stack = <uint64_t><uint32_t>asking + 1
        cdef PyObject* frame = innermost_frame()
        cdef PyObject* outer
        cdef PyObject* code
        cdef PyObject* inner = NULL
        while frame != NULL:
            code = code_of(frame)
            outer = NULL
            try:
                if frames == 0 or self.outside.count(code):
                    break
                if code != inner:
                    frames -= 1
                    stack = (stack ^ <uint64_t>code) * <uint64_t>0x9E3779B97F4A7C15
                    stack = (stack ^ (stack >> 32) ^ <uint64_t><uint32_t>place_in(frame)) * <uint64_t>0xD6E8FEB86659FD93
                    stack ^= stack >> 29
                    if called != NULL:
                        self.is_users(<object>code)
                        (<list>called).append((<object>code, place_in(frame), line_of(frame)))
                else:
                    self.recurring.insert(code)
                inner = code
                outer = calling_frame(frame)
            finally:
                Py_DECREF(<object>code)  # the frame still has it
                Py_DECREF(<object>frame)
            frame = outer
        return stack

    cdef str name_of(self, list called, int32_t asking):
        """Return the site of a stack whose innermost frame comes first."""
        names, own, others = [], 0, 0  # the innermost first
        for code, _, line in called:
            users = self.is_users(code)
            if users:
                names.append(f"{code.co_filename}:{line} {code.co_name}")
                own += 1
                if own > self.callers:
                    break
            elif users is not None and not own and others < self.stacks:
                file = "/".join(code.co_filename.replace("\\", "/").split("/")[-3:])
                names.append(f"{file}:{line} {code.co_name}")
                others += 1
        names.reverse()
        if asking >= 0:
            names.append(self.askers[asking])
        return " > ".join(names)
