"""The limits of readers that share threads and buffers."""

from wholegrain.options import ReadOptions

# Readers that share one buffer may each read so many elements ahead.
_SMALLEST_BUFFER = 4


def shared_by(options: ReadOptions, readers: int) -> ReadOptions:
    """Return the options of one of several readers that share the threads and the buffer."""
    if readers == 1:
        return options
    threads = -(-options.num_threads // readers)
    return ReadOptions(threads, max(threads, -(-options.prefetch_buffer_size // readers)))


def with_smaller_buffer(options: ReadOptions, parts: int) -> ReadOptions:
    """Return the options of a reader whose buffer is one of several parts."""
    size = options.prefetch_buffer_size
    if parts == 1 or size <= _SMALLEST_BUFFER:
        return options
    size = max(_SMALLEST_BUFFER, -(-size // parts))
    return ReadOptions(min(options.num_threads, size), size)
