/* The loops of wholegrain that pay many times over in C: the index shuffle and the choice of a bin.
 *
 * Everything here has a numpy counterpart with the same results (`permute.py`, `_packing/`); the
 * tests compare the two. Only the stable ABI is used, so one build serves all Python versions.
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

/* The 32-bit words that C++'s std::seed_seq makes of one seed word. */
static void
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

/* All of 0..length-1 for length <= 2**16, by first return in the table of the whole block. */
static void
permute_small(uint32_t seed, int64_t *out, Py_ssize_t length)
{
    uint32_t keys[DATASET_ROUNDS];
    uint8_t f[256];
    derive_keys(seed, DATASET_ROUNDS, keys);
    const uint8_t k0 = (uint8_t)keys[0], k1 = (uint8_t)keys[1];
    const uint8_t k2 = (uint8_t)keys[2], k3 = (uint8_t)keys[3];
    for (uint32_t x = 0; x < 256; x++)
        f[x] = (uint8_t)mix(x, 8, 0xff);
    /* The chain of one walk waits for memory at every step, so several walk at once. */
    enum { LANES = 8 };
    uint32_t values[LANES];
    Py_ssize_t owners[LANES], next = 0;
    int live = 0;
    while (live < LANES && next < length) {
        owners[live] = next;
        values[live++] = (uint32_t)next++;
    }
    while (live) {
        for (int lane = 0; lane < live; lane++) {
            uint8_t left = (uint8_t)(values[lane] >> 8), right = (uint8_t)values[lane];
            left ^= (uint8_t)(f[right] ^ k0);
            right ^= (uint8_t)(f[left] ^ k1);
            left ^= (uint8_t)(f[right] ^ k2);
            right ^= (uint8_t)(f[left] ^ k3);
            values[lane] = ((uint32_t)left << 8) | right;
        }
        for (int lane = 0; lane < live;) {
            if ((Py_ssize_t)values[lane] >= length) {
                lane++;
                continue;
            }
            out[owners[lane]] = values[lane];
            if (next < length) {
                owners[lane] = next;
                values[lane++] = (uint32_t)next++;
            } else {
                live--;
                /* The last lane's value has been advanced as well: it is looked at here next. */
                owners[lane] = owners[live];
                values[lane] = values[live];
            }
        }
    }
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
    Py_RETURN_NONE;
}

PyDoc_STRVAR(permute_small_doc, "permutation(out, seed): fill int64 `out`, of length 1..65536");

static PyObject *
permutation(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    uint32_t seed;
    Py_buffer out;
    if (wrong_count("permutation", nargs, 2) || as_uint32(args[1], &seed) ||
        as_buffer(args[0], &out, sizeof(int64_t), PyBUF_WRITABLE))
        return NULL;
    const Py_ssize_t length = out.len / (Py_ssize_t)sizeof(int64_t);
    if (length < 1 || length > 65536) {
        PyBuffer_Release(&out);
        PyErr_SetString(PyExc_ValueError, "permutation() takes a length of 1..65536");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    if (length == 1)
        *(int64_t *)out.buf = 0;
    else
        permute_small(seed, out.buf, length);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------
 * Module
 */

#define FAST(name, doc) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, doc}

static PyMethodDef methods[] = {
    FAST(index_shuffle, index_shuffle_doc),
    FAST(shuffle_index, shuffle_index_doc),
    FAST(shuffle_indices, shuffle_indices_doc),
    FAST(permutation, permute_small_doc),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

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
