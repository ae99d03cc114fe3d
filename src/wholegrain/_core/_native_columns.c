/* The values of a column one after another, made when they are asked for.
 *
 * `Numbers` gives what numpy's own iterator gives, without the many questions it asks for each
 * value. `Texts` reads `str` or `bytes` out of Arrow's memory, so that not all of them are in memory
 * before the first is used. Their Python counterparts are numpy's iterator and Arrow's `to_numpy()`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    PyTypeObject *scalar; /* whose instances have their value right behind the head */
    allocfunc alloc;
    const char *at;
    Py_ssize_t left, stride, size;
} Numbers;

static void
free_iterator(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_self = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_self(self);
    Py_DECREF(type);
}

static PyObject *
numbers_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *array;
    PyTypeObject *scalar;
    if (!PyArg_ParseTuple(args, "OO!", &array, &PyType_Type, &scalar))
        return NULL;
    allocfunc alloc_self = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Numbers *self = (Numbers *)alloc_self(type, 0);
    if (!self)
        return NULL;
    if (PyObject_GetBuffer(array, &self->view, PyBUF_STRIDES)) {
        Py_DECREF(self);
        return NULL;
    }
    if (self->view.ndim != 1) {
        PyErr_SetString(PyExc_ValueError, "numbers come from an array of one dimension");
        Py_DECREF(self);
        return NULL;
    }
    self->scalar = (PyTypeObject *)Py_NewRef((PyObject *)scalar);
    self->alloc = (allocfunc)PyType_GetSlot(scalar, Py_tp_alloc);
    self->at = self->view.buf;
    self->left = self->view.shape[0];
    self->stride = self->view.strides[0];
    self->size = self->view.itemsize;
    return (PyObject *)self;
}

static void
numbers_dealloc(Numbers *self)
{
    PyBuffer_Release(&self->view);
    Py_XDECREF((PyObject *)self->scalar);
    free_iterator((PyObject *)self);
}

/* Write the next value into a scalar. */
static void
move_value(Numbers *self, PyObject *number)
{
    char *value = (char *)number + sizeof(PyObject);
    if (self->size == 8)
        memcpy(value, self->at, 8); /* of a size that is known: one instruction */
    else
        memcpy(value, self->at, (size_t)self->size);
    self->at += self->stride;
    self->left--;
}

PyObject *
next_number(PyObject *iterator)
{
    Numbers *self = (Numbers *)iterator;
    PyObject *number = self->left > 0 ? self->alloc(self->scalar, 0) : NULL;
    if (number)
        move_value(self, number);
    return number;
}

/* Make the next number out of one of before; return whether that was possible: nobody else may
 * hold it, as nobody holds what has been freed and is allocated again. */
int
renew_number(PyObject *iterator, PyObject *number)
{
    Numbers *self = (Numbers *)iterator;
    if (self->left <= 0 || Py_TYPE(number) != self->scalar || Py_REFCNT(number) != 1)
        return 0;
    move_value(self, number);
    return 1;
}

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
    free_iterator((PyObject *)self);
}

static PyObject *
texts_next(Texts *self)
{
    if (self->at >= self->stop)
        return NULL;
    int64_t begin, end;
    if (self->is_wide) {
        const int64_t *offset = (const int64_t *)self->offsets.buf + self->at;
        begin = offset[0], end = offset[1];
    } else {
        const int32_t *offset = (const int32_t *)self->offsets.buf + self->at;
        begin = offset[0], end = offset[1];
    }
    if (begin < 0 || begin > end || end > self->bytes.len) {
        PyErr_SetString(PyExc_ValueError, "an offset points outside of the column");
        return NULL;
    }
    const char *value = (const char *)self->bytes.buf + begin;
    const Py_ssize_t size = (Py_ssize_t)(end - begin);
    self->at++;
    return self->is_text ? PyUnicode_DecodeUTF8(value, size, NULL)
                         : PyBytes_FromStringAndSize(value, size);
}

PyDoc_STRVAR(numbers_doc,
             "Numbers(array, scalar)\n\n"
             "The values of an array as numpy's scalars of the type `scalar`, which is the array's\n"
             "and has its value where `columns.py` has found it to be.");

PyDoc_STRVAR(texts_doc,
             "Texts(offsets, bytes, start, stop, is_wide, is_text)\n\n"
             "The values `start` to `stop - 1` of a column of Arrow's: each as `str` or as `bytes`,\n"
             "out of `bytes` between two of the `offsets`, which have 64 bits each or 32.");

static PyType_Slot numbers_slots[] = {
    {Py_tp_new, numbers_new},
    {Py_tp_dealloc, numbers_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, next_number},
    {Py_tp_doc, (void *)numbers_doc},
    {0, NULL},
};

static PyType_Slot texts_slots[] = {
    {Py_tp_new, texts_new},
    {Py_tp_dealloc, texts_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, texts_next},
    {Py_tp_doc, (void *)texts_doc},
    {0, NULL},
};

static PyType_Spec numbers_spec = {
    .name = "wholegrain._core._native.Numbers",
    .basicsize = sizeof(Numbers),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = numbers_slots,
};

static PyType_Spec texts_spec = {
    .name = "wholegrain._core._native.Texts",
    .basicsize = sizeof(Texts),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = texts_slots,
};

static int
add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type)
        return -1;
    const int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

/* Called by `_native.c`, which holds the module. */
int
add_columns(PyObject *module)
{
    return add_type(module, "Numbers", &numbers_spec) || add_type(module, "Texts", &texts_spec)
               ? -1
               : 0;
}
