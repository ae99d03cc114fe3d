/* Rows out of columns: a dict is made for each, of the next value of every column.
 *
 * What it adds over Python's own loop is that no bytecode runs for a row: `next` on an iterator
 * that derives from `Rows` is a C call. And a row that nobody holds any more is used again, with
 * its numbers, as `zip` does with its tuples. The counterpart in Python is `rows.py`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* A dict with more keys than that grows while it is filled: a copy of one has its size at once. */
#define GROWS_ABOVE 5

/* In `_native_columns.c`. */
PyObject *next_number(PyObject *iterator);
int renew_number(PyObject *iterator, PyObject *number);

typedef struct {
    PyObject *name;
    PyObject *values; /* an iterator */
    iternextfunc next;
} Column;

/* What rows are made of. Who makes one holds it: what a column does might set other rows. */
typedef struct {
    Py_ssize_t holders;
    PyObject *model; /* a row without values, or NULL */
    Py_ssize_t width;
    Column columns[];
} Columns;

typedef struct {
    PyObject_HEAD
    Columns *columns;    /* NULL before the first `set_rows` */
    PyObject *recent[2]; /* the last row and the one before: who loops holds one at a time */
    Py_ssize_t left;
    Py_ssize_t given; /* since `set_rows` */
} Rows;

static void
let_go(Columns *columns)
{
    if (!columns || --columns->holders)
        return;
    for (Py_ssize_t i = 0; i < columns->width; i++) {
        Py_XDECREF(columns->columns[i].name);
        Py_XDECREF(columns->columns[i].values);
    }
    Py_XDECREF(columns->model);
    PyMem_Free(columns);
}

PyDoc_STRVAR(rows_doc,
             "A base class whose `next` gives the rows that were last set by `set_rows`.\n\n"
             "When there are none left it calls `more_rows()`, which sets others and returns\n"
             "True, or returns False at the end.");

static int
rows_traverse(Rows *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    if (self->columns) {
        Py_VISIT(self->columns->model);
        for (Py_ssize_t i = 0; i < self->columns->width; i++)
            Py_VISIT(self->columns->columns[i].values);
    }
    Py_VISIT(self->recent[0]);
    Py_VISIT(self->recent[1]);
    return 0;
}

static int
rows_clear(Rows *self)
{
    Columns *columns = self->columns;
    self->columns = NULL;
    self->left = 0;
    let_go(columns);
    Py_CLEAR(self->recent[0]);
    Py_CLEAR(self->recent[1]);
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

/* The next value of a column, or NULL with an exception: there has to be one. */
static PyObject *
next_value(const Column *column)
{
    PyObject *value = column->next(column->values);
    if (!value && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_StopIteration)))
        PyErr_SetString(PyExc_ValueError, "a column has fewer values than there are rows");
    return value;
}

/* Put the next value of a column into a row: 0, or -1 with an exception. */
static int
put_value(PyObject *row, const Column *column)
{
    PyObject *value = next_value(column);
    const int failed = !value || PyDict_SetItem(row, column->name, value);
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* The next row, or NULL with an exception. */
static PyObject *
make_row(const Columns *columns)
{
    PyObject *row = columns->model ? PyDict_Copy(columns->model) : PyDict_New();
    for (Py_ssize_t i = 0; row && i < columns->width; i++)
        if (put_value(row, &columns->columns[i]))
            Py_CLEAR(row);
    return row;
}

/* Whether a row is held by nobody else and has the keys it was made with, in their order. */
static int
is_spare(PyObject *row, const Columns *columns)
{
    if (!row || Py_REFCNT(row) != 1 || PyDict_Size(row) != columns->width)
        return 0;
    PyObject *name;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < columns->width; i++)
        if (!PyDict_Next(row, &at, &name, NULL) || name != columns->columns[i].name)
            return 0;
    return 1;
}

/* Make the next row out of one that is spare: it takes less than half as long as another dict and
 * other numbers. Takes the row over, and returns it, or NULL with an exception. */
static PyObject *
renew_row(PyObject *row, const Columns *columns)
{
    PyObject *value;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < columns->width; i++) {
        const Column *column = &columns->columns[i];
        PyDict_Next(row, &at, NULL, &value);
        if (column->next == next_number && renew_number(column->values, value))
            continue;
        if (put_value(row, column)) {
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

/* The next row, or NULL with an exception: there has to be one. Takes over `row`, which may be
 * made into it. */
static PyObject *
next_row(Rows *self, PyObject *row)
{
    Columns *columns = self->columns;
    columns->holders++;
    if (is_spare(row, columns)) {
        row = renew_row(row, columns);
    } else {
        PyObject *held = row;
        row = make_row(columns);
        Py_XDECREF(held);
    }
    let_go(columns);
    if (row) {
        self->left--;
        self->given++;
    }
    return row;
}

static PyObject *
rows_next(Rows *self)
{
    if (self->left <= 0 && has_row(self) <= 0)
        return NULL;
    PyObject *oldest = self->recent[1];
    self->recent[1] = self->recent[0];
    self->recent[0] = NULL;
    PyObject *row = next_row(self, oldest);
    if (row && !self->recent[0])
        self->recent[0] = Py_NewRef(row);
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
        PyObject *row = next_row(self, NULL);
        if (!row || PyList_Append(taken, row))
            Py_CLEAR(taken);
        Py_XDECREF(row);
    }
    return taken;
}

/* A row of these names without values, or NULL with an exception. */
static PyObject *
make_model(PyObject *names)
{
    PyObject *model = PyDict_New();
    for (Py_ssize_t i = 0; model && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(model, PyTuple_GetItem(names, i), Py_None))
            Py_CLEAR(model);
    return model;
}

/* Columns to make rows of, or NULL with an exception. */
static Columns *
make_columns(PyObject *names, PyObject *values)
{
    const Py_ssize_t width = PyTuple_Size(names);
    if (PyTuple_Size(values) != width) {
        PyErr_SetString(PyExc_ValueError, "there are as many names as columns");
        return NULL;
    }
    Columns *columns = PyMem_Calloc(1, sizeof(Columns) + (size_t)width * sizeof(Column));
    if (!columns) {
        PyErr_NoMemory();
        return NULL;
    }
    columns->holders = 1;
    columns->width = width;
    int failed = width > GROWS_ABOVE && !(columns->model = make_model(names));
    for (Py_ssize_t i = 0; !failed && i < width; i++) {
        Column *column = &columns->columns[i];
        column->name = Py_NewRef(PyTuple_GetItem(names, i));
        column->values = PyObject_GetIter(PyTuple_GetItem(values, i));
        failed = !column->values;
        if (!failed)
            column->next = (iternextfunc)PyType_GetSlot(Py_TYPE(column->values), Py_tp_iternext);
    }
    if (failed) {
        let_go(columns);
        return NULL;
    }
    return columns;
}

PyDoc_STRVAR(rows_set_doc,
             "set_rows(names, columns, count)\n\n"
             "Give `count` rows of these columns: iterables in the order of `names`.");

static PyObject *
rows_set(Rows *self, PyObject *args)
{
    PyObject *names, *values;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!O!n", &PyTuple_Type, &names, &PyTuple_Type, &values, &count))
        return NULL;
    Columns *before = self->columns, *columns = make_columns(names, values);
    if (!columns)
        return NULL;
    self->columns = columns;
    self->left = count;
    self->given = 0;
    let_go(before);
    Py_CLEAR(self->recent[0]);
    Py_CLEAR(self->recent[1]);
    return Py_NewRef(Py_None);
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
