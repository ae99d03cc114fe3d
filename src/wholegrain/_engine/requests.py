"""What the main process and the fork server say to each other."""

import struct

FORK, EXIT_CODE, ALLOCATE, MAKE_OBJECTS, DROP = b"F", b"X", b"A", b"O", b"D"
REQUEST = struct.Struct("<cQQ")
"""What is asked for, the number of the worker or of the memory, and how much of it."""
REPLY = struct.Struct("<q")
UNKNOWN = -(1 << 32)
