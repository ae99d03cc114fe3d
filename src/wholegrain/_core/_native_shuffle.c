/* The index shuffle: a Simon-style Feistel network with cycle walking.
 *
 * The counterparts in numpy and Python are in `permute.py`; the tests compare them.
 */
#include "_native.h"

/* Releasing the GIL costs about as much as shuffling a hundred indices. */
#define RELEASE_GIL_ABOVE 2048

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

static PyMethodDef methods[] = {
    FAST(index_shuffle, index_shuffle_doc),
    FAST(shuffle_indices, shuffle_indices_doc),
    {NULL, NULL, 0, NULL},
};

/* Called by `_native.c`, which holds the module. */
int
add_shuffle(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
