"""The same pipeline in Grain and here: names, elements, states, errors."""
