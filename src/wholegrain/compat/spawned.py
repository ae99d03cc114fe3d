"""The main module of processes that `python -m wholegrain script.py` spawns.

`multiprocessing` runs the main module again in each spawned process, under another name, so that
its definitions can be found. This module runs the script in its place.
"""

if __name__ == "__mp_main__":
    from wholegrain.compat.program import run_again

    run_again(globals())
