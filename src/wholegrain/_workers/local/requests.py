"""What the main process and the fork server say to each other."""

import struct

FORK, EXIT_CODE, KEEP, DROP = b"F", b"X", b"K", b"D"
REQUEST = struct.Struct("<cQQ")
"""What is asked for, the number of the request, and that of the worker or the program."""
REPLY = struct.Struct("<Qqq")
"""The number of the request, how a worker ended, and why it could not be started (an `errno`)."""
UNKNOWN = -(1 << 32)
SIZE = struct.Struct("<q")
"""Before the objects of a program: how many, and the size of each, negative for a `bytearray`."""
