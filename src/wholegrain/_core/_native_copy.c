/* Copies past the caches. The counterpart is `numpy.copyto`; `copying.py` says when to use which.
 *
 * A plain copy first reads the memory that it is about to overwrite, and drives out of the caches
 * what is in use. The C library has stores that do neither, but takes them for single copies of
 * many megabytes only: not for the rows of a batch.
 */
#include "_native.h"

#if defined(__x86_64__) || defined(_M_X64)

#include <emmintrin.h>

#define LINE 64
#define FETCH_AHEAD 512

static void
copy_past_caches(char *target, const char *source, size_t size)
{
    size_t at = (size_t)(-(uintptr_t)target % LINE);
    if (at > size)
        at = size;
    memcpy(target, source, at);
    for (; size - at >= LINE; at += LINE) {
        _mm_prefetch(source + at + FETCH_AHEAD, _MM_HINT_T0); /* No fault where nothing is. */
        const __m128i *from = (const __m128i *)(source + at);
        const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        __m128i *to = (__m128i *)(target + at);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    _mm_sfence(); /* Before somebody is told that it is there. */
    memcpy(target + at, source + at, size - at);
}

PyDoc_STRVAR(stream_doc, "stream(target, source)\n\n"
                         "Copy the bytes of an array into another one of the same size.");

static PyObject *
stream(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *target, *source;
    if (!PyArg_ParseTuple(args, "OO", &target, &source))
        return NULL;
    Py_buffer to, from;
    if (PyObject_GetBuffer(target, &to, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE))
        return NULL;
    if (PyObject_GetBuffer(source, &from, PyBUF_C_CONTIGUOUS)) {
        PyBuffer_Release(&to);
        return NULL;
    }
    const int fits = to.len == from.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        copy_past_caches(to.buf, from.buf, (size_t)to.len);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_Format(PyExc_ValueError, "%zd bytes do not go into %zd", from.len, to.len);
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    if (!fits)
        return NULL;
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"stream", stream, METH_VARARGS, stream_doc},
    {NULL, NULL, 0, NULL},
};

#else

static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};

#endif

/* Called by `_native.c`, which holds the module. */
int
add_copy(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
