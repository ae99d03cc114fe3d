/* The records in a block of a TFRecord file. The counterpart in Python is `_tfrecord_reader.py`. */
#include "_native.h"

#define HEAD_BYTES 12 /* a length and its checksum */
#define FOOT_BYTES 4  /* the checksum of the payload */

/* CRC-32C: by the processor's instruction for it, or eight bytes at a time with tables. */
static uint32_t crc_tables[8][256];

static void
fill_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
        crc_tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            const uint32_t before = crc_tables[table - 1][byte];
            crc_tables[table][byte] = (before >> 8) ^ crc_tables[0][before & 255];
        }
}

static uint32_t
crc_by_tables(uint32_t crc, const unsigned char *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
               (uint32_t)data[3] << 24;
        crc = crc_tables[7][crc & 255] ^ crc_tables[6][crc >> 8 & 255] ^
              crc_tables[5][crc >> 16 & 255] ^ crc_tables[4][crc >> 24] ^
              crc_tables[3][data[4]] ^ crc_tables[2][data[5]] ^ crc_tables[1][data[6]] ^
              crc_tables[0][data[7]];
    }
    while (size--)
        crc = crc_tables[0][(crc ^ *data++) & 255] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>

/* The instruction takes three cycles, and three may be on their way at once: long payloads are
 * computed in three parts, whose remainders are moved on over the zeros that follow them. */
#define PART_BYTES 256
static uint32_t over_part[4][256]; /* what a remainder becomes after PART_BYTES of zeros */

static void
fill_part_tables(void)
{
    static const unsigned char zeros[PART_BYTES];
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++)
        of_bit[bit] = crc_by_tables(1u << bit, zeros, PART_BYTES);
    for (int table = 0; table < 4; table++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t moved = 0;
            for (int bit = 0; bit < 8; bit++)
                if (byte >> bit & 1)
                    moved ^= of_bit[8 * table + bit];
            over_part[table][byte] = moved;
        }
}

static uint32_t
moved_over_part(uint32_t crc)
{
    return over_part[0][crc & 255] ^ over_part[1][crc >> 8 & 255] ^
           over_part[2][crc >> 16 & 255] ^ over_part[3][crc >> 24];
}

static uint64_t
word(const unsigned char *data)
{
    uint64_t value;
    memcpy(&value, data, 8);
    return value;
}

__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t first, const unsigned char *data, size_t size)
{
    uint64_t crc = first;
    for (; size >= 3 * PART_BYTES; data += 3 * PART_BYTES, size -= 3 * PART_BYTES) {
        uint64_t second = 0, third = 0;
        for (int at = 0; at < PART_BYTES; at += 8) {
            crc = _mm_crc32_u64(crc, word(data + at));
            second = _mm_crc32_u64(second, word(data + PART_BYTES + at));
            third = _mm_crc32_u64(third, word(data + 2 * PART_BYTES + at));
        }
        crc = moved_over_part((uint32_t)crc) ^ second;
        crc = moved_over_part((uint32_t)crc) ^ third;
    }
    for (; size >= 8; data += 8, size -= 8)
        crc = _mm_crc32_u64(crc, word(data));
    while (size--)
        crc = _mm_crc32_u8((uint32_t)crc, *data++);
    return (uint32_t)crc;
}
#endif

static uint32_t (*crc_function)(uint32_t, const unsigned char *, size_t) = crc_by_tables;

static void
choose_crc(void)
{
    fill_crc_tables();
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        fill_part_tables();
        crc_function = crc_by_instruction;
    }
#endif
}

/* The checksum in a file: rotated, and shifted by a constant. */
static uint32_t
checksum(const unsigned char *data, size_t size)
{
    const uint32_t crc = ~crc_function(UINT32_MAX, data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static uint32_t
number(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

PyDoc_STRVAR(tfrecord_checksum_doc, "tfrecord_checksum(data)\n\nReturn the checksum of some bytes.");

static PyObject *
tfrecord_checksum(PyObject *Py_UNUSED(module), PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE))
        return NULL;
    const uint32_t sum = checksum(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(sum);
}

PyDoc_STRVAR(take_records_doc,
             "take_records(data, starts, lengths, check)\n\n"
             "Return the payloads at `starts`, and the number of the first whose checksum, which\n"
             "follows it, is wrong if `check`, or which is not in `data`; -1 if there is none.\n"
             "`starts` and `lengths` are arrays of int64.");

static PyObject *
take_payloads(const Py_buffer *data, const int64_t *starts, const int64_t *lengths,
              Py_ssize_t count, int check)
{
    PyObject *records = PyList_New(0);
    if (!records)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        const int64_t start = starts[i], length = lengths[i];
        if (start < 0 || length < 0 || start > data->len - FOOT_BYTES ||
            length > data->len - FOOT_BYTES - start)
            return Py_BuildValue("Nn", records, i);
        const char *payload = (const char *)data->buf + start;
        PyObject *record = PyBytes_FromStringAndSize(payload, (Py_ssize_t)length);
        if (!record || PyList_Append(records, record)) {
            Py_XDECREF(record);
            Py_DECREF(records);
            return NULL;
        }
        Py_DECREF(record); /* the list holds it */
        /* Of the copy, which is in the processor's cache. */
        const unsigned char *copy = (const unsigned char *)PyBytes_AsString(record);
        if (check && number((const unsigned char *)payload + length) !=
                         checksum(copy, (size_t)length))
            return Py_BuildValue("Nn", records, i);
    }
    return Py_BuildValue("Nn", records, (Py_ssize_t)-1);
}

static PyObject *
take_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, starts, lengths;
    int check;
    if (!PyArg_ParseTuple(args, "y*y*y*p", &data, &starts, &lengths, &check))
        return NULL;
    const Py_ssize_t nbytes = starts.len < lengths.len ? starts.len : lengths.len;
    PyObject *taken = take_payloads(&data, starts.buf, lengths.buf, nbytes / 8, check);
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&lengths);
    return taken;
}

PyDoc_STRVAR(split_records_doc,
             "split_records(block, at, count, check)\n\n"
             "Return up to `count` payloads from `at` on, and where the next record begins. It stops\n"
             "before a record that is not in the block as a whole, or whose length is damaged; if\n"
             "`check`, also before one whose payload is.");

static PyObject *
split_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *block;
    Py_ssize_t at, count;
    int check;
    if (!PyArg_ParseTuple(args, "O!nnp", &PyBytes_Type, &block, &at, &count, &check))
        return NULL;
    const Py_ssize_t size = PyBytes_Size(block);
    const unsigned char *bytes = (const unsigned char *)PyBytes_AsString(block);
    PyObject *records = PyList_New(0);
    if (!records)
        return NULL;
    /* A length is rarely another one than that of the record before. */
    unsigned char known[HEAD_BYTES];
    int knows = 0;
    while (count-- > 0 && at >= 0 && size - at >= HEAD_BYTES + FOOT_BYTES) {
        const unsigned char *head = bytes + at;
        if (!knows || memcmp(known, head, HEAD_BYTES)) {
            if (number(head + 8) != checksum(head, 8))
                break;
            memcpy(known, head, HEAD_BYTES);
            knows = 1;
        }
        const uint64_t length = (uint64_t)number(head) | (uint64_t)number(head + 4) << 32;
        if (length > (uint64_t)(size - at - HEAD_BYTES - FOOT_BYTES))
            break;
        const unsigned char *payload = head + HEAD_BYTES;
        if (check && number(payload + length) != checksum(payload, (size_t)length))
            break;
        PyObject *record = PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)length);
        if (!record || PyList_Append(records, record)) {
            Py_XDECREF(record);
            Py_DECREF(records);
            return NULL;
        }
        Py_DECREF(record);
        at += HEAD_BYTES + (Py_ssize_t)length + FOOT_BYTES;
    }
    return Py_BuildValue("Nn", records, at);
}

static PyMethodDef methods[] = {
    {"split_records", split_records, METH_VARARGS, split_records_doc},
    {"take_records", take_records, METH_VARARGS, take_records_doc},
    {"tfrecord_checksum", tfrecord_checksum, METH_O, tfrecord_checksum_doc},
    {NULL, NULL, 0, NULL},
};

/* Called by `_native.c`, which holds the module. */
int
add_tfrecord(PyObject *module)
{
    choose_crc();
    return PyModule_AddFunctions(module, methods);
}
