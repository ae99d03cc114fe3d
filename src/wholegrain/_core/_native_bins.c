/* Packing: choosing a bin for each element, and copying its features there.
 *
 * The counterparts in Python and numpy are in `_packing/bins.py`; the tests compare them.
 */
#include "_native.h"

/* What may be copied byte by byte: numbers, not references. */
static char
plain_format(const Py_buffer *buffer)
{
    const char *format = buffer->format;
    return format && format[0] && !format[1] && strchr("?bBhHiIlLqQefd", format[0]) ? format[0]
                                                                                    : 0;
}

/* Whether the cells of `view` are like those of `cells`, which has one more dimension, of bins. */
static int
same_cells(const Py_buffer *view, const Py_buffer *cells, char format)
{
    if (!format || view->ndim < 1 || view->ndim != cells->ndim - 1 || !view->format ||
        view->format[0] != format || view->format[1] || view->itemsize != cells->itemsize)
        return 0;
    for (int dim = 1; dim < view->ndim; dim++)
        if (view->shape[dim] != cells->shape[dim + 1])
            return 0;
    return 1;
}

static void
number_piece(int32_t *segments, int32_t *positions, int64_t length, int32_t id)
{
    for (int64_t i = 0; i < length; i++)
        segments[i] = id;
    for (int64_t i = 0; i < length; i++)
        positions[i] = (int32_t)i;
}

typedef struct {
    PyObject *key;        /* of the element's dict, or NULL if the feature lies deeper */
    Py_buffer values;     /* (bins, capacity, ...) */
    Py_buffer segments;   /* (bins, capacity) int32; .obj is NULL for meta features */
    Py_buffer positions;
    int64_t capacity;
    int64_t alignment;
    Py_ssize_t cell_bytes;
    char format;          /* of the values, or 0 if they are not to be copied byte by byte */
    int64_t *room;        /* free cells of each bin, -1 when it takes no more elements */
} Feature;

typedef struct {
    PyObject_HEAD
    PyObject *array_type; /* numpy.ndarray */
    int best_fit;
    Py_ssize_t num_features;
    Py_ssize_t num_bins;
    Py_ssize_t num_open;  /* bins with elements: always the first ones */
    int64_t max_sequences;
    Feature *features;
    int64_t *fill;        /* used cells of each bin over all features */
    int64_t *counts;      /* elements in each bin */
} Bins;

/* A feature of the element being added. Each call has its own, since threads may call at once. */
typedef struct {
    Py_buffer view;
    int64_t length, start; /* in its bin */
} Piece;

static int
fits(const Bins *self, const Piece *pieces, Py_ssize_t bin)
{
    for (Py_ssize_t f = 0; f < self->num_features; f++)
        if (pieces[f].length > self->features[f].room[bin])
            return 0;
    return self->counts[bin] < self->max_sequences;
}

static Py_ssize_t
choose_bin(const Bins *self, const Piece *pieces)
{
    /* All bins after the first empty one are empty too, so it represents them. */
    const Py_ssize_t end =
        self->num_open < self->num_bins ? self->num_open + 1 : self->num_bins;
    Py_ssize_t best = -1;
    if (self->num_features == 1) {
        const int64_t length = pieces[0].length;
        const int64_t *room = self->features[0].room;
        if (!self->best_fit) {
            for (Py_ssize_t bin = 0; bin < end; bin++)
                if (length <= room[bin])
                    return bin;
            return -1;
        }
        int64_t least = INT64_MAX;
        for (Py_ssize_t bin = 0; bin < end; bin++)
            if (length <= room[bin] && room[bin] < least) {
                least = room[bin];
                best = bin;
            }
        return best;
    }
    int64_t most = -1;
    for (Py_ssize_t bin = 0; bin < end; bin++)
        if (fits(self, pieces, bin) && self->fill[bin] > most) {
            if (!self->best_fit)
                return bin;
            most = self->fill[bin];
            best = bin;
        }
    return best;
}

/* Make room for the pieces in a bin, note where each begins, and return the bin; -1 if none has. */
static Py_ssize_t
fill_bin(Bins *self, Piece *pieces)
{
    const Py_ssize_t bin = choose_bin(self, pieces);
    if (bin < 0)
        return -1;
    const int32_t id = (int32_t)++self->counts[bin];
    if (bin >= self->num_open)
        self->num_open = bin + 1;
    for (Py_ssize_t f = 0; f < self->num_features; f++) {
        Feature *feature = &self->features[f];
        const int64_t length = pieces[f].length;
        const int64_t start = feature->capacity - feature->room[bin];
        const int64_t end = start + length, align = feature->alignment;
        const int64_t free = align == 1 ? end : (end + align - 1) / align * align;
        pieces[f].start = start;
        feature->room[bin] = feature->capacity - free;
        self->fill[bin] += free - start;
        if (feature->segments.obj == NULL)
            continue;
        const int64_t cell = bin * feature->capacity + start;
        number_piece((int32_t *)feature->segments.buf + cell,
                     (int32_t *)feature->positions.buf + cell, length, id);
    }
    if (self->counts[bin] >= self->max_sequences)
        for (Py_ssize_t f = 0; f < self->num_features; f++)
            self->features[f].room[bin] = -1;
    return bin;
}

/* Take hold of the arrays of `element`. 0 means that they are not for copying byte by byte. */
static Py_ssize_t
view_element(const Bins *self, PyObject *element, Piece *pieces)
{
    Py_ssize_t f = 0;
    if (!PyDict_CheckExact(element))
        return 0;
    for (; f < self->num_features; f++) {
        const Feature *feature = &self->features[f];
        Py_buffer *view = &pieces[f].view;
        if (!feature->key || !feature->format)
            break;
        PyObject *array = PyObject_GetItem(element, feature->key);
        const int failed = !array || (PyObject *)Py_TYPE(array) != self->array_type ||
                           PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
        Py_XDECREF(array); /* the view holds it */
        if (failed)
            break;
        if (!same_cells(view, &feature->values, feature->format) ||
            view->shape[0] > feature->capacity) {
            PyBuffer_Release(view);
            break;
        }
        pieces[f].length = view->shape[0];
    }
    if (f == self->num_features)
        return 1;
    PyErr_Clear(); /* whatever it is, the slow path will say it better */
    while (f--)
        PyBuffer_Release(&pieces[f].view);
    return 0;
}

PyDoc_STRVAR(bins_add_doc,
             "add(elements, start, chosen) -> number of elements added, from `start` on, up to the\n"
             "first that does not fit or is not plain. Their bins are appended to `chosen`.");

static PyObject *
bins_add(Bins *self, PyObject *args)
{
    PyObject *elements, *chosen;
    Py_ssize_t start, index, bin;
    if (!PyArg_ParseTuple(args, "O!nO", &PyList_Type, &elements, &start, &chosen))
        return NULL;
    Piece *pieces = PyMem_Calloc((size_t)self->num_features + 1, sizeof(Piece));
    if (!pieces)
        return PyErr_NoMemory();
    int failed = 0;
    for (index = start; !failed && index < PyList_Size(elements); index++) {
        PyObject *element = PySequence_GetItem(elements, index);
        const int is_plain = element && view_element(self, element, pieces);
        failed = !element;
        Py_XDECREF(element); /* the views hold its arrays */
        if (!is_plain)
            break;
        Py_BEGIN_CRITICAL_SECTION(self);
        bin = fill_bin(self, pieces);
        Py_END_CRITICAL_SECTION();
        for (Py_ssize_t f = 0; f < self->num_features; f++) {
            const Feature *feature = &self->features[f];
            if (bin >= 0)
                memcpy((char *)feature->values.buf +
                           (bin * feature->capacity + pieces[f].start) * feature->cell_bytes,
                       pieces[f].view.buf, (size_t)pieces[f].view.len);
            PyBuffer_Release(&pieces[f].view);
        }
        if (bin < 0)
            break;
        if (chosen != Py_None) {
            PyObject *number = PyLong_FromSsize_t(bin);
            failed = !number || PyList_Append(chosen, number);
            Py_XDECREF(number);
        }
    }
    PyMem_Free(pieces);
    return failed ? NULL : PyLong_FromSsize_t(index - start);
}

PyDoc_STRVAR(bins_place_doc,
             "place(lengths) -> (bin, start, ...) of each feature, or None if no bin has room.");

static PyObject *
bins_place(Bins *self, PyObject *lengths)
{
    if (PyTuple_Size(lengths) != self->num_features) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "one length is needed for each feature");
        return NULL;
    }
    PyObject *place = NULL;
    Py_ssize_t bin;
    Piece *pieces = PyMem_Calloc((size_t)self->num_features + 1, sizeof(Piece));
    if (!pieces)
        return PyErr_NoMemory();
    for (Py_ssize_t f = 0; f < self->num_features; f++) {
        if (as_int64(PyTuple_GetItem(lengths, f), &pieces[f].length))
            goto done;
        if (pieces[f].length < 0 || pieces[f].length > self->features[f].capacity) {
            PyErr_SetString(PyExc_ValueError, "an element is longer than a bin");
            goto done;
        }
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    bin = fill_bin(self, pieces);
    Py_END_CRITICAL_SECTION();
    if (bin < 0)
        place = Py_NewRef(Py_None);
    else if ((place = PyTuple_New(self->num_features + 1)) != NULL)
        for (Py_ssize_t f = 0; place && f <= self->num_features; f++) {
            PyObject *number = PyLong_FromLongLong(f ? pieces[f - 1].start : bin);
            if (!number || PyTuple_SetItem(place, f, number))
                Py_CLEAR(place);
        }
done:
    PyMem_Free(pieces);
    return place;
}

static PyObject *
bins_num_open(Bins *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(self->num_open);
}

static void
bins_dealloc(Bins *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Py_ssize_t f = 0; self->features && f < self->num_features; f++) {
        Feature *feature = &self->features[f];
        Py_XDECREF(feature->key);
        PyBuffer_Release(&feature->values);
        PyBuffer_Release(&feature->segments);
        PyBuffer_Release(&feature->positions);
        PyMem_Free(feature->room);
    }
    PyMem_Free(self->features);
    PyMem_Free(self->fill);
    PyMem_Free(self->counts);
    Py_XDECREF(self->array_type);
    freefunc free_self = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_self(self);
    Py_DECREF(type);
}

static int
init_feature(Feature *feature, PyObject *description, Py_ssize_t num_bins)
{
    PyObject *key, *values, *segments, *positions;
    long long alignment;
    if (!PyTuple_Check(description)) {
        PyErr_SetString(PyExc_TypeError, "a feature is described by a tuple");
        return 1;
    }
    if (!PyArg_ParseTuple(description, "OOOOL", &key, &values, &segments, &positions, &alignment))
        return 1;
    if (key != Py_None) {
        Py_INCREF(key);
        feature->key = key;
    }
    const int writable = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE;
    if (PyObject_GetBuffer(values, &feature->values, writable)) {
        /* Dates, for one, have no buffer. Only the shape is needed then. */
        PyErr_Clear();
        PyObject *row = PySequence_GetItem(values, 0);
        feature->capacity = row ? (int64_t)PyObject_Size(row) : -1;
        Py_XDECREF(row);
        if (feature->capacity < 0)
            return 1;
    } else {
        if (feature->values.ndim < 2 || feature->values.shape[0] != num_bins) {
            PyErr_SetString(PyExc_ValueError, "`values` must be (bins, capacity, ...)");
            return 1;
        }
        feature->capacity = feature->values.shape[1];
        feature->format = plain_format(&feature->values);
        feature->cell_bytes = feature->values.itemsize;
        for (int dim = 2; dim < feature->values.ndim; dim++)
            feature->cell_bytes *= feature->values.shape[dim];
    }
    if (segments != Py_None) {
        const Py_ssize_t nbytes = num_bins * (Py_ssize_t)feature->capacity * 4;
        if (as_buffer(segments, &feature->segments, sizeof(int32_t), PyBUF_WRITABLE) ||
            as_buffer(positions, &feature->positions, sizeof(int32_t), PyBUF_WRITABLE))
            return 1;
        if (feature->segments.len != nbytes || feature->positions.len != nbytes) {
            PyErr_SetString(PyExc_ValueError, "segment ids and positions must be (bins, capacity)");
            return 1;
        }
    }
    feature->alignment = alignment < 1 ? 1 : alignment;
    feature->room = PyMem_Malloc(sizeof(int64_t) * (size_t)num_bins);
    if (!feature->room) {
        PyErr_NoMemory();
        return 1;
    }
    for (Py_ssize_t bin = 0; bin < num_bins; bin++)
        feature->room[bin] = feature->capacity;
    return 0;
}

PyDoc_STRVAR(bins_doc,
             "Bins(features, num_bins, max_sequences, best_fit, array_type)\n\n"
             "`features` are tuples (key or None, values, segment ids or None, positions or None,\n"
             "alignment); the arrays are filled in place. `max_sequences` 0 means no limit.");

static PyObject *
bins_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *features, *array_type;
    Py_ssize_t num_bins;
    long long max_sequences;
    int best_fit;
    if (!PyArg_ParseTuple(args, "O!nLpO", &PyTuple_Type, &features, &num_bins, &max_sequences,
                          &best_fit, &array_type))
        return NULL;
    if (num_bins < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one bin is needed");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Bins *self = (Bins *)allocate(type, 0);
    if (!self)
        return NULL;
    const Py_ssize_t num_features = PyTuple_Size(features);
    Py_INCREF(array_type);
    self->array_type = array_type;
    self->best_fit = best_fit;
    self->num_bins = num_bins;
    self->max_sequences = max_sequences > 0 ? max_sequences : INT64_MAX;
    self->features = PyMem_Calloc((size_t)num_features + 1, sizeof(Feature));
    self->fill = PyMem_Calloc((size_t)num_bins, sizeof(int64_t));
    self->counts = PyMem_Calloc((size_t)num_bins, sizeof(int64_t));
    if (!self->features || !self->fill || !self->counts) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->num_features = num_features;
    for (Py_ssize_t f = 0; f < num_features; f++)
        if (init_feature(&self->features[f], PyTuple_GetItem(features, f), num_bins)) {
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

static PyMethodDef bins_methods[] = {
    {"add", (PyCFunction)(void (*)(void))bins_add, METH_VARARGS, bins_add_doc},
    {"place", (PyCFunction)(void (*)(void))bins_place, METH_O, bins_place_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef bins_getset[] = {
    {"num_open", (getter)bins_num_open, NULL, "How many bins have elements.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot bins_slots[] = {
    {Py_tp_new, bins_new},
    {Py_tp_dealloc, bins_dealloc},
    {Py_tp_methods, bins_methods},
    {Py_tp_getset, bins_getset},
    {Py_tp_doc, (void *)bins_doc},
    {0, NULL},
};

static PyType_Spec bins_spec = {
    .name = "wholegrain._core._native.Bins",
    .basicsize = sizeof(Bins),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = bins_slots,
};

/* Called by `_native.c`, which holds the module. */
int
add_bins(PyObject *module)
{
    return add_type(module, "Bins", &bins_spec);
}
