# The numbers of call sites: which line of the user's own code asks. Included by _recorder.pyx.


cdef class CallSites:
    """Numbers call sites: the innermost frame of the user's own code, and the asker, if one is set.

    Parameters
    ----------
    is_user_code
        ``f(code) -> bool | None``: asked once for each code object; None: stowplan's own, which is named nowhere.
    stacks
        Innermost frames of others' code that are added where such code asked, called by the user's.

    Attributes
    ----------
    sites
        By number: ``"file:line function"``; with what the user's line called, and with the asker if there was one,
        ``"file:line function > package/file:line function > asker"``.
    asker
        Text that is added to the call sites from now on (a framework's function, say); None: nothing is added.
    """

    cdef object is_user_code
    cdef readonly list sites
    cdef list codes  # kept alive, so that no other code gets their addresses
    cdef unordered_map[void*, int32_t] number_of_code  # -1 for code that is not the user's, -2 for stowplan's
    cdef unordered_map[uint64_t, int32_t] number_of_place  # by code and place in it
    cdef dict numbers  # of sites
    cdef list askers
    cdef dict number_of_asker
    cdef int32_t asking  # -1: none
    cdef unordered_map[uint64_t, int32_t] number_of_both  # by number of the user's frame and of the asker
    cdef size_t stacks
    cdef dict number_of_stack  # by number of the user's frame, and codes and lines of others' frames

    def __init__(self, is_user_code, size_t stacks=0):
        self.is_user_code = is_user_code
        self.stacks, self.number_of_stack = stacks, {}
        self.sites, self.codes, self.numbers = [], [], {}
        self.askers, self.number_of_asker = [], {}
        self.asking = -1

    def ask(self):
        """Return the number of the site of this call, -1 if there is none."""
        return self.here(self.asking)

    @property
    def asker(self):
        return None if self.asking < 0 else self.askers[self.asking]

    @asker.setter
    def asker(self, name):
        self.asking = -1 if name is None else self.number_of_asker_named(name)

    cdef int32_t number_of_asker_named(self, str name) except -2:
        number = self.number_of_asker.setdefault(name, len(self.askers))
        if number == len(self.askers):
            self.askers.append(name)
        return number

    cdef int32_t here(self, int32_t asking) except -2:
        """Return the number of the innermost user's frame with an asker, -1 for none."""
        cdef int32_t frame = self.users_frame()
        return frame if asking < 0 else self.with_asker(frame, asking)

    cdef int32_t with_asker(self, int32_t frame, int32_t asking) except -2:
        cdef uint64_t both = (<uint64_t><uint32_t>frame << 32) | <uint32_t>asking
        known = self.number_of_both.find(both)
        if known != self.number_of_both.end():
            return dereference(known).second
        asker = self.askers[asking]
        number = self.number_of(asker if frame < 0 else f"{self.sites[frame]} > {asker}")
        self.number_of_both[both] = number
        return number

    cdef int32_t users_frame(self) except -2:
        cdef PyObject* frame = innermost_frame()
        cdef PyObject* outer
        cdef int32_t site = -1
        called = [] if self.stacks else None
        while frame != NULL and site < 0:
            try:
                site = self.site_of(frame)
                if site == -1 and called is not None and len(called) < self.stacks:
                    called.append(self.other_frame(frame))
            finally:
                outer = calling_frame(frame)
                Py_DECREF(<object>frame)
                frame = outer
        if frame != NULL:
            Py_DECREF(<object>frame)
        site = max(site, -1)
        return self.with_stack(site, tuple(called)) if called else site

    cdef tuple other_frame(self, PyObject* frame):
        """Return code and line of a frame; the code is in `codes`, as its site was asked for."""
        cdef PyObject* code = code_of(frame)
        try:
            return <object>code, line_of(frame)
        finally:
            Py_DECREF(<object>code)

    cdef int32_t with_stack(self, int32_t site, tuple called) except -2:
        """Number a user's frame (-1: none) with the frames of others that it has called, the innermost first."""
        key = (site, *[(id(code), line) for code, line in called])
        number = self.number_of_stack.get(key, -1)
        if number < 0:
            frames = [] if site < 0 else [self.sites[site]]
            for code, line in reversed(called):
                file = "/".join(code.co_filename.replace("\\", "/").split("/")[-3:])
                frames.append(f"{file}:{line} {code.co_name}")
            number = self.number_of(" > ".join(frames))
            self.number_of_stack[key] = number
        return number

    cdef int32_t site_of(self, PyObject* frame) except -3:
        cdef PyObject* code = code_of(frame)
        cdef int32_t number
        cdef uint64_t place
        found = self.number_of_code.find(code)
        if found == self.number_of_code.end():
            is_users = self.is_user_code(<object>code)
            number = len(self.codes) if is_users else -2 if is_users is None else -1
            self.codes.append(<object>code)
            self.number_of_code[code] = number
        else:
            number = dereference(found).second
        Py_DECREF(<object>code)
        if number < 0:
            return number
        place = (<uint64_t>number << 32) | <uint32_t>place_in(frame)
        known = self.number_of_place.find(place)
        if known != self.number_of_place.end():
            return dereference(known).second
        code_object = <object>code
        number = self.number_of(f"{code_object.co_filename}:{line_of(frame)} {code_object.co_name}")
        self.number_of_place[place] = number
        return number

    cdef int32_t number_of(self, str name) except -2:
        number = self.numbers.setdefault(name, len(self.sites))
        if number == len(self.sites):
            self.sites.append(name)
        return number
