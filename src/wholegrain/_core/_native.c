/* The loops of wholegrain that pay many times over in C: the index shuffle and the choice of a bin.
 *
 * Everything here has a numpy counterpart with the same results (`permute.py`, `_packing/`); the
 * tests compare the two. Only the stable ABI is used, so one build serves all Python versions.
 *
 * It says Py_NewRef(Py_None), not Py_RETURN_NONE and its like: the headers of Python 3.12 and
 * later do not count what those return, since None is immortal there. A build with such headers
 * would free None under Python 3.11.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Releasing the GIL costs about as much as shuffling a hundred indices. */
#define RELEASE_GIL_ABOVE 2048

/* ------------------------------------------------------------------------------------------------
 * Arguments
 */

static int
wrong_count(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, not %zd", name, wanted, given);
    return 1;
}

static int
as_int64(PyObject *object, int64_t *value)
{
    *value = (int64_t)PyLong_AsLongLong(object);
    return *value == -1 && PyErr_Occurred() != NULL;
}

static int
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
static int
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

/* ------------------------------------------------------------------------------------------------
 * The index shuffle: a Simon-style Feistel network with cycle walking
 */

#define MAX_ROUNDS 1024
#define DATASET_ROUNDS 4

typedef struct {
    int64_t max_index;
    uint32_t word_bits; /* half a block, 8..32 */
    uint32_t word_mask;
    uint64_t block_mask;
    uint32_t rounds;
    const uint32_t *keys;
} Cipher;

void derive_keys(uint32_t seed, uint32_t n, uint32_t *keys); /* Also for `_native_walk.c`. */

/* The 32-bit words that C++'s std::seed_seq makes of one seed word. */
void
derive_keys(uint32_t seed, uint32_t n, uint32_t *o)
{
    const uint32_t t = n >= 623 ? 11 : n >= 68 ? 7 : n >= 39 ? 5 : n >= 7 ? 3 : (n - 1) / 2;
    const uint32_t p = (n - t) / 2;
    const uint32_t q = p + t;
    for (uint32_t k = 0; k < n; k++)
        o[k] = 0x8b8b8b8bu;
    for (uint32_t phase = 1; phase <= 2; phase++) {
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t last = k ? k - 1 : n - 1;
            const uint32_t kp = k + p < n ? k + p : k + p - n;
            const uint32_t kq = k + q < n ? k + q : k + q - n;
            uint32_t x = phase == 1 ? o[k] ^ o[kp] ^ o[last] : o[k] + o[kp] + o[last];
            x ^= x >> 27;
            if (phase == 1) {
                const uint32_t r1 = 1664525u * x;
                const uint32_t r2 = r1 + (k == 0 ? 1 : k == 1 ? 1 + seed : k);
                o[kp] += r1;
                o[kq] += r2;
                o[k] = r2;
            } else {
                const uint32_t r3 = 1566083941u * x;
                const uint32_t r4 = r3 - k;
                o[kp] ^= r3;
                o[kq] ^= r4;
                o[k] = r4;
            }
        }
    }
}

/* Equals ceil(log2(max_index)) / 2 in double precision below 2**48; Python passes it above. */
static uint32_t
derive_word_bits(int64_t max_index)
{
    uint32_t bits = 0;
    for (uint64_t rest = (uint64_t)max_index - 1; rest; rest >>= 1)
        bits++;
    bits += bits & 1;
    return bits < 16 ? 8 : bits / 2;
}

static void
init_cipher(Cipher *cipher, int64_t max_index, uint32_t word_bits, uint32_t rounds,
            const uint32_t *keys)
{
    cipher->max_index = max_index;
    cipher->word_bits = word_bits;
    cipher->word_mask = (uint32_t)((UINT64_C(1) << word_bits) - 1);
    cipher->block_mask = word_bits == 32 ? UINT64_MAX : (UINT64_C(1) << (2 * word_bits)) - 1;
    cipher->rounds = rounds;
    cipher->keys = keys;
}

static inline uint32_t
mix(uint32_t x, uint32_t bits, uint32_t mask)
{
    const uint32_t by1 = (x << 1) | (x >> (bits - 1));
    const uint32_t by2 = (x << 2) | (x >> (bits - 2));
    const uint32_t by8 = (x << 8) | (x >> (bits - 8));
    return ((by1 & by8) ^ by2) & mask;
}

static inline uint64_t
encipher(const Cipher *c, uint64_t value)
{
    const uint32_t bits = c->word_bits, mask = c->word_mask;
    uint32_t left = (uint32_t)(value >> bits) & mask, right = (uint32_t)value & mask;
    for (uint32_t j = 0; j < c->rounds; j += 2) {
        left ^= mix(right, bits, mask) ^ (c->keys[j] & mask);
        right ^= mix(left, bits, mask) ^ (c->keys[j + 1] & mask);
    }
    return ((uint64_t)left << bits) | right;
}

static int64_t
shuffle_scalar(const Cipher *c, int64_t index)
{
    uint64_t value = (uint64_t)index;
    if (value > c->block_mask)
        return index; /* the block has no room for it, so it stays: see permute.py */
    do
        value = encipher(c, value);
    while (value > (uint64_t)c->max_index);
    return (int64_t)value;
}

/* Blocks that stay in the first-level cache. */
#define BLOCK 512

/* The same as `encipher`, over a block, written so that compilers vectorise it. */
static void
encipher_block(const Cipher *c, uint64_t *restrict values, int n)
{
    const uint32_t bits = c->word_bits, mask = c->word_mask;
    const uint32_t k0 = c->keys[0] & mask, k1 = c->keys[1] & mask;
    const uint32_t k2 = c->keys[2] & mask, k3 = c->keys[3] & mask;
    uint32_t lefts[BLOCK], rights[BLOCK];
    for (int i = 0; i < n; i++) {
        lefts[i] = (uint32_t)(values[i] >> bits);
        rights[i] = (uint32_t)values[i];
    }
    for (int i = 0; i < n; i++) {
        uint32_t left = lefts[i] & mask, right = rights[i] & mask;
        left ^= mix(right, bits, mask) ^ k0;
        right ^= mix(left, bits, mask) ^ k1;
        left ^= mix(right, bits, mask) ^ k2;
        right ^= mix(left, bits, mask) ^ k3;
        lefts[i] = left;
        rights[i] = right;
    }
    for (int i = 0; i < n; i++)
        values[i] = ((uint64_t)lefts[i] << bits) | rights[i];
}

/* Returns the number of indices outside of 0..max_index; they are left alone. */
static Py_ssize_t
shuffle_array(const Cipher *c, const int64_t *in, int64_t *out, Py_ssize_t n)
{
    const uint64_t max_index = (uint64_t)c->max_index;
    uint64_t values[BLOCK];
    uint16_t places[BLOCK];
    Py_ssize_t outside = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        outside += (uint64_t)in[i] > max_index;
    if (outside)
        return outside;
    for (Py_ssize_t start = 0; start < n; start += BLOCK) {
        const int size = n - start < BLOCK ? (int)(n - start) : BLOCK;
        int walking = 0;
        memcpy(values, in + start, (size_t)size * sizeof(uint64_t));
        encipher_block(c, values, size);
        memcpy(out + start, values, (size_t)size * sizeof(uint64_t));
        /* No branches: whether a value fell outside is a coin toss. */
        for (int i = 0; i < size; i++) {
            const uint64_t value = values[i];
            places[walking] = (uint16_t)i;
            values[walking] = value;
            walking += value > max_index;
        }
        while (walking) {
            int still = 0;
            encipher_block(c, values, walking);
            for (int i = 0; i < walking; i++) {
                const uint64_t value = values[i];
                out[start + places[i]] = (int64_t)value;
                places[still] = places[i];
                values[still] = value;
                still += value > max_index;
            }
            walking = still;
        }
    }
    if (max_index > c->block_mask)
        for (Py_ssize_t i = 0; i < n; i++)
            if ((uint64_t)in[i] > c->block_mask)
                out[i] = in[i];
    return 0;
}

PyDoc_STRVAR(index_shuffle_doc, "index_shuffle(index, max_index, seed, rounds, word_bits) -> int");

static PyObject *
index_shuffle(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    int64_t index, max_index;
    uint32_t seed, rounds, word_bits, keys[MAX_ROUNDS];
    Cipher cipher;
    if (wrong_count("index_shuffle", nargs, 5) || as_int64(args[0], &index) ||
        as_int64(args[1], &max_index) || as_uint32(args[2], &seed) ||
        as_uint32(args[3], &rounds) || as_uint32(args[4], &word_bits))
        return NULL;
    if (rounds < 4 || rounds > MAX_ROUNDS || rounds % 2 || index < 0 || index > max_index ||
        word_bits < 8 || word_bits > 32) {
        PyErr_SetString(PyExc_ValueError, "index_shuffle() arguments out of range");
        return NULL;
    }
    derive_keys(seed, rounds, keys);
    init_cipher(&cipher, max_index, word_bits, rounds, keys);
    return PyLong_FromLongLong(shuffle_scalar(&cipher, index));
}

PyDoc_STRVAR(shuffle_index_doc, "shuffle_index(index, length, seed) -> int; length <= 2**48");

static PyObject *
shuffle_index(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    int64_t index, length;
    uint32_t seed, keys[DATASET_ROUNDS];
    Cipher cipher;
    if (wrong_count("shuffle_index", nargs, 3) || as_int64(args[0], &index) ||
        as_int64(args[1], &length) || as_uint32(args[2], &seed))
        return NULL;
    if (index < 0 || index >= length) {
        PyErr_Format(PyExc_IndexError, "index %lld is not in 0..%lld", (long long)index,
                     (long long)length - 1);
        return NULL;
    }
    if (length == 1)
        return PyLong_FromLong(0);
    derive_keys(seed, DATASET_ROUNDS, keys);
    init_cipher(&cipher, length - 1, derive_word_bits(length - 1), DATASET_ROUNDS, keys);
    return PyLong_FromLongLong(shuffle_scalar(&cipher, index));
}

PyDoc_STRVAR(shuffle_indices_doc,
             "shuffle_indices(indices, out, length, seed, word_bits): fill int64 `out`");

static PyObject *
shuffle_indices(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    int64_t length;
    uint32_t seed, word_bits, keys[DATASET_ROUNDS];
    Py_buffer in, out;
    Cipher cipher;
    if (wrong_count("shuffle_indices", nargs, 5) || as_int64(args[2], &length) ||
        as_uint32(args[3], &seed) || as_uint32(args[4], &word_bits))
        return NULL;
    if (length < 2 || word_bits < 8 || word_bits > 32) {
        PyErr_SetString(PyExc_ValueError, "shuffle_indices() arguments out of range");
        return NULL;
    }
    if (as_buffer(args[0], &in, sizeof(int64_t), PyBUF_SIMPLE))
        return NULL;
    if (as_buffer(args[1], &out, sizeof(int64_t), PyBUF_WRITABLE)) {
        PyBuffer_Release(&in);
        return NULL;
    }
    Py_ssize_t outside = 0;
    const Py_ssize_t n = in.len / (Py_ssize_t)sizeof(int64_t);
    if (out.len < in.len)
        PyErr_SetString(PyExc_ValueError, "`out` is shorter than `indices`");
    else {
        derive_keys(seed, DATASET_ROUNDS, keys);
        init_cipher(&cipher, length - 1, word_bits, DATASET_ROUNDS, keys);
        PyThreadState *thread = n > RELEASE_GIL_ABOVE ? PyEval_SaveThread() : NULL;
        outside = shuffle_array(&cipher, in.buf, out.buf, n);
        if (thread)
            PyEval_RestoreThread(thread);
        if (outside)
            PyErr_Format(PyExc_IndexError, "%zd indices are not in 0..%lld", outside,
                         (long long)length - 1);
    }
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    if (PyErr_Occurred())
        return NULL;
    return Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------------------------------------
 * Packing: choosing a bin for each element, and copying its features there
 */

/* What may be copied byte by byte: numbers, not references. */
static char
plain_format(const Py_buffer *buffer)
{
    const char *format = buffer->format;
    return format && format[0] && !format[1] && strchr("?bBhHiIlLqQefd", format[0]) ? format[0]
                                                                                    : 0;
}

/* Whether the cells of `view` are like those of `cells`, whose outer `skip` dimensions are others. */
static int
same_cells(const Py_buffer *view, const Py_buffer *cells, char format, int skip)
{
    if (!format || view->ndim < 1 || view->ndim != cells->ndim - skip || !view->format ||
        view->format[0] != format || view->format[1] || view->itemsize != cells->itemsize)
        return 0;
    for (int dim = 1; dim < view->ndim; dim++)
        if (view->shape[dim] != cells->shape[dim + skip])
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

/* Copies pieces into a row; the number of those that could be copied. */
static Py_ssize_t
join(Py_buffer *row, PyObject *sequences, PyObject *starts, PyObject *stops, int32_t *segments,
     int32_t *positions, PyObject *array_type)
{
    const char format = plain_format(row);
    const Py_ssize_t count = PyList_Size(sequences);
    const int64_t length = row->ndim ? row->shape[0] : 0;
    Py_ssize_t cell_bytes = row->itemsize;
    for (int dim = 1; dim < row->ndim; dim++)
        cell_bytes *= row->shape[dim];
    int64_t fill = 0;
    Py_ssize_t piece = 0;
    for (; piece < count; piece++) {
        PyObject *sequence = PyList_GetItem(sequences, piece);
        int64_t start, stop;
        Py_buffer view;
        if (as_int64(PyList_GetItem(starts, piece), &start) ||
            as_int64(PyList_GetItem(stops, piece), &stop) ||
            (PyObject *)Py_TYPE(sequence) != array_type ||
            PyObject_GetBuffer(sequence, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
            break;
        const int plain = same_cells(&view, row, format, 0) && 0 <= start && start <= stop &&
                          stop <= view.shape[0] && stop - start <= length - fill;
        if (plain) {
            memcpy((char *)row->buf + fill * cell_bytes, (char *)view.buf + start * cell_bytes,
                   (size_t)((stop - start) * cell_bytes));
            if (segments)
                number_piece(segments + fill, positions + fill, stop - start,
                             (int32_t)(piece + 1));
            fill += stop - start;
        }
        PyBuffer_Release(&view);
        if (!plain)
            break;
    }
    memset((char *)row->buf + fill * cell_bytes, 0, (size_t)((length - fill) * cell_bytes));
    if (segments) {
        memset(segments + fill, 0, (size_t)(length - fill) * sizeof(int32_t));
        memset(positions + fill, 0, (size_t)(length - fill) * sizeof(int32_t));
    }
    return piece;
}

PyDoc_STRVAR(join_pieces_doc,
             "join_pieces(row, sequences, starts, stops, segment_ids, positions, array_type)\n\n"
             "Lay pieces end to end in `row`, zeros behind, and number them in the int32 arrays\n"
             "(or None). False if they are not plain arrays: then nothing is sure about `row`.");

static PyObject *
join_pieces(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer row, segments = {0}, positions = {0};
    PyObject *answer = NULL;
    if (wrong_count("join_pieces", nargs, 7))
        return NULL;
    for (int list = 1; list <= 3; list++)
        if (!PyList_Check(args[list]) || PyList_Size(args[list]) != PyList_Size(args[1])) {
            PyErr_SetString(PyExc_TypeError, "pieces are given as three lists of one length");
            return NULL;
        }
    if (PyObject_GetBuffer(args[0], &row, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)) {
        PyErr_Clear(); /* dates, for one, have no buffer */
        return PyBool_FromLong(0);
    }
    if (args[4] != Py_None) {
        if (as_buffer(args[4], &segments, sizeof(int32_t), PyBUF_WRITABLE) ||
            as_buffer(args[5], &positions, sizeof(int32_t), PyBUF_WRITABLE))
            goto done;
        if (row.ndim < 1 || segments.len != row.shape[0] * (Py_ssize_t)sizeof(int32_t) ||
            positions.len != segments.len) {
            PyErr_SetString(PyExc_ValueError, "the arrays of a row differ in length");
            goto done;
        }
    }
    if (row.ndim < 1 || !plain_format(&row))
        answer = Py_False;
    else
        answer = join(&row, args[1], args[2], args[3], segments.buf, positions.buf, args[6]) ==
                         PyList_Size(args[1])
                     ? Py_True
                     : Py_False;
    PyErr_Clear();
    Py_INCREF(answer);
done:
    PyBuffer_Release(&row);
    PyBuffer_Release(&segments);
    PyBuffer_Release(&positions);
    return answer;
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
    Py_buffer *views;     /* of the element being added */
    int64_t *lengths;     /* likewise */
    int64_t *fill;        /* used cells of each bin over all features */
    int64_t *counts;      /* elements in each bin */
} Bins;

static int
fits(const Bins *self, Py_ssize_t bin)
{
    for (Py_ssize_t f = 0; f < self->num_features; f++)
        if (self->lengths[f] > self->features[f].room[bin])
            return 0;
    return self->counts[bin] < self->max_sequences;
}

static Py_ssize_t
choose_bin(const Bins *self)
{
    /* Behind the first empty bin all are empty: it stands for them. */
    const Py_ssize_t end =
        self->num_open < self->num_bins ? self->num_open + 1 : self->num_bins;
    Py_ssize_t best = -1;
    if (self->num_features == 1) {
        const int64_t length = self->lengths[0];
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
        if (fits(self, bin) && self->fill[bin] > most) {
            if (!self->best_fit)
                return bin;
            most = self->fill[bin];
            best = bin;
        }
    return best;
}

/* Put an element of `self->lengths` into `bin`; `starts` tells where each feature begins. */
static void
fill_bin(Bins *self, Py_ssize_t bin, int64_t *starts)
{
    const int32_t id = (int32_t)++self->counts[bin];
    if (bin >= self->num_open)
        self->num_open = bin + 1;
    for (Py_ssize_t f = 0; f < self->num_features; f++) {
        Feature *feature = &self->features[f];
        const int64_t length = self->lengths[f];
        const int64_t start = feature->capacity - feature->room[bin];
        const int64_t end = start + length, align = feature->alignment;
        const int64_t free = align == 1 ? end : (end + align - 1) / align * align;
        starts[f] = start;
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
}

/* Take hold of the arrays of `element`. 0 means that they are not for copying byte by byte. */
static Py_ssize_t
view_element(Bins *self, PyObject *element)
{
    Py_ssize_t f = 0;
    if (!PyDict_CheckExact(element))
        return 0;
    for (; f < self->num_features; f++) {
        const Feature *feature = &self->features[f];
        Py_buffer *view = &self->views[f];
        if (!feature->key || !feature->format)
            break;
        PyObject *array = PyDict_GetItemWithError(element, feature->key);
        if (!array || (PyObject *)Py_TYPE(array) != self->array_type ||
            PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
            break;
        if (!same_cells(view, &feature->values, feature->format, 1) ||
            view->shape[0] > feature->capacity) {
            PyBuffer_Release(view);
            break;
        }
        self->lengths[f] = view->shape[0];
    }
    if (f == self->num_features)
        return 1;
    PyErr_Clear(); /* whatever it is, the slow path will say it better */
    while (f--)
        PyBuffer_Release(&self->views[f]);
    return 0;
}

PyDoc_STRVAR(bins_add_doc,
             "add(elements, start, chosen) -> number of elements added, from `start` on, up to the\n"
             "first that does not fit or is not plain. Their bins are appended to `chosen`.");

static PyObject *
bins_add(Bins *self, PyObject *args)
{
    PyObject *elements, *chosen;
    Py_ssize_t start, index;
    if (!PyArg_ParseTuple(args, "O!nO", &PyList_Type, &elements, &start, &chosen))
        return NULL;
    int64_t *starts = PyMem_Malloc(sizeof(int64_t) * (size_t)(self->num_features + 1));
    if (!starts)
        return PyErr_NoMemory();
    int failed = 0;
    for (index = start; !failed && index < PyList_Size(elements); index++) {
        if (!view_element(self, PyList_GetItem(elements, index)))
            break;
        const Py_ssize_t bin = choose_bin(self);
        if (bin >= 0) {
            fill_bin(self, bin, starts);
            for (Py_ssize_t f = 0; f < self->num_features; f++) {
                const Feature *feature = &self->features[f];
                char *row = (char *)feature->values.buf +
                            (bin * feature->capacity + starts[f]) * feature->cell_bytes;
                memcpy(row, self->views[f].buf, (size_t)self->views[f].len);
            }
        }
        for (Py_ssize_t f = 0; f < self->num_features; f++)
            PyBuffer_Release(&self->views[f]);
        if (bin < 0)
            break;
        if (chosen != Py_None) {
            PyObject *number = PyLong_FromSsize_t(bin);
            failed = !number || PyList_Append(chosen, number);
            Py_XDECREF(number);
        }
    }
    PyMem_Free(starts);
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
    for (Py_ssize_t f = 0; f < self->num_features; f++) {
        if (as_int64(PyTuple_GetItem(lengths, f), &self->lengths[f]))
            return NULL;
        if (self->lengths[f] < 0 || self->lengths[f] > self->features[f].capacity) {
            PyErr_SetString(PyExc_ValueError, "an element is longer than a bin");
            return NULL;
        }
    }
    const Py_ssize_t bin = choose_bin(self);
    if (bin < 0)
        return Py_NewRef(Py_None);
    PyObject *place = PyTuple_New(self->num_features + 1);
    int64_t *starts = PyMem_Malloc(sizeof(int64_t) * (size_t)(self->num_features + 1));
    if (!place || !starts) {
        Py_XDECREF(place);
        PyMem_Free(starts);
        return PyErr_NoMemory();
    }
    fill_bin(self, bin, starts);
    PyObject *number = PyLong_FromSsize_t(bin);
    for (Py_ssize_t f = 0; number && f <= self->num_features; f++) {
        PyTuple_SetItem(place, f, number);
        if (f < self->num_features)
            number = PyLong_FromLongLong(starts[f]);
    }
    PyMem_Free(starts);
    if (!number)
        Py_CLEAR(place);
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
    PyMem_Free(self->views);
    PyMem_Free(self->lengths);
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
    self->views = PyMem_Calloc((size_t)num_features + 1, sizeof(Py_buffer));
    self->lengths = PyMem_Calloc((size_t)num_features + 1, sizeof(int64_t));
    self->fill = PyMem_Calloc((size_t)num_bins, sizeof(int64_t));
    self->counts = PyMem_Calloc((size_t)num_bins, sizeof(int64_t));
    if (!self->features || !self->views || !self->lengths || !self->fill || !self->counts) {
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

/* ------------------------------------------------------------------------------------------------
 * Module
 */

#define FAST(name, doc) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, doc}

static PyMethodDef methods[] = {
    FAST(index_shuffle, index_shuffle_doc),
    FAST(shuffle_index, shuffle_index_doc),
    FAST(shuffle_indices, shuffle_indices_doc),
    FAST(join_pieces, join_pieces_doc),
    {NULL, NULL, 0, NULL},
};

int add_columns(PyObject *module);  /* in `_native_columns.c` */
int add_copy(PyObject *module);     /* in `_native_copy.c` */
int add_rows(PyObject *module);     /* in `_native_rows.c` */
int add_tfrecord(PyObject *module); /* in `_native_tfrecord.c` */
int add_walk(PyObject *module);     /* in `_native_walk.c` */

static int
exec_module(PyObject *module)
{
    PyObject *bins = PyType_FromSpec(&bins_spec);
    if (!bins)
        return -1;
    const int failed = PyModule_AddObjectRef(module, "Bins", bins);
    Py_DECREF(bins);
    if (failed || add_columns(module) || add_copy(module) || add_rows(module))
        return -1;
    return add_tfrecord(module) || add_walk(module) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "wholegrain._core._native",
    .m_doc = "The loops of wholegrain that pay in C; the numpy counterparts are beside the callers.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
