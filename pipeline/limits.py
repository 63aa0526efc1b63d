"""Limits on the size of foreign input, checked before memory is allocated.

Each limit is many times the size of the largest real file, and far below a harmful one.
"""

MB = 1 << 20

# a run, an evaluation, ledgers (2 MB), training curves: bytes
RECORD_BYTES = 64 * MB
# the user's own data: bytes of a file, and of all examples unpacked; pixels of an image before it is scaled;
# files of a folder; classes
OWN_BYTES, OWN_PIXELS, OWN_FILES, OWN_CLASSES = 8192 * MB, 50_000_000, 2_000_000, 10_000
# columns of the user's CSV file
OWN_COLUMNS = 1000
# weights of an exported network: bytes
WEIGHTS_BYTES = 4096 * MB
# unpacked size of a pack: so many times its own size, and so much in any case; weights hardly shrink
PACK_TIMES, PACK_LEAST = 4, 64 * MB
# first member of a pack
MANIFEST_BYTES = 16 * MB
