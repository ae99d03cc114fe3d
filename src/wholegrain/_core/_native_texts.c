/* The values of a column of text or bytes, each made out of Arrow's memory when it is asked for, so
 * that not all of them are in memory before the first is used. The counterpart is Arrow's
 * `to_numpy()`; `sources/_arrow_texts.py` chooses.
 */
#include "_native.h"

typedef struct {
    PyObject_HEAD
    Py_buffer offsets, bytes;
    Py_ssize_t at, stop;
    int is_wide, is_text;
} Texts;

static PyObject *
texts_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *offsets, *bytes;
    Py_ssize_t start, stop;
    int is_wide, is_text;
    if (!PyArg_ParseTuple(args, "OOnnpp", &offsets, &bytes, &start, &stop, &is_wide, &is_text))
        return NULL;
    allocfunc alloc_self = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Texts *self = (Texts *)alloc_self(type, 0);
    if (!self)
        return NULL;
    if (PyObject_GetBuffer(offsets, &self->offsets, PyBUF_SIMPLE) ||
        PyObject_GetBuffer(bytes, &self->bytes, PyBUF_SIMPLE)) {
        Py_DECREF(self);
        return NULL;
    }
    const Py_ssize_t known = self->offsets.len / (is_wide ? 8 : 4);
    if (start < 0 || start > stop || (start < stop && stop >= known)) {
        PyErr_SetString(PyExc_ValueError, "there are not as many offsets as values");
        Py_DECREF(self);
        return NULL;
    }
    self->at = start;
    self->stop = stop;
    self->is_wide = is_wide;
    self->is_text = is_text;
    return (PyObject *)self;
}

static void
texts_dealloc(Texts *self)
{
    PyBuffer_Release(&self->offsets);
    PyBuffer_Release(&self->bytes);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc free_self = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_self(self);
    Py_DECREF(type);
}

static PyObject *
texts_next(Texts *self)
{
    Py_ssize_t at;
    Py_BEGIN_CRITICAL_SECTION(self);
    at = self->at;
    self->at += at < self->stop;
    Py_END_CRITICAL_SECTION();
    if (at >= self->stop)
        return NULL;
    int64_t begin, end;
    if (self->is_wide) {
        const int64_t *offset = (const int64_t *)self->offsets.buf + at;
        begin = offset[0], end = offset[1];
    } else {
        const int32_t *offset = (const int32_t *)self->offsets.buf + at;
        begin = offset[0], end = offset[1];
    }
    if (begin < 0 || begin > end || end > self->bytes.len) {
        PyErr_SetString(PyExc_ValueError, "an offset points outside of the column");
        return NULL;
    }
    const char *value = (const char *)self->bytes.buf + begin;
    const Py_ssize_t size = (Py_ssize_t)(end - begin);
    return self->is_text ? PyUnicode_DecodeUTF8(value, size, NULL)
                         : PyBytes_FromStringAndSize(value, size);
}

PyDoc_STRVAR(texts_doc,
             "Texts(offsets, bytes, start, stop, is_wide, is_text)\n\n"
             "The values `start` to `stop - 1` of a column of Arrow's: each as `str` or as `bytes`,\n"
             "out of `bytes` between two of the `offsets`, which have 64 bits each or 32.");

static PyType_Slot texts_slots[] = {
    {Py_tp_new, texts_new},
    {Py_tp_dealloc, texts_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, texts_next},
    {Py_tp_doc, (void *)texts_doc},
    {0, NULL},
};

static PyType_Spec texts_spec = {
    .name = "wholegrain._core._native.Texts",
    .basicsize = sizeof(Texts),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = texts_slots,
};

/* Called by `_native.c`, which holds the module. */
int
add_texts(PyObject *module)
{
    return add_type(module, "Texts", &texts_spec);
}
