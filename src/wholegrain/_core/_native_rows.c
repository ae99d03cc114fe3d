/* Rows out of columns: a dict is made for each, of the next value of every column.
 *
 * What it adds over Python's own loop is that no bytecode runs for a row: `next` on an iterator
 * that derives from `Rows` is a C call. The counterpart in Python is `rows.py`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* A dict with more keys than that grows while it is filled: a copy of one has its size at once. */
#define GROWS_ABOVE 5

typedef struct {
    PyObject_HEAD
    PyObject *names;   /* tuple of str, or NULL before the first `set_rows` */
    PyObject *columns; /* tuple of iterators */
    PyObject *model;   /* a row without values, or NULL */
    Py_ssize_t left;
    Py_ssize_t given; /* since `set_rows` */
} Rows;

PyDoc_STRVAR(rows_doc,
             "A base class whose `next` gives the rows that were last set by `set_rows`.\n\n"
             "When there are none left it calls `more_rows()`, which sets others and returns\n"
             "True, or returns False at the end.");

static int
rows_traverse(Rows *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->names);
    Py_VISIT(self->columns);
    Py_VISIT(self->model);
    return 0;
}

static int
rows_clear(Rows *self)
{
    Py_CLEAR(self->names);
    Py_CLEAR(self->columns);
    Py_CLEAR(self->model);
    self->left = 0;
    return 0;
}

static void
rows_dealloc(Rows *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    rows_clear(self);
    freefunc free_self = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_self(self);
    Py_DECREF(type);
}

/* The next row, or NULL with an exception: there has to be one. */
static PyObject *
make_row(PyObject *names, PyObject *columns, PyObject *model)
{
    PyObject *row = model ? PyDict_Copy(model) : PyDict_New();
    const Py_ssize_t width = PyTuple_Size(names);
    if (!row)
        return NULL;
    for (Py_ssize_t i = 0; i < width; i++) {
        PyObject *value = PyIter_Next(PyTuple_GetItem(columns, i));
        if (!value) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a column has fewer values than there are rows");
            Py_DECREF(row);
            return NULL;
        }
        const int failed = PyDict_SetItem(row, PyTuple_GetItem(names, i), value);
        Py_DECREF(value);
        if (failed) {
            Py_DECREF(row);
            return NULL;
        }
    }
    return row;
}

/* 1 if there is a row, 0 at the end, -1 with an exception. */
static int
has_row(Rows *self)
{
    while (self->left <= 0) {
        PyObject *found = PyObject_CallMethod((PyObject *)self, "more_rows", NULL);
        if (!found)
            return -1;
        const int more = PyObject_IsTrue(found);
        Py_DECREF(found);
        if (more <= 0)
            return more;
    }
    return 1;
}

static PyObject *
rows_next(Rows *self)
{
    if (self->left <= 0 && has_row(self) <= 0)
        return NULL;
    /* Held, because what a column does might set other rows. */
    PyObject *names = self->names, *columns = self->columns, *model = self->model;
    Py_INCREF(names);
    Py_INCREF(columns);
    Py_XINCREF(model);
    PyObject *row = make_row(names, columns, model);
    Py_DECREF(names);
    Py_DECREF(columns);
    Py_XDECREF(model);
    if (row) {
        self->left--;
        self->given++;
    }
    return row;
}

PyDoc_STRVAR(rows_take_doc, "Return at least one and at most `count` rows; none at the end.");

static PyObject *
rows_take(Rows *self, PyObject *argument)
{
    const Py_ssize_t count = PyLong_AsSsize_t(argument);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    const int found = self->left > 0 ? 1 : has_row(self);
    if (found < 0)
        return NULL;
    PyObject *taken = PyList_New(0);
    while (taken && found && self->left > 0 && PyList_Size(taken) < count) {
        PyObject *row = rows_next(self);
        if (!row || PyList_Append(taken, row))
            Py_CLEAR(taken);
        Py_XDECREF(row);
    }
    return taken;
}

PyDoc_STRVAR(rows_set_doc,
             "set_rows(names, columns, count)\n\n"
             "Give `count` rows of these columns: iterables in the order of `names`.");

static PyObject *
rows_set(Rows *self, PyObject *args)
{
    PyObject *names, *columns;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!O!n", &PyTuple_Type, &names, &PyTuple_Type, &columns, &count))
        return NULL;
    const Py_ssize_t width = PyTuple_Size(columns);
    if (PyTuple_Size(names) != width) {
        PyErr_SetString(PyExc_ValueError, "there are as many names as columns");
        return NULL;
    }
    PyObject *iterators = PyTuple_New(width);
    for (Py_ssize_t i = 0; iterators && i < width; i++) {
        PyObject *iterator = PyObject_GetIter(PyTuple_GetItem(columns, i));
        if (!iterator || PyTuple_SetItem(iterators, i, iterator))
            Py_CLEAR(iterators);
    }
    if (!iterators)
        return NULL;
    PyObject *model = NULL;
    if (width > GROWS_ABOVE) {
        model = PyDict_New();
        for (Py_ssize_t i = 0; model && i < width; i++)
            if (PyDict_SetItem(model, PyTuple_GetItem(names, i), Py_None))
                Py_CLEAR(model);
        if (!model) {
            Py_DECREF(iterators);
            return NULL;
        }
    }
    PyObject *old_names = self->names, *old_columns = self->columns, *old_model = self->model;
    Py_INCREF(names);
    self->names = names;
    self->columns = iterators;
    self->model = model;
    self->left = count;
    self->given = 0;
    Py_XDECREF(old_names);
    Py_XDECREF(old_columns);
    Py_XDECREF(old_model);
    Py_RETURN_NONE;
}

static PyObject *
rows_given(Rows *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(self->given);
}

static PyMethodDef rows_methods[] = {
    {"take", (PyCFunction)(void (*)(void))rows_take, METH_O, rows_take_doc},
    {"set_rows", (PyCFunction)(void (*)(void))rows_set, METH_VARARGS, rows_set_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef rows_getset[] = {
    {"rows_given", (getter)rows_given, NULL, "How many rows were given since `set_rows`.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_clear, rows_clear},
    {Py_tp_iternext, rows_next},
    {Py_tp_methods, rows_methods},
    {Py_tp_getset, rows_getset},
    {Py_tp_doc, (void *)rows_doc},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "wholegrain._core._native.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = rows_slots,
};

/* Called by `_native.c`, which holds the module. */
int
add_rows(PyObject *module)
{
    PyObject *rows = PyType_FromSpec(&rows_spec);
    if (!rows)
        return -1;
    const int failed = PyModule_AddObjectRef(module, "Rows", rows);
    Py_DECREF(rows);
    return failed;
}
