"""Workers on this machine: fork, spawn, and elements through shared memory."""
