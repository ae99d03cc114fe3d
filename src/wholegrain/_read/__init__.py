"""Reading ahead in threads: knows callables and iterators, nothing of datasets or processes."""
