/* The loops of wholegrain that pay many times over in C; this file holds the module.
 *
 * Everything has a counterpart in Python or numpy with the same results, beside its callers. Only
 * the stable ABI is used, so one build serves all Python versions, except those without the GIL.
 *
 * The files say Py_NewRef(Py_None), not Py_RETURN_NONE and its like: the headers of Python 3.12 and
 * later do not count what those return, since None is immortal there. A build with such headers
 * would free None under Python 3.11.
 */
#include "_native.h"

int
wrong_count(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, not %zd", name, wanted, given);
    return 1;
}

int
as_int64(PyObject *object, int64_t *value)
{
    *value = (int64_t)PyLong_AsLongLong(object);
    return *value == -1 && PyErr_Occurred() != NULL;
}

int
as_uint32(PyObject *object, uint32_t *value)
{
    int64_t wide;
    if (as_int64(object, &wide))
        return 1;
    if (wide < 0 || wide > (int64_t)UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "not in the range of unsigned 32-bit integers");
        return 1;
    }
    *value = (uint32_t)wide;
    return 0;
}

/* A one-dimensional, contiguous buffer of items of `itemsize` bytes. */
int
as_buffer(PyObject *object, Py_buffer *buffer, Py_ssize_t itemsize, int flags)
{
    if (PyObject_GetBuffer(object, buffer, PyBUF_C_CONTIGUOUS | flags))
        return 1;
    if (buffer->itemsize == itemsize)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected items of %zd bytes, not %zd", itemsize,
                 buffer->itemsize);
    PyBuffer_Release(buffer);
    return 1;
}

int
add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type)
        return -1;
    const int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int
exec_module(PyObject *module)
{
    return add_bins(module) || add_copy(module) || add_shuffle(module) || add_texts(module) ||
                   add_tfrecord(module) || add_walk(module)
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module}, /* it alone writes what all calls share: tables */
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "wholegrain._core._native",
    .m_doc = "The loops of wholegrain that pay in C; the numpy counterparts are beside the callers.",
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
