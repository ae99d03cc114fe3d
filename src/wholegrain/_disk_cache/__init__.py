"""Elements of datasets kept in files, for `ds.cache(path)`. It knows no datasets.

    PATH/
      wholegrain-elements.json   marks the folder as a cache, so that no other is ever cleared
      lock                       locked by a process that creates or deletes something here
      3f9ac01d22b4e817/          the elements of one pipeline, named by its fingerprint
        pipeline.json            describes the pipeline
        index                    where each element is; locked (shared) by those who use it
        data-00000, ...          elements, appended by one process at a time

An element is appended to a data file first, and entered into the index after that. So a process
that is killed leaves at most some unused bytes. Every record contains its index and a checksum, so
a wrong entry is never taken for an element. The kernel releases the locks of processes that die.
"""
