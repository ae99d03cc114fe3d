/* What the files of the extension share. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* One thread at a time per object, where there is no GIL. Not in the stable ABI. */
#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

/* Arguments: these return 0, or 1 with an exception. In `_native.c`. */
int wrong_count(const char *name, Py_ssize_t given, Py_ssize_t wanted);
int as_int64(PyObject *object, int64_t *value);
int as_uint32(PyObject *object, uint32_t *value);
int as_buffer(PyObject *object, Py_buffer *buffer, Py_ssize_t itemsize, int flags);

#define FAST(name, doc) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, doc}

int add_type(PyObject *module, const char *name, PyType_Spec *spec);

/* What each file adds to the module. */
int add_bins(PyObject *module);
int add_copy(PyObject *module);
int add_shuffle(PyObject *module);
int add_texts(PyObject *module);
int add_tfrecord(PyObject *module);
int add_walk(PyObject *module);

/* The keys of the index shuffle's rounds. In `_native_shuffle.c`. */
void derive_keys(uint32_t seed, uint32_t n, uint32_t *keys);
