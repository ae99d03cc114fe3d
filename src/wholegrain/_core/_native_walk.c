/* The index shuffle of up to 65,536 elements, where a block has 16 bits and walks are long: of 64
 * elements, an index is enciphered a thousand times until it falls inside.
 *
 * Many indices walk at once, a byte of each per lane, in loops that compilers vectorise. Those that
 * have arrived stand still; now and then they are sorted out. Each may have a seed of its own, so
 * that many small windows or epochs walk together.
 */
#include "_native.h"

#define ROUNDS 4
#define LANES 1024
#define MOST_STEPS 64

typedef struct {
    uint8_t left[LANES], right[LANES];
    uint8_t keys[ROUNDS][LANES];
    uint16_t places[LANES];
} Walkers;

static inline uint8_t
mix(uint8_t x)
{
    const uint8_t by1 = (uint8_t)((x << 1) | (x >> 7)), by2 = (uint8_t)((x << 2) | (x >> 6));
    return (uint8_t)((by1 & x) ^ by2);
}

/* Encipher those that are above `high:low`; with `all` the others, too. */
static inline void
step(Walkers *restrict w, int n, uint8_t high, uint8_t low, int all)
{
    for (int i = 0; i < n; i++) {
        const uint8_t left = w->left[i], right = w->right[i];
        const uint8_t moves = (uint8_t)-(all | (left > high) | ((left == high) & (right > low)));
        uint8_t l = left, r = right;
        l ^= (uint8_t)(mix(r) ^ w->keys[0][i]);
        r ^= (uint8_t)(mix(l) ^ w->keys[1][i]);
        l ^= (uint8_t)(mix(r) ^ w->keys[2][i]);
        r ^= (uint8_t)(mix(l) ^ w->keys[3][i]);
        w->left[i] = (uint8_t)((l & moves) | (left & (uint8_t)~moves));
        w->right[i] = (uint8_t)((r & moves) | (right & (uint8_t)~moves));
    }
}

/* Write down where all are, and keep those that have not arrived. Returns how many that are. */
static int
sort_out(Walkers *restrict w, int n, int64_t *out, uint32_t max_index)
{
    int still = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t value = ((uint32_t)w->left[i] << 8) | w->right[i];
        out[w->places[i]] = value;
        w->places[still] = w->places[i];
        w->left[still] = w->left[i];
        w->right[still] = w->right[i];
        for (int k = 0; k < ROUNDS; k++)
            w->keys[k][still] = w->keys[k][i];
        still += value > max_index; /* No branch: whether it has arrived is a coin toss. */
    }
    return still;
}

/* `seeds` has one for each index, or is NULL where all have `seed`. */
static void
walk_all(const int64_t *in, const int64_t *seeds, uint32_t seed, int64_t *out, Py_ssize_t n,
         uint32_t max_index)
{
    Walkers w;
    uint32_t keys[ROUNDS];
    const uint8_t high = (uint8_t)(max_index >> 8), low = (uint8_t)max_index;
    /* Sorted out after a quarter of the steps that are expected. */
    const uint32_t quarter = 65536 / (max_index + 1) / 4;
    const int steps = quarter < 1 ? 1 : quarter > MOST_STEPS ? MOST_STEPS : (int)quarter;
    derive_keys(seed, ROUNDS, keys);
    for (Py_ssize_t start = 0; start < n; start += LANES) {
        const int size = n - start < LANES ? (int)(n - start) : LANES;
        for (int i = 0; i < size; i++) {
            if (seeds && (uint32_t)seeds[start + i] != seed) {
                seed = (uint32_t)seeds[start + i];
                derive_keys(seed, ROUNDS, keys);
            }
            w.left[i] = (uint8_t)(in[start + i] >> 8);
            w.right[i] = (uint8_t)in[start + i];
            w.places[i] = (uint16_t)i;
            for (int k = 0; k < ROUNDS; k++)
                w.keys[k][i] = (uint8_t)keys[k];
        }
        step(&w, size, high, low, 1);
        int walking = sort_out(&w, size, out + start, max_index);
        while (walking) {
            for (int k = 0; k < steps; k++)
                step(&w, walking, high, low, 0);
            walking = sort_out(&w, walking, out + start, max_index);
        }
    }
}

PyDoc_STRVAR(walk_doc, "walk(indices, seeds, out, length): fill int64 `out`; length <= 65536.\n\n"
                       "`seeds` is an int, or an int64 buffer with one for each index.");

static PyObject *
walk(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer in = {0}, seeds = {0}, out = {0}; /* Releasing an empty one does nothing. */
    int64_t length;
    uint32_t seed = 0;
    if (wrong_count("walk", nargs, 4) || as_int64(args[3], &length) ||
        (PyLong_Check(args[1]) ? as_uint32(args[1], &seed)
                               : as_buffer(args[1], &seeds, sizeof(int64_t), PyBUF_SIMPLE)) ||
        as_buffer(args[0], &in, sizeof(int64_t), PyBUF_SIMPLE) ||
        as_buffer(args[2], &out, sizeof(int64_t), PyBUF_WRITABLE))
        goto done;
    const int64_t *indices = in.buf;
    const Py_ssize_t n = in.len / (Py_ssize_t)sizeof(int64_t);
    if (length < 1 || length > 65536 || out.len != in.len || (seeds.obj && seeds.len != in.len)) {
        PyErr_SetString(PyExc_ValueError, "walk() takes buffers of one length, and 1..65536");
        goto done;
    }
    Py_ssize_t outside = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        outside += (uint64_t)indices[i] >= (uint64_t)length;
    if (outside)
        PyErr_Format(PyExc_IndexError, "%zd indices are not in 0..%lld", outside,
                     (long long)length - 1);
    else if (length == 1)
        memset(out.buf, 0, (size_t)out.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        walk_all(indices, seeds.buf, seed, out.buf, n, (uint32_t)length - 1);
        Py_END_ALLOW_THREADS
    }
done:
    PyBuffer_Release(&in);
    PyBuffer_Release(&seeds);
    PyBuffer_Release(&out);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    FAST(walk, walk_doc),
    {NULL, NULL, 0, NULL},
};

/* Called by `_native.c`, which holds the module. */
int
add_walk(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
