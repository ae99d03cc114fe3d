"""Stands for the script of `python -m wholegrain script.py` in processes that it spawns.

`multiprocessing` runs the main module again in each of them, under another name, so that what was
defined there can be found. It takes this module for it.
"""

if __name__ == "__mp_main__":
    from wholegrain.compat.program import run_again

    run_again(globals())
