/* The records in a block of a TFRecord file. The counterpart in Python is `_tfrecord_reader.py`. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define HEAD_BYTES 12 /* a length and its checksum */
#define FOOT_BYTES 4  /* the checksum of the payload */

/* CRC-32C, bytes at a time. */
static uint32_t crc_table[256];

static void
fill_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
        crc_table[byte] = crc;
    }
}

static uint32_t
number(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

/* Whether the checksum behind the eight bytes of a length is theirs. */
static int
is_length(const unsigned char *head)
{
    uint32_t crc = UINT32_MAX;
    for (int i = 0; i < 8; i++)
        crc = crc_table[(crc ^ head[i]) & 255] ^ (crc >> 8);
    crc = ~crc;
    return number(head + 8) == (crc >> 15 | crc << 17) + 0xa282ead8u;
}

PyDoc_STRVAR(split_records_doc,
             "split_records(block, at, count)\n\n"
             "Return up to `count` payloads from `at` on, and where the next record begins. It stops\n"
             "before a record that is not in the block as a whole, or whose length is damaged.");

static PyObject *
split_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *block;
    Py_ssize_t at, count;
    if (!PyArg_ParseTuple(args, "O!nn", &PyBytes_Type, &block, &at, &count))
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
            if (!is_length(head))
                break;
            memcpy(known, head, HEAD_BYTES);
            knows = 1;
        }
        const uint64_t length = (uint64_t)number(head) | (uint64_t)number(head + 4) << 32;
        if (length > (uint64_t)(size - at - HEAD_BYTES - FOOT_BYTES))
            break;
        PyObject *record =
            PyBytes_FromStringAndSize((const char *)head + HEAD_BYTES, (Py_ssize_t)length);
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
    {NULL, NULL, 0, NULL},
};

/* Called by `_native.c`, which holds the module. */
int
add_tfrecord(PyObject *module)
{
    fill_crc_table();
    return PyModule_AddFunctions(module, methods);
}
