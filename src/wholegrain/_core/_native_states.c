/* The states of iterators, which some training loops ask for after every step.
 *
 * What it adds over Python's own dicts is that no bytecode runs: the parts of a position stand in
 * the object itself. Python code reads and writes them as it does attributes in `__slots__`. The
 * counterparts in Python are in `place.py` and `state.py`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

static PyObject *next_index, *find_next_index, *parent, *get_state;

/* ------------------------------------------------------------------------------------------------
 * Copies
 */

static PyObject *copied(PyObject *state);

/* Most of a state is numbers: they are not worth a call each. */
static int
can_change(PyObject *part)
{
    return Py_TYPE(part) == &PyDict_Type || Py_TYPE(part) == &PyList_Type;
}

static PyObject *
copied_part(PyObject *part)
{
    if (Py_EnterRecursiveCall(" while a state is copied"))
        return NULL;
    PyObject *copy = copied(part);
    Py_LeaveRecursiveCall();
    return copy;
}

static PyObject *
copied_dict(PyObject *dict)
{
    PyObject *copy = PyDict_New(), *key, *value;
    Py_ssize_t place = 0;
    while (copy && PyDict_Next(dict, &place, &key, &value)) {
        if (!can_change(value)) {
            if (PyDict_SetItem(copy, key, value))
                Py_CLEAR(copy);
            continue;
        }
        PyObject *part = copied_part(value);
        if (!part || PyDict_SetItem(copy, key, part))
            Py_CLEAR(copy);
        Py_XDECREF(part);
    }
    return copy;
}

static PyObject *
copied_list(PyObject *list)
{
    const Py_ssize_t size = PyList_Size(list);
    PyObject *copy = PyList_New(size);
    for (Py_ssize_t i = 0; copy && i < size; i++) {
        PyObject *part = copied_part(PyList_GetItem(list, i));
        if (!part || PyList_SetItem(copy, i, part))
            Py_CLEAR(copy);
    }
    return copy;
}

/* Making copies runs no Python code of anyone's: nothing changes meanwhile. */
static PyObject *
copied(PyObject *state)
{
    if (Py_TYPE(state) == &PyDict_Type)
        return copied_dict(state);
    if (Py_TYPE(state) == &PyList_Type)
        return copied_list(state);
    Py_INCREF(state);
    return state;
}

PyDoc_STRVAR(copy_state_doc,
             "Return a state that shares nothing with `state` which could change.");

static PyObject *
copy_state(PyObject *Py_UNUSED(module), PyObject *state)
{
    return copied(state);
}

/* ------------------------------------------------------------------------------------------------
 * Places
 */

/* All places have as many parts; what they mean is up to the type. */
typedef struct {
    PyObject_HEAD
    PyObject *first, *second, *third, *fourth;
} Place;

static int
place_traverse(Place *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->first);
    Py_VISIT(self->second);
    Py_VISIT(self->third);
    Py_VISIT(self->fourth);
    return 0;
}

static int
place_clear(Place *self)
{
    Py_CLEAR(self->first);
    Py_CLEAR(self->second);
    Py_CLEAR(self->third);
    Py_CLEAR(self->fourth);
    return 0;
}

static void
place_dealloc(Place *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    place_clear(self);
    freefunc free_self = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_self(self);
    Py_DECREF(type);
}

#define PART(name, part) {name, T_OBJECT_EX, offsetof(Place, part), 0, NULL}

/* ------------------------------------------------------------------------------------------------
 * A place in a chunk of elements
 */

PyDoc_STRVAR(chunk_place_doc,
             "A base class with the state of an iterator over indices, read in chunks.\n\n"
             "See `PythonChunkPlace`.");

/* Return a new reference to the next index. */
static PyObject *
index_in_chunk(Place *self)
{
    PyObject *base = self->first, *cursor = self->second, *indices = self->third;
    if (base && cursor && indices == Py_None)
        return PyNumber_Add(base, cursor);
    if (cursor && indices && PyList_Check(indices) && PyList_Size(indices)) {
        PyObject *index = PyList_GetItem(indices, PyLong_AsSsize_t(cursor));
        Py_XINCREF(index);
        return index;
    }
    return PyObject_CallMethodObjArgs((PyObject *)self, find_next_index, NULL);
}

static PyObject *
chunk_place_state(Place *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *index = index_in_chunk(self);
    PyObject *state = index ? PyDict_New() : NULL;
    if (state && PyDict_SetItem(state, next_index, index))
        Py_CLEAR(state);
    Py_XDECREF(index);
    return state;
}

static PyMemberDef chunk_place_members[] = {
    PART("_base", first),
    PART("_cursor", second),
    PART("_next_indices", third),
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef chunk_place_methods[] = {
    {"get_state", (PyCFunction)(void (*)(void))chunk_place_state, METH_NOARGS,
     "Return the position, as of the last element that was handed out."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot chunk_place_slots[] = {
    {Py_tp_dealloc, place_dealloc},
    {Py_tp_traverse, place_traverse},
    {Py_tp_clear, place_clear},
    {Py_tp_members, chunk_place_members},
    {Py_tp_methods, chunk_place_methods},
    {Py_tp_doc, (void *)chunk_place_doc},
    {0, NULL},
};

static PyType_Spec chunk_place_spec = {
    .name = "wholegrain._core._native.ChunkPlace",
    .basicsize = sizeof(Place),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = chunk_place_slots,
};

/* ------------------------------------------------------------------------------------------------
 * A place behind a state of the parent that was kept
 */

PyDoc_STRVAR(kept_place_doc,
             "A base class with the state of an iterator that keeps one of its parent.\n\n"
             "See `PythonKeptPlace`.");

/* Return a new reference to the parent's state. */
static PyObject *
kept_state(Place *self)
{
    if (self->first && self->first != Py_None)
        return copied(self->first);
    PyObject *below = PyObject_GetAttr((PyObject *)self, parent);
    PyObject *state = below ? PyObject_CallMethodObjArgs(below, get_state, NULL) : NULL;
    Py_XDECREF(below);
    return state;
}

/* Enter `part` under a key, if there is such a part. */
static int
set_part(PyObject *state, PyObject *keys, Py_ssize_t place, PyObject *part)
{
    if (!part)
        return 0;
    PyObject *key = PyTuple_GetItem(keys, place);
    return !key || PyDict_SetItem(state, key, part);
}

static PyObject *
kept_place_state(Place *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *kept = kept_state(self);
    /* From here on nobody else's code runs. */
    PyObject *keys = self->second;
    if (!kept || !keys)
        return kept;
    PyObject *state = PyDict_New();
    if (state && (set_part(state, keys, 0, kept) || set_part(state, keys, 1, self->third) ||
                  set_part(state, keys, 2, self->fourth)))
        Py_CLEAR(state);
    Py_DECREF(kept);
    return state;
}

static PyMemberDef kept_place_members[] = {
    PART("kept_state", first),
    PART("state_keys", second),
    PART("first_number", third),
    PART("second_number", fourth),
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef kept_place_methods[] = {
    {"get_state", (PyCFunction)(void (*)(void))kept_place_state, METH_NOARGS,
     "Return the position, as of the last element that was handed out."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kept_place_slots[] = {
    {Py_tp_dealloc, place_dealloc},
    {Py_tp_traverse, place_traverse},
    {Py_tp_clear, place_clear},
    {Py_tp_members, kept_place_members},
    {Py_tp_methods, kept_place_methods},
    {Py_tp_doc, (void *)kept_place_doc},
    {0, NULL},
};

static PyType_Spec kept_place_spec = {
    .name = "wholegrain._core._native.KeptPlace",
    .basicsize = sizeof(Place),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = kept_place_slots,
};

/* ------------------------------------------------------------------------------------------------
 * Module
 */

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

static int
intern(PyObject **name, const char *text)
{
    if (!*name)
        *name = PyUnicode_InternFromString(text);
    return *name ? 0 : -1;
}

static PyMethodDef functions[] = {
    {"copy_state", copy_state, METH_O, copy_state_doc},
    {NULL, NULL, 0, NULL},
};

/* Called by `_native.c`, which holds the module. */
int
add_states(PyObject *module)
{
    const int failed = intern(&next_index, "next_index") ||
                       intern(&find_next_index, "_next_index") || intern(&parent, "parent") ||
                       intern(&get_state, "get_state") || PyModule_AddFunctions(module, functions) ||
                       add_type(module, "ChunkPlace", &chunk_place_spec) ||
                       add_type(module, "KeptPlace", &kept_place_spec);
    return failed ? -1 : 0;
}
