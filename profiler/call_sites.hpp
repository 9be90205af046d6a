// Access to Python's frames, for call sites. Depends on Python; included by the binding.
#pragma once

#include <Python.h>
#include <frameobject.h>  // until Python 3.10 not part of the former

namespace stowplan::profiler {

// New references, or null.
inline PyObject* innermost_frame() { return reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())); }
inline PyObject* calling_frame(PyObject* frame) {
  return reinterpret_cast<PyObject*>(PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame)));
}
inline PyObject* code_of(PyObject* frame) {
  return reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame)));
}

inline int line_of(PyObject* frame) { return PyFrame_GetLineNumber(reinterpret_cast<PyFrameObject*>(frame)); }

// A number that tells the calls of one code apart, cheaper than the line.
inline int place_in(PyObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(reinterpret_cast<PyFrameObject*>(frame));
#else
  return line_of(frame);
#endif
}

}  // namespace stowplan::profiler
