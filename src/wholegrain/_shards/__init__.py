"""Files of records that are written as a whole or not at all. Knows no datasets."""
